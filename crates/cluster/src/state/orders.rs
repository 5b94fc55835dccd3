//! What agents are told. Orders follow from the book, so that they can be given again to an agent that comes back.

use std::collections::BTreeMap;

use dovetail_model::{NodeId, NodeShare};
use serde::{Deserialize, Serialize};

use super::{Attempt, ClusterState, JobRecord, TaskState};
use crate::fact::{Fact, TaskEnd};
use crate::{AttemptId, JobId};

/// One node of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPeer {
    /// Its name.
    pub node: String,
    /// Where others reach it.
    pub address: String,
    /// GPU slots of the gang there.
    pub gpus: Vec<u32>,
}

/// All an agent needs to start a task, beside the job's request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartTask {
    /// The job.
    pub job: JobId,
    /// The launch.
    pub attempt: AttemptId,
    /// What was asked for, and by whom.
    pub request: Box<crate::JobRequest>,
    /// Who sent it.
    pub user: String,
    /// What it holds on this node.
    pub share: NodeShare,
    /// This node's place in the gang.
    pub node_rank: u32,
    /// GPUs on the nodes before it.
    pub first_rank: u32,
    /// The whole gang.
    pub peers: Vec<TaskPeer>,
    /// A port for the gang to meet at on its first node.
    pub master_port: u16,
    /// The last step whose checkpoint is whole.
    pub resume_step: u64,
    /// Whether others may be on the same GPUs.
    pub shared: bool,
    /// Instances of the job's roles on this node, ready to be started; none for a job without roles.
    pub instances: Vec<StartInstance>,
}

/// An instance of a role, ready to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartInstance {
    /// Its role.
    pub role: String,
    /// Which of its instances.
    pub index: u32,
    /// Its place among all instances of the job.
    pub rank: u32,
    /// What it runs.
    pub command: Vec<String>,
    /// Its own variables.
    pub env: BTreeMap<String, String>,
    /// GPU slots on this node.
    pub gpus: Vec<u32>,
    /// Ports it may use.
    pub ports: Vec<u16>,
    /// CPU, in milli-cores.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// The container image, if it has one.
    pub image: Option<String>,
    /// Size of `/dev/shm` in the container, in MiB.
    pub shm_mib: u64,
}

/// What an agent is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RuntimeCommand {
    /// Start this, unless it was started already.
    Start(Box<StartTask>),
    /// Stop this, with notice or at once.
    Stop {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
        /// Why, in a word.
        reason: String,
        /// Without notice.
        kill: bool,
    },
    /// Give this other CPU and memory while it runs.
    Resize {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
        /// CPU on this node.
        cpu_milli: u32,
        /// Memory on this node.
        memory_mib: u64,
    },
}

/// Ports at which gangs meet: above those that systems give out by default on Linux.
const PORTS: std::ops::Range<u64> = 61_000..65_000;

impl ClusterState {
    pub(super) fn order(&mut self, node: NodeId, order: RuntimeCommand) {
        self.orders.push((node, order));
    }

    /// The order that starts the task of the job's last launch on one of its nodes.
    pub(super) fn start_order(&self, record: &JobRecord, attempt: &Attempt, place: usize) -> RuntimeCommand {
        let shares = &attempt.allocation.shares;
        let peer = |share: &NodeShare| {
            let node = &self.nodes[share.node];
            TaskPeer {
                node: node.spec.name.clone(),
                address: node.address.clone(),
                gpus: share.gpus.iter().collect(),
            }
        };
        let master_port = (PORTS.start + (record.id * 31 + attempt.id) % (PORTS.end - PORTS.start)) as u16;
        let before = shares[..place].iter().map(|s| s.gpus.count()).sum();
        RuntimeCommand::Start(Box::new(StartTask {
            job: record.id,
            attempt: attempt.id,
            request: record.request.clone(),
            user: record.user.clone(),
            share: shares[place].clone(),
            node_rank: place as u32,
            first_rank: before,
            peers: shares.iter().map(peer).collect(),
            master_port,
            resume_step: record.progress.checkpoint,
            shared: self.engine.policy().grouping.shares(),
            instances: self.instances_on(record, attempt, place),
        }))
    }

    pub(super) fn stop_order(job: JobId, attempt_id: AttemptId, reason: &str, kill: bool) -> RuntimeCommand {
        RuntimeCommand::Stop {
            job,
            attempt: attempt_id,
            reason: reason.to_owned(),
            kill,
        }
    }

    pub(super) fn resize_order(job: JobId, attempt: &Attempt, place: usize) -> RuntimeCommand {
        let share = &attempt.allocation.shares[place];
        RuntimeCommand::Resize {
            job,
            attempt: attempt.id,
            cpu_milli: share.cpu_milli,
            memory_mib: share.memory_mib,
        }
    }

    /// All orders that stand for a node, for an agent that has just come back.
    pub fn commands_for(&self, node: NodeId) -> Vec<RuntimeCommand> {
        let mut orders = Vec::new();
        for (record, attempt, place) in self.tasks_on(node) {
            match attempt.tasks[place] {
                TaskState::Starting => orders.push(self.start_order(record, attempt, place)),
                TaskState::Running if attempt.resized => {
                    orders.push(Self::resize_order(record.id, attempt, place));
                }
                TaskState::Running | TaskState::Ended(_) => {}
            }
            if attempt.cause.is_none() && self.only_holds(record.id, attempt.id) {
                orders.push(Self::stop_order(record.id, attempt.id, "done", false));
            }
            if let Some(cause) = &attempt.cause {
                orders.push(Self::stop_order(record.id, attempt.id, cause.word(), false));
            }
        }
        orders
    }

    /// What must have happened on a node, given what runs there now: tasks that ran and are not there have been lost.
    /// To be asked when the agent has told everything it kept while it was away.
    pub fn reconcile(&self, node: NodeId, running: &[(JobId, AttemptId)]) -> Vec<Fact> {
        let tasks = self.tasks_on(node).into_iter();
        tasks
            .filter(|(job, attempt, place)| {
                attempt.tasks[*place] == TaskState::Running && !running.contains(&(job.id, attempt.id))
            })
            .map(|(job, attempt, _)| Fact::TaskEnded {
                job: job.id,
                attempt: attempt.id,
                node,
                end: Box::new(TaskEnd {
                    platform_error: Some("its agent does not know of it any more".to_owned()),
                    ..TaskEnd::default()
                }),
            })
            .collect()
    }

    /// Tasks on a node that have not ended, with the launch and the place in its allocation.
    pub fn tasks_on(&self, node: NodeId) -> Vec<(&JobRecord, &Attempt, usize)> {
        let up = self.up.iter().map(|no| &self.jobs[no]);
        up.filter_map(|job| {
            let attempt = job.attempt()?;
            let place = attempt.allocation.shares.iter().position(|s| s.node == node)?;
            let lives = attempt.end.is_none() && !matches!(attempt.tasks[place], TaskState::Ended(_));
            lives.then_some((job, attempt, place))
        })
        .collect()
    }
}
