//! Jobs: their states, their records, and the transitions between states.

mod archive;
mod attempt;
mod estimate;
mod external;
mod lifecycle;
mod record;
mod restart_cost;
mod table;

use dovetail_model::NodeId;
use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::actor::Actor;

pub(in crate::state) use archive::SavedArchive;
pub use archive::{ArchiveChange, PastEnd};
pub use attempt::{Attempt, AttemptEnd, TaskState, Verdict};
pub use estimate::{Estimate, EstimateSource};
pub(super) use estimate::{record_progress, set_running_since};
pub(super) use lifecycle::{JobLifecycle, gpus_in_use_beside};
pub use record::{EarlierService, Failures, JobRecord, Progress, ProgressSample};
pub(super) use restart_cost::Restart;
pub(super) use table::JobTable;

/// Why a job waits outside the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Held by a user or a rule.
    User(Actor),
    /// Waits for other jobs to end.
    After(Vec<JobId>),
    /// The limit of its array is reached.
    Array,
    /// The GPU limit of its user in its virtual cluster is reached.
    Cap,
    /// Its workload does not exist and its controller has to create it.
    #[serde(alias = "parts")]
    Workload,
}

/// Why an attempt was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Jobs ahead of it in the queue need its GPUs: this job, where it is known.
    Preempted(Option<JobId>),
    /// It continues on other GPUs.
    Moved,
    /// It continues on more or fewer GPUs.
    Resized,
    /// A node was lost.
    NodeLost(NodeId),
    /// It was cancelled.
    Cancelled(Actor),
    /// It was held.
    Held(Actor),
    /// The time limit was reached.
    TimeLimit,
    /// A process failed; the job may be retried.
    Failed,
    /// The platform failed: the attempt could not be started, or was lost.
    Platform(String),
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All processes succeeded.
    Completed,
    /// A process failed.
    Failed {
        /// Exit code of the process.
        exit_code: i32,
        /// Signal that ended the process, or zero.
        signal: i32,
        /// Description of the failure.
        #[serde(alias = "why")]
        reason: String,
    },
    /// It was cancelled.
    Cancelled(Actor),
    /// The time limit was reached.
    TimeLimit,
    /// The cluster can never run it.
    Rejected(String),
    /// A job it depends on did not end as required.
    DependencyFailed(JobId),
}

/// State of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for something other than GPUs.
    Held(Hold),
    /// In the queue.
    Queued,
    /// Has GPUs; its processes are being started.
    Starting,
    /// All processes run.
    Running,
    /// Its processes were told to stop.
    Stopping(Cause),
    /// Has ended.
    Ended(End),
}

impl JobState {
    /// Returns whether the engine knows the job.
    pub(super) fn is_in_engine(&self) -> bool {
        !matches!(self, Self::Held(_) | Self::Ended(_))
    }

    /// Returns whether the job holds GPUs.
    pub fn holds_gpus(&self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Stopping(_))
    }

    /// Returns whether the job has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}
