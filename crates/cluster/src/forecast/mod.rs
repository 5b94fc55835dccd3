//! Forecasts of start times: the current state is simulated many times, each time with run times drawn from those of
//! finished jobs.

mod calibration;
mod error;
mod forecaster;
mod run_times;
mod simulation;
mod snapshot;

use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use calibration::Calibration;
pub use error::ForecastError;
pub use forecaster::Forecaster;
pub use run_times::{Arrivals, FinishedJob, RunTimes};
pub use simulation::{Sampler, first_starts};
pub use snapshot::ForecastSnapshot;
pub(crate) use snapshot::check_queued;

/// Forecast start time of a job, as an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Eta {
    /// 5th percentile of the start time.
    #[schemars(with = "i64")]
    pub p5: Time,
    /// Median of the start time.
    #[schemars(with = "i64")]
    pub p50: Time,
    /// 90th percentile of the start time.
    #[schemars(with = "i64")]
    pub p90: Time,
    /// 95th percentile of the start time.
    #[schemars(with = "i64")]
    pub p95: Time,
    /// Seconds from now to `p50`.
    pub p50_s: f64,
    /// Seconds from now to `p90`.
    pub p90_s: f64,
    /// Number of simulations.
    pub samples: u32,
    /// Description of the data that run times were drawn from.
    pub based_on: String,
}

/// Returns the interval of simulated start times, or `None` if there are none.
pub fn interval(now: Time, mut starts: Vec<Time>, based_on: String) -> Option<Eta> {
    starts.sort_unstable();
    let percentile = |share: f64| {
        let index = (share * (starts.len() as f64 - 1.0)).round() as usize;
        starts.get(index).copied()
    };
    let (p5, p50) = (percentile(0.05)?, percentile(0.5)?);
    let (p90, p95) = (percentile(0.9)?, percentile(0.95)?);
    Some(Eta {
        p5,
        p50,
        p90,
        p95,
        p50_s: p50.since(now).as_secs_f64(),
        p90_s: p90.since(now).as_secs_f64(),
        samples: starts.len() as u32,
        based_on,
    })
}

impl Eta {
    /// Returns whether the interval is narrow enough to be useful: one from minutes to days is not.
    fn is_useful(&self, now: Time) -> bool {
        let (early, late) = (
            self.p5.since(now).as_secs_f64(),
            self.p95.since(now).as_secs_f64(),
        );
        late - early < 3_600.0 || late < 30.0 * early.max(60.0)
    }
}
