//! Forecasts of start times.
//!
//! A copy of the engine is simulated many times on the loop of `dovetail-sim`, each time with run times and arrivals that are
//! drawn from what was observed ([`Outlook`]). The interval of the simulated starts is corrected by the errors of earlier
//! forecasts ([`Calibration`]). [`Forecaster`] does this for a live cluster, [`evaluate()`] for a trace.

mod calibration;
mod error;
mod eta;
mod evaluate;
mod forecaster;
mod history;
mod neighbours;
mod outlook;
mod snapshot;
mod survival;

pub use calibration::{Calibration, Interval, RawForecast};
pub use error::ForecastError;
pub use eta::Eta;
pub use evaluate::{EvaluateOptions, Evaluation, MethodResult, evaluate};
pub use forecaster::Forecaster;
pub use history::{History, JobTraits, ObservedJob};
pub use neighbours::{Neighbour, SubmittedJob, neighbours};
pub use outlook::{Arrival, JobHint, Limits, Outlook, Starts};
pub use snapshot::{ForecastSnapshot, check_queued};
