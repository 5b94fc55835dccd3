//! What goes into the journal: everything that happened, and nothing that follows from it.

use std::collections::BTreeMap;

use dovetail_model::{Allocation, NodeConstraintId, NodeId, NodeSpec, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::clusters::VirtualClusters;
use crate::request::JobRequest;
use crate::state::End;
use crate::{AttemptId, JobId};

/// A fact and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Microseconds since 1970.
    pub at: Time,
    /// What happened.
    pub fact: Fact,
}

/// How the task of a job on one node ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskEnd {
    /// Of the first process that failed, else zero.
    pub exit_code: i32,
    /// The signal that ended it; zero if none did.
    pub signal: i32,
    /// It could not be started, or was lost: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_error: Option<String>,
    /// It ended because it was told to.
    pub was_stopped: bool,
    /// The last step whose checkpoint is whole.
    pub checkpoint_step: u64,
    /// What it printed last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_words: String,
    /// The kernel killed it for want of memory.
    pub out_of_memory: bool,
    /// The node does not have what the job asks for, as `platform_error` says: the job's own fault.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// How an instance of a role ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceEnd {
    /// Its role.
    pub role: String,
    /// Which of its instances.
    pub index: u32,
    /// Its exit code.
    pub exit_code: i32,
    /// The signal that ended it; zero if none did.
    pub signal: i32,
}

/// A policy as people write it: a preset, and parts that replace its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyText {
    /// The preset, with knobs: `tiresias:limits=3600`.
    pub policy: String,
    /// Parts by kind: `placement` to `spread`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, String>,
}

impl Default for PolicyText {
    fn default() -> Self {
        Self {
            policy: "fifo-backfill:priority=true".to_owned(),
            parts: BTreeMap::new(),
        }
    }
}

/// What an operator changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperatorAction {
    /// Another policy.
    Policy(PolicyText),
    /// Decide in rounds of this length, or whenever something happens.
    Round(#[schemars(with = "Option<i64>")] Option<Time>),
    /// Decide nothing for now.
    Pause,
    /// Decide again.
    Resume,
    /// Other virtual clusters.
    VirtualClusters(Box<VirtualClusters>),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// A job came in.
    Submitted {
        /// Its number: one more than the last.
        job: JobId,
        /// Who sent it.
        user: String,
        /// What is asked for.
        request: Box<JobRequest>,
        /// What its sender calls this request, to send it again without a second job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// A job came in of which others make the parts, and these are not there yet: it waits for them.
    Announced {
        /// Its number, larger than all that are known.
        job: JobId,
        /// Who sent it.
        user: String,
        /// What is asked for.
        request: Box<JobRequest>,
        /// What its sender calls this request, to send it again without a second job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// A job that this book does not know was found on these GPUs. It runs on there, unless somebody else has them.
    Found {
        /// Its number, larger than all that are known.
        job: JobId,
        /// Who sent it.
        user: String,
        /// What was asked for.
        request: Box<JobRequest>,
        /// When it came.
        submitted: Time,
        /// The launch that was found.
        attempt: AttemptId,
        /// When that got its GPUs.
        since: Time,
        /// Where.
        allocation: Allocation,
    },
    /// A job that this book does not know was found to be over.
    #[serde(alias = "past")]
    FoundEnded {
        /// Its number, larger than all that are known.
        job: JobId,
        /// Who sent it.
        user: String,
        /// What was asked for.
        request: Box<JobRequest>,
        /// When it came.
        submitted: Time,
        /// When it got GPUs, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started: Option<Time>,
        /// When it ended.
        ended: Time,
        /// How.
        end: End,
    },
    /// What a job consists of is gone, and is being made anew by others: it waits for that.
    #[serde(alias = "scattered")]
    WorkloadLost {
        /// The job.
        job: JobId,
    },
    /// All that a job consists of is there again, or all that it still needs.
    #[serde(alias = "gathered")]
    WorkloadReady {
        /// The job.
        job: JobId,
        /// What it asks for now: only GPUs and what goes with them are looked at.
        #[serde(default, alias = "now", skip_serializing_if = "Option::is_none")]
        request: Option<Box<JobRequest>>,
    },
    /// The runtime cannot continue an attempt: it stops, and the job is queued again.
    AttemptAborted {
        /// The job.
        job: JobId,
        /// The attempt.
        attempt: AttemptId,
        /// Why it cannot continue.
        reason: String,
    },
    /// Someone does not want it any more.
    Cancelled {
        /// The job.
        job: JobId,
        /// Who.
        by: Actor,
    },
    /// Someone wants it to wait.
    Held {
        /// The job.
        job: JobId,
        /// Who.
        by: Actor,
    },
    /// It need not wait any more.
    Released {
        /// The job.
        job: JobId,
        /// Who.
        by: Actor,
    },
    /// A job that waits has another priority.
    Prioritized {
        /// The job.
        job: JobId,
        /// Larger is more urgent.
        priority: i32,
        /// Who.
        by: Actor,
    },
    /// A job has another mark of its owner, or one less.
    Labelled {
        /// The job.
        job: JobId,
        /// The key of the mark.
        key: String,
        /// Its value; none to take it away.
        value: Option<String>,
        /// Who.
        by: Actor,
    },
    /// A node joined, came back, or changed.
    NodeJoined {
        /// Its id: the next free one for a new name.
        node: NodeId,
        /// What it has.
        spec: Box<NodeSpec>,
        /// The kind of its GPUs.
        gpu_type: String,
        /// The rack it is in.
        rack: String,
        /// Where other nodes reach it.
        address: String,
        /// Drawn when its agent first started.
        identity: u64,
    },
    /// A node has not been heard of for too long: its tasks have ended by now.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A node takes no new jobs.
    NodeDrained {
        /// The node.
        node: NodeId,
        /// Who, or which rule.
        by: Actor,
        /// Why.
        #[serde(alias = "why")]
        reason: String,
    },
    /// A node takes jobs again.
    NodeResumed {
        /// The node.
        node: NodeId,
        /// Who.
        by: Actor,
    },
    /// So much of a node is not there for jobs: others use it, or it is broken.
    NodeUnavailable {
        /// The node.
        node: NodeId,
        /// GPUs, whichever they are.
        gpus: u32,
        /// CPU, in milli-cores.
        cpu_milli: u32,
        /// Memory, in MiB.
        memory_mib: u64,
    },
    /// These nodes and no others are within a fence.
    NodeConstraintSet {
        /// The fence.
        constraint: NodeConstraintId,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// The processes of a launch run on a node.
    TaskStarted {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
        /// How its GPUs are shared, where they are.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        sharing: String,
        /// What its agent has to say, such as an image that is not used.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remarks: Vec<String>,
    },
    /// An instance of a role has ended; others of the launch may go on.
    InstanceEnded {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
        /// How.
        end: InstanceEnd,
    },
    /// They have ended.
    TaskEnded {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
        /// How.
        end: Box<TaskEnd>,
    },
    /// A job told how far it is.
    Progressed {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
        /// Steps done.
        step: u64,
        /// Of how many; zero if not known.
        total_steps: u64,
        /// Time of a step.
        step_time: Time,
        /// The last step whose checkpoint is whole.
        checkpoint_step: u64,
    },
    /// A job has run for as long as it may.
    #[serde(alias = "time_is_up")]
    TimeLimitReached {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
    },
    /// An operator changed something.
    Operated {
        /// What.
        #[serde(alias = "what")]
        action: OperatorAction,
        /// Who.
        by: Actor,
    },
    /// The moment came at which the engine wanted to look again.
    Woke,
}
