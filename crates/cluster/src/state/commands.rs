//! Commands to agents. They follow from the state, so they can be sent again to an agent that reconnects.

use std::collections::BTreeMap;

use dovetail_model::{InterleavingTerms, NodeId, NodeShare};
use serde::{Deserialize, Serialize};

use super::attempts::{DONE, instances};
use super::jobs::{Attempt, JobRecord, JobTable, TaskState};
use super::nodes::NodeTable;
use crate::fact::{Fact, TaskEnd};
use crate::{AttemptId, JobId};

/// A node of a gang, as its other nodes see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPeer {
    /// Name of the node.
    pub node: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// GPU slots of the gang on this node.
    pub gpus: Vec<u32>,
}

/// Everything an agent needs to start a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartTask {
    /// Number of the job.
    pub job: JobId,
    /// Number of the attempt.
    pub attempt: AttemptId,
    /// What was requested.
    pub request: std::sync::Arc<crate::JobRequest>,
    /// User who submitted the job.
    pub user: String,
    /// What the job holds on this node.
    pub share: NodeShare,
    /// Rank of this node in the gang.
    pub node_rank: u32,
    /// Number of GPUs of the gang on nodes of lower rank.
    pub first_rank: u32,
    /// All nodes of the gang.
    pub peers: Vec<TaskPeer>,
    /// Rendezvous port on the first node.
    pub master_port: u16,
    /// Last step with a complete checkpoint.
    pub resume_step: u64,
    /// Whether other jobs may share the GPUs.
    pub shared: bool,
    /// How to interleave its stages with those of jobs on the same GPUs, if they are to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaving: Option<InterleavingTerms>,
    /// Instances of the job's roles on this node; empty for a job without roles.
    pub instances: Vec<StartInstance>,
}

/// An instance of a role, ready to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartInstance {
    /// Name of the role.
    pub role: String,
    /// Index among the instances of the role.
    pub index: u32,
    /// Index among all instances of the job.
    pub rank: u32,
    /// Command and arguments.
    pub command: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// GPU slots on this node.
    pub gpus: Vec<u32>,
    /// Ports reserved for it.
    pub ports: Vec<u16>,
    /// CPU in milli-cores.
    pub cpu_milli: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Container image, if any.
    pub image: Option<String>,
    /// Size of `/dev/shm` in the container in MiB.
    pub shm_mib: u64,
}

/// A command to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RuntimeCommand {
    /// Start a task, unless it was started already.
    Start(Box<StartTask>),
    /// Stop a task.
    Stop {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        attempt: AttemptId,
        /// Keyword of the reason.
        reason: String,
        /// Kill it without a grace period.
        kill: bool,
    },
    /// Change the CPU and memory of a running task.
    Resize {
        /// Number of the job.
        job: JobId,
        /// Number of the attempt.
        attempt: AttemptId,
        /// CPU on this node in milli-cores.
        cpu_milli: u32,
        /// Memory on this node in MiB.
        memory_mib: u64,
    },
}

/// Range of rendezvous ports, above the default ephemeral ports of Linux.
const RENDEZVOUS_PORTS: std::ops::Range<u64> = 61_000..65_000;

/// Returns the command that starts the task of an attempt on one of its nodes.
pub(super) fn start(
    nodes: &NodeTable,
    is_shared: bool,
    record: &JobRecord,
    attempt: &Attempt,
    place: usize,
) -> RuntimeCommand {
    let shares = &attempt.allocation.shares;
    let peer = |share: &NodeShare| {
        let node = nodes.known(share.node);
        TaskPeer {
            node: node.spec.name.clone(),
            address: node.address.clone(),
            gpus: share.gpus.iter().collect(),
        }
    };
    let ports = RENDEZVOUS_PORTS.end - RENDEZVOUS_PORTS.start;
    let master_port = RENDEZVOUS_PORTS.start + (record.id * 31 + attempt.id) % ports;
    RuntimeCommand::Start(Box::new(StartTask {
        job: record.id,
        attempt: attempt.id,
        request: record.request.clone(),
        user: record.user.clone(),
        share: shares[place].clone(),
        node_rank: place as u32,
        first_rank: shares[..place].iter().map(|s| s.gpus.count()).sum(),
        peers: shares.iter().map(peer).collect(),
        master_port: master_port as u16,
        resume_step: record.progress.checkpoint,
        shared: is_shared,
        interleaving: attempt.interleaving,
        instances: instances::instances_on(nodes, record, attempt, place),
    }))
}

/// Returns the command that stops a task with its grace period.
pub(super) fn stop(job: JobId, attempt_id: AttemptId, reason: &str) -> RuntimeCommand {
    RuntimeCommand::Stop {
        job,
        attempt: attempt_id,
        reason: reason.to_owned(),
        kill: false,
    }
}

/// Returns the command that sets the CPU and memory of a task.
pub(super) fn resize(job: JobId, attempt: &Attempt, place: usize) -> RuntimeCommand {
    let share = &attempt.allocation.shares[place];
    RuntimeCommand::Resize {
        job,
        attempt: attempt.id,
        cpu_milli: attempt.cpu_milli_at(place),
        memory_mib: share.memory_mib,
    }
}

/// Returns the tasks on a node that have not ended, with the attempt and the position of the node in its allocation.
pub(super) fn tasks_on(jobs: &JobTable, node: NodeId) -> Vec<(&JobRecord, &Attempt, usize)> {
    let task = |job| {
        let attempt = JobRecord::attempt(job)?;
        let place = attempt.place_of(node)?;
        let is_live = attempt.end.is_none() && !attempt.tasks[place].has_ended();
        is_live.then_some((job, attempt, place))
    };
    jobs.active().filter_map(task).collect()
}

/// Returns all commands that an agent has to get when it reconnects.
pub(super) fn for_node(
    jobs: &JobTable,
    nodes: &NodeTable,
    is_shared: bool,
    node: NodeId,
) -> Vec<RuntimeCommand> {
    let mut commands = Vec::new();
    for (record, attempt, place) in tasks_on(jobs, node) {
        match attempt.tasks[place] {
            TaskState::Starting => commands.push(start(nodes, is_shared, record, attempt, place)),
            TaskState::Running if attempt.resized => commands.push(resize(record.id, attempt, place)),
            TaskState::Running | TaskState::Ended(_) => {}
        }
        match &attempt.cause {
            Some(cause) => commands.push(stop(record.id, attempt.id, cause.word())),
            None if record.only_holds_nodes(attempt.id) => commands.push(stop(record.id, attempt.id, DONE)),
            None => {}
        }
    }
    commands
}

/// Returns the ends of tasks that should run on a node and do not. The agent must have sent all facts it kept before.
pub(super) fn lost_tasks(jobs: &JobTable, node: NodeId, running: &[(JobId, AttemptId)]) -> Vec<Fact> {
    let tasks = tasks_on(jobs, node).into_iter();
    let lost = tasks.filter(|(job, attempt, place)| {
        attempt.tasks[*place] == TaskState::Running && !running.contains(&(job.id, attempt.id))
    });
    lost.map(|(job, attempt, _)| Fact::TaskEnded {
        job: job.id,
        attempt: attempt.id,
        node,
        end: Box::new(TaskEnd {
            platform_error: Some("lost: its agent does not know the task any more".to_owned()),
            ..TaskEnd::default()
        }),
    })
    .collect()
}
