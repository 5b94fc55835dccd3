//! Why there is no forecast.

use dovetail_model::Time;

/// Why there is no forecast of the start of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForecastError {
    /// There is no such job.
    #[error("unknown job")]
    UnknownJob,
    /// The job is held.
    #[error("the job is not queued yet")]
    NotQueued,
    /// The job holds GPUs or has ended.
    #[error("the job is not pending")]
    NotPending,
    /// Scheduling is paused.
    #[error("scheduling is paused")]
    Paused,
    /// Not enough jobs have ended.
    #[error("too few jobs have finished to estimate run times: {finished} of {needed}")]
    TooFewJobs {
        /// Number of finished jobs.
        finished: usize,
        /// Number of jobs that are needed.
        needed: usize,
    },
    /// The simulation takes too long.
    #[error("the queue is too long for a forecast")]
    QueueTooLong,
    /// The job does not start in most simulations.
    #[error("would not start within a month in the current state")]
    BeyondHorizon,
    /// No simulation had a result.
    #[error("no simulation had a result")]
    NoResult,
    /// The interval is too wide.
    #[error("run times vary too much: could start in {} or in {}", span(.earliest), span(.latest))]
    TooUncertain {
        /// Time until the early end of the interval.
        earliest: Time,
        /// Time until the late end of the interval.
        latest: Time,
    },
}

/// Returns a time span as text.
fn span(time: &Time) -> String {
    match time.as_secs_f64() {
        s if s < 120.0 => format!("{s:.0} seconds"),
        s if s < 7_200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
