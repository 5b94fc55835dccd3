//! What a person should know before a run starts.

use std::fmt;

use dovetail_model::Time;
use dovetail_report::format::span;

/// A note or a warning about a run that is about to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A choice of a reader, such as rows that it skips.
    Note(String),
    /// Jobs may make no progress under a policy.
    ShortTimeSlices(ShortTimeSlices),
}

/// The time slices of jobs are no longer than a restart, so that jobs may make no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortTimeSlices {
    /// The policy.
    pub policy: String,
    /// GPUs of the narrowest job whose time slice is short.
    pub gpus: u32,
    /// The time slice of that job.
    pub slice: Time,
    /// Duration of a restart.
    pub restart_cost: Time,
    /// Number of jobs with a short time slice.
    pub affected: usize,
    /// Number of all jobs.
    pub jobs: usize,
}

impl fmt::Display for ShortTimeSlices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: the time slice of a job on {} GPU{} is {}, and a restart takes {}: {} of {} jobs may make no progress \
             once they have been stopped",
            self.policy,
            self.gpus,
            if self.gpus == 1 { "" } else { "s" },
            span(self.slice.as_secs_f64()),
            span(self.restart_cost.as_secs_f64()),
            self.affected,
            self.jobs,
        )
    }
}
