//! The entries of the journal: facts, which hold what happened, and decisions, which hold what the scheduler did about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_engine::Clock;
use dovetail_model::{Allocation, NodeConstraintId, NodeId, NodeSpec, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::decision::Decision;
use crate::request::{GangRequest, JobRequest};
use crate::stage_report::StageReport;
use crate::state::{EarlierService, End, PastEnd, Progress};
use crate::virtual_clusters::VirtualClusters;
use crate::{AttemptId, JobId};

/// An entry of the journal with its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenRecord")]
pub struct Record {
    /// Microseconds since 1970.
    pub at: Time,
    /// What happened, or was decided.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What happened, or was decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// Something happened.
    Fact(Fact),
    /// The scheduler decided something.
    Decision(Decision),
}

/// A record as it is read: exactly one of the keys is there.
#[derive(Deserialize)]
struct WrittenRecord {
    at: Time,
    fact: Option<Fact>,
    decision: Option<Decision>,
}

impl TryFrom<WrittenRecord> for Record {
    type Error = &'static str;

    fn try_from(written: WrittenRecord) -> Result<Self, Self::Error> {
        let entry = match (written.fact, written.decision) {
            (Some(fact), None) => Entry::Fact(fact),
            (None, Some(decision)) => Entry::Decision(decision),
            _ => return Err("expected either `fact` or `decision`; a newer release may have written it"),
        };
        Ok(Self {
            at: written.at,
            entry,
        })
    }
}

/// How the task of a job on one node ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskEnd {
    /// Exit code of the first process that failed, or zero.
    pub exit_code: i32,
    /// Signal that ended it, or zero.
    pub signal: i32,
    /// Why it could not be started, or was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_error: Option<String>,
    /// Whether it ended because it was stopped.
    pub was_stopped: bool,
    /// Last step with a complete checkpoint.
    pub checkpoint_step: u64,
    /// Last lines of its log.
    #[serde(rename = "last_words", skip_serializing_if = "String::is_empty")]
    pub log_tail: String,
    /// Whether the kernel killed it because it ran out of memory.
    pub out_of_memory: bool,
    /// Whether the node does not have what the job asks for, as `platform_error` describes; counts as a failure of the job.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// How an instance of a role ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceEnd {
    /// Name of the role.
    pub role: String,
    /// Index among the instances of the role.
    pub index: u32,
    /// Exit code.
    pub exit_code: i32,
    /// Signal that ended it, or zero.
    pub signal: i32,
}

/// A policy as users write it: a preset, and parts that replace those of the preset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyText {
    /// Name of the preset, with options: `tiresias:limits=3600`.
    pub policy: String,
    /// Replaced parts by kind, such as `placement`: `spread`.
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

/// A change of a setting of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperatorAction {
    /// Change the policy.
    Policy(PolicyText),
    /// Decide in rounds of this length, or at every event.
    Round(#[schemars(with = "Option<i64>")] Option<Time>),
    /// Pause scheduling.
    Pause,
    /// Resume scheduling.
    Resume,
    /// Change the virtual clusters.
    VirtualClusters(Box<VirtualClusters>),
    /// Forget the profile of the model with this key.
    ForgetProfile(String),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The journal was created. These settings are in force until an operator changes them.
    Began {
        /// The policy.
        policy: PolicyText,
        /// When decisions are taken.
        clock: Clock,
        /// Release that created the journal.
        release: String,
    },
    /// A job was submitted.
    Submitted {
        /// Number of the job: one more than the last.
        job: JobId,
        /// User who submitted it.
        user: String,
        /// What is requested.
        request: Arc<JobRequest>,
        /// Idempotency key of the request: sent again, it does not create a second job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// A job was submitted whose workload another controller creates, and does not exist yet.
    Announced {
        /// Number of the job, larger than all others.
        job: JobId,
        /// User who submitted it.
        user: String,
        /// What is requested.
        request: Arc<JobRequest>,
        /// Idempotency key of the request: sent again, it does not create a second job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// An unknown gang was found running. It keeps its GPUs unless another job holds them.
    Found {
        /// Number of the job, larger than all others.
        job: JobId,
        /// What its pods state.
        request: Box<GangRequest>,
        /// When it was submitted.
        submitted: Time,
        /// Number of the attempt that was found.
        #[serde(alias = "launch")]
        attempt: AttemptId,
        /// When the attempt got its GPUs.
        since: Time,
        /// What the attempt holds.
        allocation: Allocation,
        /// What the job received in earlier attempts.
        #[serde(default)]
        earlier: EarlierService,
    },
    /// What an earlier scheduler knew about a job whose workload is missing: it continues from there.
    Recalled {
        /// Number of the job.
        job: JobId,
        /// When it was submitted.
        submitted: Time,
        /// When it was queued last, if it was queued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<Time>,
        /// What it received in earlier attempts.
        earlier: EarlierService,
    },
    /// An unknown job was found that has ended.
    #[serde(alias = "past")]
    FoundEnded {
        /// Number of the job, larger than all others.
        job: JobId,
        /// User who submitted it.
        user: String,
        /// What was requested.
        request: Arc<JobRequest>,
        /// When it was submitted.
        submitted: Time,
        /// When it got GPUs, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started: Option<Time>,
        /// When it ended.
        ended: Time,
        /// How it ended.
        end: End,
    },
    /// The workload of a job was deleted; its controller has to recreate it.
    #[serde(alias = "scattered")]
    WorkloadLost {
        /// Number of the job.
        job: JobId,
    },
    /// The workload of a job exists again, or as much of it as the job still needs.
    #[serde(alias = "gathered")]
    WorkloadReady {
        /// Number of the job.
        job: JobId,
        /// What it requests now: only GPUs, CPU, memory and node constraint are used.
        #[serde(default, alias = "now", skip_serializing_if = "Option::is_none")]
        request: Option<Arc<JobRequest>>,
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
    /// A job was cancelled.
    Cancelled {
        /// Number of the job.
        job: JobId,
        /// User or rule that caused it.
        by: Actor,
    },
    /// A job was held.
    Held {
        /// Number of the job.
        job: JobId,
        /// User or rule that caused it.
        by: Actor,
    },
    /// A job was released.
    Released {
        /// Number of the job.
        job: JobId,
        /// User or rule that caused it.
        by: Actor,
    },
    /// The priority of a job was changed.
    Prioritized {
        /// Number of the job.
        job: JobId,
        /// The new priority.
        priority: i32,
        /// User or rule that caused it.
        by: Actor,
    },
    /// Jobs on which the next job depends have ended, as the history database has it.
    DependenciesEnded {
        /// How each of them ended.
        jobs: Vec<PastEnd>,
    },
    /// A label of a job was set or removed.
    Labelled {
        /// Number of the job.
        job: JobId,
        /// Key of the label.
        key: String,
        /// Value of the label; `None` removes it.
        value: Option<String>,
        /// User or rule that caused it.
        by: Actor,
    },
    /// A node joined, returned or changed.
    NodeJoined {
        /// Id of the node; the next free one for a new name.
        node: NodeId,
        /// Resources of the node.
        spec: Box<NodeSpec>,
        /// Type of its GPUs.
        gpu_type: String,
        /// Rack it is in.
        rack: String,
        /// Address at which other nodes reach it.
        address: String,
        /// Random number its agent drew at the first start.
        identity: u64,
    },
    /// A node was silent for longer than its lease; its agent has ended its tasks.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A node was drained: it gets no new jobs.
    NodeDrained {
        /// The node.
        node: NodeId,
        /// User or rule that drained it.
        by: Actor,
        /// Reason given.
        #[serde(alias = "why")]
        reason: String,
    },
    /// A drained node gets jobs again.
    NodeResumed {
        /// The node.
        node: NodeId,
        /// User or rule that caused it.
        by: Actor,
    },
    /// Part of a node is not available to jobs: used by others, or broken.
    #[serde(alias = "node_withheld")]
    NodeUnavailable {
        /// The node.
        node: NodeId,
        /// Number of GPUs.
        gpus: u32,
        /// CPU in milli-cores.
        cpu_milli: u32,
        /// Memory in MiB.
        memory_mib: u64,
    },
    /// The nodes of a node constraint were set.
    #[serde(alias = "fenced")]
    NodeConstraintSet {
        /// The node constraint.
        #[serde(alias = "fence")]
        constraint: NodeConstraintId,
        /// All nodes that satisfy it.
        nodes: Vec<NodeId>,
    },
    /// The processes of a task run.
    TaskStarted {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        #[serde(alias = "launch")]
        attempt: AttemptId,
        /// The node.
        node: NodeId,
        /// How its GPUs are shared with other jobs; empty if they are not.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        sharing: String,
        /// Remarks of the agent, such as an image that is not used.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remarks: Vec<String>,
    },
    /// An instance of a role has ended; other instances of the attempt may still run.
    InstanceEnded {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        #[serde(alias = "launch")]
        attempt: AttemptId,
        /// How it ended.
        end: InstanceEnd,
    },
    /// The processes of a task have ended.
    TaskEnded {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        #[serde(alias = "launch")]
        attempt: AttemptId,
        /// The node.
        node: NodeId,
        /// How it ended.
        end: Box<TaskEnd>,
    },
    /// A job reported its progress.
    Progressed {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        #[serde(alias = "launch")]
        attempt: AttemptId,
        /// Number of finished steps.
        step: u64,
        /// Number of steps in total; zero if unknown.
        total_steps: u64,
        /// Duration of one step.
        step_time: Time,
        /// The part of it that waited for data.
        #[serde(default, skip_serializing_if = "is_zero")]
        data_time: Time,
        /// Last step with a complete checkpoint.
        checkpoint_step: u64,
        /// What it reports about other stages, if it measures them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stages: Option<Box<StageReport>>,
    },
    /// When the processes of an attempt began to run, as its runtime recorded it.
    RunningSince {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        attempt: AttemptId,
        /// When all of them ran.
        since: Time,
    },
    /// A report of progress was found that the job made some time ago.
    Reported {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        attempt: AttemptId,
        /// When the job was that far.
        made: Time,
        /// How far it was.
        progress: Progress,
    },
    /// A job has reached its time limit.
    #[serde(alias = "time_is_up")]
    TimeLimitReached {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        #[serde(alias = "launch")]
        attempt: AttemptId,
    },
    /// An operator changed a setting of the scheduler.
    Operated {
        /// The change.
        #[serde(alias = "what")]
        action: OperatorAction,
        /// User or rule that caused it.
        by: Actor,
    },
    /// The time came at which the engine asked to be woken.
    Woke,
}

fn is_zero(span: &Time) -> bool {
    *span == Time::ZERO
}
