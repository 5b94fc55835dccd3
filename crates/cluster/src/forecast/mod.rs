//! When a job will start: the present state is played forward many times, each time with other run times drawn from what
//! jobs took here before.

mod calibrate;
mod foresight;
mod lengths;
mod play;
mod prospect;

use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use calibrate::Calibration;
pub use foresight::Forecaster;
pub use lengths::{Arrivals, Lengths, Past};
pub use play::{Draw, first_starts};
pub use prospect::ForecastSnapshot;

/// When a job starts, as an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Eta {
    /// With a chance of one in twenty it starts before.
    #[schemars(with = "i64")]
    pub p5: Time,
    /// As likely before as after.
    #[schemars(with = "i64")]
    pub p50: Time,
    /// With a chance of nine in ten it has started by then.
    #[schemars(with = "i64")]
    pub p90: Time,
    /// With a chance of nineteen in twenty it has started by then.
    #[schemars(with = "i64")]
    pub p95: Time,
    /// Seconds from now to `p50`.
    pub p50_s: f64,
    /// Seconds from now to `p90`.
    pub p90_s: f64,
    /// How often the state was played forward.
    pub samples: u32,
    /// What run times were drawn from.
    pub based_on: String,
}

/// The interval these starts make.
pub fn interval(now: Time, mut starts: Vec<Time>, based_on: String) -> Option<Eta> {
    starts.sort_unstable();
    let at = |share: f64| {
        let place = (share * (starts.len() as f64 - 1.0)).round() as usize;
        starts.get(place).copied()
    };
    let (p5, p50, p90, p95) = (at(0.05)?, at(0.5)?, at(0.9)?, at(0.95)?);
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
    /// Whether it says anything: one that spans from minutes to days does not.
    fn says_something(&self, now: Time) -> bool {
        let (early, late) = (
            self.p5.since(now).as_secs_f64(),
            self.p95.since(now).as_secs_f64(),
        );
        late - early < 3_600.0 || late < 30.0 * early.max(60.0)
    }
}

/// A span of time for people.
pub fn span(time: Time) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 120.0 => format!("{s:.0} seconds"),
        s if s < 7_200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
