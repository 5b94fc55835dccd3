//! Why the driver refuses a request.

use crate::JobId;
use crate::request::RequestError;
use crate::state::{Infeasible, PolicyTextError, VirtualClusterChangeError};

/// Why a request was not executed. It had no effect, and never will have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The request names something that does not exist.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The current state does not permit the request.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Jobs left memory after the history was read for the request, which has to be read again.
    #[error("ended jobs were moved to the history while the request was checked; send it again")]
    HistoryMoved,
    /// Too many ended jobs are not in the history yet.
    #[error(
        "the history is behind: {jobs} ended jobs are not written yet, more than the limit of {limit}; \
         see the log of the server and submit again later"
    )]
    HistoryBehind {
        /// Ended jobs that wait for being written.
        jobs: usize,
        /// How many may wait.
        limit: usize,
    },
    /// The journal cannot be written, with the reason.
    #[error("the request was not recorded: cannot write the journal: {0}")]
    JournalUnavailable(String),
    /// The driver has ended.
    #[error("the scheduler is shutting down")]
    ShuttingDown,
}

/// Why a request is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// The job request is wrong by itself.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The virtual cluster does not exist.
    #[error("tenant: unknown virtual cluster {name:?}; expected {}", .known.join(", "))]
    UnknownVirtualCluster {
        /// Name that was given.
        name: String,
        /// Names of all virtual clusters.
        known: Vec<String>,
    },
    /// The priority exceeds that of the virtual cluster.
    #[error("priority: {priority} exceeds the highest priority of virtual cluster {virtual_cluster} ({max})")]
    Priority {
        /// Priority that was requested.
        priority: i32,
        /// The virtual cluster.
        virtual_cluster: String,
        /// Highest priority.
        max: i32,
    },
    /// The job alone exceeds the GPU limit of one user.
    #[error("gpus: {gpus} exceeds the limit for one user in virtual cluster {virtual_cluster} ({cap})")]
    UserCap {
        /// GPUs that were requested.
        gpus: u32,
        /// The virtual cluster.
        virtual_cluster: String,
        /// Limit for one user.
        cap: u32,
    },
    /// The job could never run.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    /// A dependency does not exist.
    #[error("after: unknown job {0}")]
    UnknownDependency(JobId),
    /// An array without indexes, or with a limit of zero.
    #[error("array: expected at least one index and a limit of at least 1")]
    EmptyArray,
    /// An array index without an instance.
    #[error("array: index {index} exceeds the number of instances of the roles")]
    UnknownInstance {
        /// The index.
        index: u32,
    },
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyTextError),
    /// The length of rounds is not positive.
    #[error("round: must be longer than 0")]
    Round,
    /// The virtual clusters cannot be changed.
    #[error(transparent)]
    VirtualClusters(#[from] VirtualClusterChangeError),
}

/// What does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// A job.
    #[error("unknown job {0}")]
    Job(JobId),
    /// A node.
    #[error("unknown node {0:?}")]
    Node(String),
    /// The profile of a model.
    #[error("no profile of model {0:?}")]
    Profile(String),
}

/// Why the current state does not permit a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The job has ended.
    #[error("job {0} has already ended")]
    Ended(JobId),
    /// The job is not held.
    #[error("job {0} is not held")]
    NotHeld(JobId),
    /// The job holds GPUs or has ended, so its priority cannot change.
    #[error("job {0} is not pending; only the priority of pending jobs can be changed")]
    NotPending(JobId),
    /// The idempotency key was used for another request.
    #[error("the idempotency key was already used for job {0} with a different request")]
    KeyReused(JobId),
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Self::Invalid(error.into())
    }
}
