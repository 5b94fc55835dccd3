//! Events: everything the engine learns about the world.

use serde::{Deserialize, Serialize};

use crate::allocation::Allocation;
use crate::command::StopReason;
use crate::ids::{AttemptKey, JobKey, NodeConstraintId, NodeId};
use crate::job::{JobProfile, JobSpec};
use crate::topology::NodeSpec;
use crate::units::{Rate, Time, Work};

/// The service a job received in earlier attempts. An order that counts service continues from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobHistory {
    /// Time it held GPUs.
    pub held: Time,
    /// GPU time it used, in GPU-microseconds.
    pub gpu_time: i128,
    /// Work that is done and saved.
    pub done: Work,
    /// How often it was stopped with work left.
    pub preemptions: u32,
    /// When it first got GPUs.
    pub first_start: Option<Time>,
    /// When it was queued last.
    #[serde(default)]
    pub waiting_since: Option<Time>,
    /// Integral over its life of the number of unfinished jobs, in job-microseconds; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<i128>,
}

/// A job that was known to an earlier engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredJob {
    /// The job, with a key of its own.
    pub spec: JobSpec,
    /// The service it received so far.
    #[serde(alias = "past")]
    pub history: JobHistory,
    /// The attempt and the GPUs with which it was found running.
    pub holds: Option<(AttemptKey, Allocation)>,
    /// Why it was told to stop, if it was. It vacates its GPUs when it has stopped.
    #[serde(default)]
    pub stopping: Option<StopReason>,
}

/// How an attempt of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All its work is done.
    Completed,
    /// It failed and is not started again.
    Failed,
}

/// An event. The journal of all events and their times is sufficient to rebuild the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A job was submitted.
    Submitted(JobSpec),
    /// A job known to an earlier engine is queued again; or, if it was found running and no other job holds its GPUs, it
    /// continues there.
    #[serde(alias = "Returned")]
    Restored(Box<RestoredJob>),
    /// What is known about how a job behaves has changed.
    Respecified {
        /// The job.
        job: JobKey,
        /// All that is known now.
        profile: Box<JobProfile>,
    },
    /// The owner of a job cancelled it.
    Cancelled {
        /// The job.
        job: JobKey,
    },
    /// A launch took effect: the job makes progress from now on.
    Started {
        /// The job.
        job: JobKey,
        /// The attempt that started.
        #[serde(alias = "generation")]
        attempt: AttemptKey,
        /// Its speed.
        rate: Rate,
    },
    /// A running job reported its progress and speed.
    Progressed {
        /// The job.
        job: JobKey,
        /// The attempt that runs.
        #[serde(alias = "generation")]
        attempt: AttemptKey,
        /// All work done so far.
        done: Work,
        /// Its speed from now on.
        rate: Rate,
    },
    /// A job ended by itself.
    Exited {
        /// The job.
        job: JobKey,
        /// The attempt that ended.
        #[serde(alias = "generation")]
        attempt: AttemptKey,
        /// How it ended.
        outcome: Outcome,
    },
    /// A stopping job has stopped, or was lost with its node, and its GPUs are free.
    Stopped {
        /// The job.
        job: JobKey,
        /// The attempt that ended.
        #[serde(alias = "generation")]
        attempt: AttemptKey,
        /// Work that is saved in a checkpoint.
        done: Work,
    },
    /// A node joined, or returned with the same id.
    NodeUp {
        /// Its id; the next free one for a new node.
        node: NodeId,
        /// Its resources and position in the topology.
        spec: NodeSpec,
    },
    /// A node was lost, with everything on it.
    NodeDown {
        /// The node.
        node: NodeId,
    },
    /// A node accepts no new jobs; those on it continue.
    NodeDraining {
        /// The node.
        node: NodeId,
    },
    /// A draining node accepts jobs again.
    NodeResumed {
        /// The node.
        node: NodeId,
    },
    /// A part of a node is unavailable: taken by others, or broken. No job is stopped for it; what jobs hold becomes
    /// unavailable as soon as it is free.
    #[serde(alias = "NodeWithheld")]
    NodeUnavailable {
        /// The node.
        node: NodeId,
        /// Number of GPUs, whichever they are.
        gpus: u32,
        /// CPU, in milli-cores.
        cpu_milli: u32,
        /// Memory, in MiB.
        memory_mib: u64,
    },
    /// The nodes of a node constraint changed. No job is stopped for it.
    #[serde(alias = "Fenced")]
    NodeConstraintSet {
        /// The node constraint; its number is below [`NodeConstraintId::MAX_COUNT`].
        #[serde(alias = "fence")]
        constraint: NodeConstraintId,
        /// All its nodes.
        nodes: Vec<NodeId>,
    },
    /// The moment returned by `wake_at` has passed.
    Wake,
}
