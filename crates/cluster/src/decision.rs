//! Decisions of the scheduler, as the journal records them.

use dovetail_model::{Allocation, AttemptKey, InterleavingTerms};
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::fact::OperatorAction;
use crate::state::Cause;
use crate::{AttemptId, JobId};

/// What the scheduler decided after a fact. A restart applies decisions as they were taken, whatever the policy or the
/// release would decide now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A job starts on these GPUs.
    Launch {
        /// The job.
        job: JobId,
        /// The new attempt.
        attempt: AttemptId,
        /// The engine's handle of the attempt.
        key: AttemptKey,
        /// What it holds.
        allocation: Allocation,
        /// How its stages are interleaved with those of jobs on the same GPUs, if they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interleaving: Option<InterleavingTerms>,
    },
    /// The CPU and memory of a running job change.
    Resize {
        /// The job.
        job: JobId,
        /// The attempt.
        attempt: AttemptId,
        /// What it holds from now on.
        allocation: Allocation,
    },
    /// A running job gets other CPU for a while, to measure its speed, or its own again.
    Try {
        /// The job.
        job: JobId,
        /// The attempt.
        attempt: AttemptId,
        /// CPU per GPU, in milli-cores; none ends the trial.
        cpu_milli_per_gpu: Option<u32>,
    },
    /// A job that holds GPUs is told to stop.
    Stop {
        /// The job.
        job: JobId,
        /// The attempt.
        attempt: AttemptId,
        /// Why it is stopped.
        cause: Cause,
    },
    /// A job never runs.
    Reject {
        /// The job.
        job: JobId,
        /// Why it never runs.
        reason: String,
    },
    /// A job that was found running cannot keep its GPUs, and is queued.
    Displace {
        /// The job.
        job: JobId,
    },
    /// A setting of the scheduler is in force.
    Operate {
        /// The change.
        action: OperatorAction,
        /// User or rule that caused it.
        by: Actor,
    },
    /// A setting of the scheduler is refused, and the one before stays in force.
    Refuse {
        /// Why it is refused.
        error: String,
    },
}
