//! A forecast start time, as an interval.

use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Forecast start time of a job, as an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Eta {
    /// Early end of the interval that contains nine in ten starts: about the 5th percentile.
    #[schemars(with = "i64")]
    pub p5: Time,
    /// Median of the start time.
    #[schemars(with = "i64")]
    pub p50: Time,
    /// 90th percentile of the start time.
    #[schemars(with = "i64")]
    pub p90: Time,
    /// Late end of that interval: about the 95th percentile.
    #[schemars(with = "i64")]
    pub p95: Time,
    /// Seconds from now to `p5`.
    pub p5_s: f64,
    /// Seconds from now to `p50`.
    pub p50_s: f64,
    /// Seconds from now to `p90`.
    pub p90_s: f64,
    /// Seconds from now to `p95`.
    pub p95_s: f64,
    /// Number of simulations.
    pub samples: u32,
    /// Number of earlier forecasts whose outcomes the interval is corrected by.
    pub outcomes: u32,
    /// Description of the data that run times were drawn from.
    pub based_on: String,
}

/// Returns a percentile of sorted times, interpolated; `None` if there are none.
pub(crate) fn percentile(sorted: &[Time], share: f64) -> Option<Time> {
    let position = share * (sorted.len().checked_sub(1)? as f64);
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let (low_at, high_at) = (sorted[low], sorted[high]);
    let part = (high_at.since(low_at).0 as f64 * (position - low as f64)) as i64;
    Some(low_at + Time(part))
}
