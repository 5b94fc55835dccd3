//! Commands of the engine to its driver. Each command names an attempt, so a late or repeated answer is harmless.

use serde::{Deserialize, Serialize};

use crate::allocation::Allocation;
use crate::ids::{AttemptKey, JobKey, NodeId};
use crate::reason::Reason;
use crate::stages::InterleavingTerms;

/// Why a running job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// Jobs ahead of it in the queue need its GPUs.
    Preempted,
    /// It restarts at once on other GPUs.
    Moved,
    /// It restarts at once on more or fewer GPUs.
    Resized,
    /// A node it ran on was lost.
    NodeLost(NodeId),
    /// Its owner cancelled it.
    Cancelled,
}

/// A command of the engine to its driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Start the job on these GPUs, which are free now.
    Launch {
        /// The job.
        job: JobKey,
        /// The attempt to start.
        #[serde(alias = "generation")]
        attempt: AttemptKey,
        /// Its GPUs, CPU and memory.
        allocation: Allocation,
        /// How to interleave its stages with those of jobs on the same GPUs; none unless the policy assumes that, and its
        /// stages are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interleaving: Option<InterleavingTerms>,
    },
    /// Give the running job this CPU and memory beside its GPUs, without stopping it. A node carries this out before any
    /// later command, and within one decision jobs that get less precede those that get more.
    Resize {
        /// The job.
        job: JobKey,
        /// The attempt that runs.
        #[serde(alias = "generation")]
        attempt: AttemptKey,
        /// The same GPUs, with the new CPU and memory.
        allocation: Allocation,
    },
    /// Stop the job, and answer with `Stopped` when its GPUs are free.
    Stop {
        /// The job.
        job: JobKey,
        /// The attempt to stop.
        #[serde(alias = "generation")]
        attempt: AttemptKey,
        /// Why it is stopped.
        reason: StopReason,
    },
    /// Report that the job will never run.
    Reject {
        /// The job.
        job: JobKey,
        /// Why it will never run.
        reason: Reason,
    },
}
