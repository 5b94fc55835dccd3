//! The simulator: the engine driven by virtual time.
//!
//! It never changes a decision. It turns the engine's commands into later events, knows the true run time and speed of
//! every job, and reveals as much of that as the run's knowledge allows.

pub mod anomaly;
mod blocking;
pub mod bound;
pub mod compat;
pub mod config;
pub mod failures;
pub mod metrics;
mod predictor;
mod run;
mod runtime;
mod sharing;
pub mod speed;
mod speeds;
mod timeline;
mod truth;

pub use config::{Compat, MuriTime, SimConfig, SimError};
pub use dovetail_engine::{Clock, Knowledge};
pub use failures::{Failures, Outage};
pub use run::{Future, FutureJob, Journal, Observer, TrueJob, resume, simulate, simulate_with};
pub use runtime::SIMULATOR;
pub use speed::SpeedModel;
pub use speeds::{Speeds, speeds};

/// The guide to writing a policy, compiled and run.
#[doc = include_str!("../../../docs/write-a-policy.md")]
#[cfg(doctest)]
pub struct WriteAPolicy;
