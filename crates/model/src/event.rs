//! Facts that happened. The engine learns of the world through these alone.

use serde::{Deserialize, Serialize};

use crate::allocation::Allocation;
use crate::ids::{FenceId, Generation, JobId, NodeId};
use crate::job::JobSpec;
use crate::topology::NodeSpec;
use crate::units::{Rate, Time, Work};

/// What a job has had so far. An order that counts service goes on counting from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Past {
    /// Time it held GPUs.
    pub held: Time,
    /// GPU-time (GPUs × microseconds) it used.
    pub gpu_time: i128,
    /// Work that is done and kept.
    pub done: Work,
    /// How often it was stopped with work left.
    pub preemptions: u32,
    /// When it first got GPUs.
    pub first_start: Option<Time>,
}

/// A job that lived before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The job, with an id of its own.
    pub spec: JobSpec,
    /// What it had so far.
    pub past: Past,
    /// Where it was found.
    pub holds: Option<(Generation, Allocation)>,
}

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
    /// A job that lived before came back in line; or it was found on these GPUs, launched so many times, and runs on there
    /// if nobody else has them.
    Returned(Box<Returned>),
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
    /// So much of a node is not there for jobs: others use it, or it is broken. Nobody is stopped for it; what is held is
    /// withheld as soon as it is free.
    NodeWithheld {
        /// The node.
        node: NodeId,
        /// GPUs, whichever they are.
        gpus: u32,
        /// CPU, in milli-cores.
        cpu_milli: u32,
        /// Memory, in MiB.
        memory_mib: u64,
    },
    /// These nodes and no others are within a fence. Nobody is stopped for it.
    Fenced {
        /// The fence; its number is below [`FenceId::MOST`].
        fence: FenceId,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// The moment named by `wake_at` has come.
    Wake,
}
