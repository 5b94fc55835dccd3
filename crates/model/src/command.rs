//! What the engine wants done. Each command names a generation, so a late or repeated answer is harmless.

use serde::{Deserialize, Serialize};

use crate::allocation::Allocation;
use crate::ids::{Generation, JobId, NodeId};
use crate::reason::Reason;

/// Why a running job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// Jobs ahead of it in line need its GPUs.
    Preempted,
    /// It goes on at once on other GPUs.
    Moved,
    /// It goes on at once on more or fewer GPUs.
    Resized,
    /// A node it ran on is gone.
    NodeLost(NodeId),
    /// Its owner cancelled it.
    Cancelled,
}

/// What the engine wants done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Start the job on these GPUs, which are free now.
    Launch {
        /// The job.
        job: JobId,
        /// The number of this launch.
        generation: Generation,
        /// Where.
        allocation: Allocation,
    },
    /// Give the running job this CPU and memory beside the GPUs it has; it is not stopped for it. A node does so before
    /// anything it is told later, and within one decision what gets less comes before what gets more.
    Resize {
        /// The job.
        job: JobId,
        /// The launch that runs.
        generation: Generation,
        /// The same GPUs, with what is beside them from now on.
        allocation: Allocation,
    },
    /// Stop the job and answer with `Stopped` when its GPUs are free.
    Stop {
        /// The job.
        job: JobId,
        /// The launch to stop.
        generation: Generation,
        /// Why.
        reason: StopReason,
    },
    /// The job will never run here.
    Reject {
        /// The job.
        job: JobId,
        /// Why.
        reason: Reason,
    },
}
