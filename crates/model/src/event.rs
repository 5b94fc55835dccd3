//! Facts that happened. The engine learns of the world through these alone.

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, JobId, NodeId};
use crate::job::JobSpec;
use crate::topology::NodeSpec;
use crate::units::{Rate, Work};

/// How a process of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All its work is done.
    Completed,
    /// It failed for good.
    Failed,
}

/// A fact that happened. A journal of (time, event) is all it takes to rebuild the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A job came in.
    Submitted(JobSpec),
    /// Its owner does not want it any more.
    Cancelled {
        /// The job.
        job: JobId,
    },
    /// A launch has taken effect: the job makes progress from now on.
    Started {
        /// The job.
        job: JobId,
        /// The launch this answers.
        generation: Generation,
        /// How fast it runs.
        rate: Rate,
    },
    /// A running job told how far it is and how fast it goes on.
    Progressed {
        /// The job.
        job: JobId,
        /// The launch that runs.
        generation: Generation,
        /// All work done so far.
        done: Work,
        /// How fast it runs from now on.
        rate: Rate,
    },
    /// A job ended by itself.
    Exited {
        /// The job.
        job: JobId,
        /// The launch that ended.
        generation: Generation,
        /// How.
        outcome: Outcome,
    },
    /// A job that was told to stop has stopped (or was lost with its node), and its GPUs are free.
    Stopped {
        /// The job.
        job: JobId,
        /// The launch that ended.
        generation: Generation,
        /// Work that is kept: what a checkpoint holds.
        done: Work,
    },
    /// A node joined, or came back with the same id.
    NodeUp {
        /// Its id; the next free one for a new node.
        node: NodeId,
        /// What it has.
        spec: NodeSpec,
    },
    /// A node is gone, with everything on it.
    NodeDown {
        /// The node.
        node: NodeId,
    },
    /// A node takes no new jobs; those on it run on.
    NodeDraining {
        /// The node.
        node: NodeId,
    },
    /// A draining node takes jobs again.
    NodeResumed {
        /// The node.
        node: NodeId,
    },
    /// The moment named by `wake_at` has come.
    Wake,
}
