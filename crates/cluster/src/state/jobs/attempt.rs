//! Attempts: one run of a job from launch to end.

use dovetail_model::{Allocation, AttemptKey, InterleavingTerms, NodeId, Time};
use serde::{Deserialize, Serialize};

use super::Cause;
use super::restart_cost::Restart;
use crate::AttemptId;
use crate::fact::{InstanceEnd, TaskEnd};
use crate::stage_report::{GateReport, StageReport};
use crate::state::trials::CpuTrial;

/// State of the task of an attempt on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Its agent was told to start it.
    Starting,
    /// Its processes run.
    Running,
    /// Its processes have ended.
    Ended(Box<TaskEnd>),
}

impl TaskState {
    /// Returns whether the task has ended.
    pub(in crate::state) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// All processes succeeded.
    Completed,
    /// It was stopped.
    Stopped(Cause),
    /// It failed.
    Failed(String),
}

/// One run of a job from launch to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Number of the attempt.
    #[serde(alias = "launch")]
    pub id: AttemptId,
    /// The engine's handle of the attempt.
    #[serde(alias = "generation")]
    pub(in crate::state) key: AttemptKey,
    /// When it got its GPUs.
    pub since: Time,
    /// When all its processes ran.
    pub running_since: Option<Time>,
    /// When the last process ended.
    pub until: Option<Time>,
    /// What it holds.
    pub allocation: Allocation,
    /// Its task on each node of the allocation, in the same order.
    pub tasks: Vec<TaskState>,
    /// Why it was told to stop, if it was.
    pub cause: Option<Cause>,
    /// When it was told to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_to_stop: Option<Time>,
    /// How its GPUs are shared with other jobs; empty if they are not.
    pub sharing: String,
    /// How its stages are interleaved with those of jobs on the same GPUs, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaving: Option<InterleavingTerms>,
    /// What it reported last about the stages of its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Box<StageReport>>,
    /// Whether its CPU and memory were changed while it ran.
    #[serde(default)]
    pub(in crate::state) resized: bool,
    /// When its CPU and memory were changed last, and after which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::state) limits_changed: Option<(Time, u64)>,
    /// The CPU it is measured with at the moment, if that is not what it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<CpuTrial>,
    /// CPU per GPU that it was measured with, in milli-cores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::state) tried: Vec<u32>,
    /// The restart that began it, until its first new step is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::state) restart: Option<Restart>,
    /// Instances of its roles that have ended, in the order in which they did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<InstanceEnd>,
    /// What the completion rules of its roles decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Remarks of its agents, such as an image that was not used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// How it ended.
    pub end: Option<AttemptEnd>,
}

/// What the completion rules of a job's roles decided about an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Enough instances of this role have succeeded.
    Succeeded(String),
    /// Too many instances of this role have failed; the end of the last one.
    Failed(String, InstanceEnd),
}

/// Time and steps after a change of CPU until measured steps count.
const SETTLING_TIME: Time = Time::from_secs(1);
const SETTLING_STEPS: u64 = 4;
/// The same where trainers do not know of the change: they report averages of about eight steps, and the new CPU may come some
/// seconds after the command.
const LONG_SETTLING_TIME: Time = Time::from_secs(30);
const LONG_SETTLING_STEPS: u64 = 40;

impl Attempt {
    /// Returns how long it counts as service of its job: as in the engine, up to when the scheduler told it to stop.
    pub(crate) fn service(&self, now: Time) -> Time {
        let until = self.stopped_by_scheduler().or(self.until);
        until.unwrap_or(now).since(self.since)
    }

    /// Returns the time from the scheduler's request to stop until its GPUs were vacated, if it was stopped.
    pub(crate) fn stop_cost(&self) -> Option<Time> {
        Some(self.until?.since(self.stopped_by_scheduler()?))
    }

    /// Returns when the scheduler told it to stop, if it did.
    pub(in crate::state) fn stopped_by_scheduler(&self) -> Option<Time> {
        let by_others = matches!(
            self.cause,
            None | Some(Cause::TimeLimit | Cause::Failed | Cause::Platform(_))
        );
        self.told_to_stop.filter(|_| !by_others)
    }

    /// Creates an attempt that has just got its GPUs.
    pub(in crate::state) fn new(id: AttemptId, key: AttemptKey, since: Time, allocation: Allocation) -> Self {
        Self {
            id,
            key,
            since,
            running_since: None,
            until: None,
            tasks: vec![TaskState::Starting; allocation.shares.len()],
            allocation,
            cause: None,
            told_to_stop: None,
            sharing: String::new(),
            interleaving: None,
            stages: None,
            resized: false,
            limits_changed: None,
            trial: None,
            tried: Vec::new(),
            restart: None,
            ends: Vec::new(),
            verdict: None,
            remarks: Vec::new(),
            end: None,
        }
    }

    /// Returns the CPU per GPU that the engine gave it, in milli-cores.
    pub(in crate::state) fn cpu_milli_per_gpu(&self) -> u32 {
        let shares = self.allocation.shares.iter();
        let cpu_milli: u64 = shares.map(|share| u64::from(share.cpu_milli)).sum();
        u32::try_from(cpu_milli / u64::from(self.allocation.gpus().max(1))).unwrap_or(u32::MAX)
    }

    /// Returns the CPU that it has on one of its nodes now, in milli-cores.
    pub fn cpu_milli_at(&self, place: usize) -> u32 {
        let share = &self.allocation.shares[place];
        self.trial.as_ref().map_or(share.cpu_milli, |trial| {
            trial.cpu_milli_per_gpu.saturating_mul(share.gpus.count())
        })
    }

    /// Returns whether steps reported now were all made with the CPU that it has. Trainers that know of changes measure from
    /// the last one on.
    pub(in crate::state) fn has_settled(&self, now: Time, step: u64, knows_of_changes: bool) -> bool {
        let (time, steps) = match knows_of_changes {
            true => (SETTLING_TIME, SETTLING_STEPS),
            false => (LONG_SETTLING_TIME, LONG_SETTLING_STEPS),
        };
        self.limits_changed
            .is_none_or(|(at, before)| now.since(at) >= time && step >= before.saturating_add(steps))
    }

    /// Returns how stage gates interleave its stages with those of others, if they did when it last reported.
    pub fn gates(&self) -> Option<&GateReport> {
        self.stages.as_ref()?.gates.as_ref()
    }

    /// Returns whether this is the attempt with that number and has not ended.
    pub(in crate::state) fn is_open(&self, attempt_id: AttemptId) -> bool {
        self.id == attempt_id && self.end.is_none()
    }

    /// Returns the position of a node in the allocation.
    pub(in crate::state) fn place_of(&self, node: NodeId) -> Option<usize> {
        self.allocation.shares.iter().position(|share| share.node == node)
    }

    /// Returns the nodes on which tasks have not ended.
    pub(in crate::state) fn live_nodes(&self) -> Vec<NodeId> {
        let tasks = self.tasks.iter().zip(&self.allocation.shares);
        tasks
            .filter(|(task, _)| !task.has_ended())
            .map(|(_, share)| share.node)
            .collect()
    }

    /// Marks the task on a node as running. Returns whether it was starting before.
    pub(in crate::state) fn start_task(&mut self, node: NodeId, sharing: &str, remarks: &[String]) -> bool {
        let Some(place) = self.place_of(node) else {
            return false;
        };
        if self.tasks[place] != TaskState::Starting {
            return false;
        }
        self.tasks[place] = TaskState::Running;
        for remark in remarks {
            if !self.remarks.contains(remark) {
                self.remarks.push(remark.clone());
            }
        }
        if !sharing.is_empty() {
            sharing.clone_into(&mut self.sharing);
        }
        true
    }

    /// Marks the task on a node as ended. Returns whether it had not ended before.
    pub(in crate::state) fn end_task(&mut self, node: NodeId, end: &TaskEnd) -> bool {
        let Some(place) = self.place_of(node) else {
            return false;
        };
        if self.tasks[place].has_ended() {
            return false;
        }
        self.tasks[place] = TaskState::Ended(Box::new(end.clone()));
        true
    }

    /// Returns whether all tasks have ended.
    pub(in crate::state) fn all_tasks_ended(&self) -> bool {
        self.tasks.iter().all(TaskState::has_ended)
    }

    /// Returns the ends of all tasks, in the order of the allocation.
    pub(in crate::state) fn task_ends(&self) -> Vec<TaskEnd> {
        let end = |task: &TaskState| match task {
            TaskState::Ended(end) => (**end).clone(),
            TaskState::Starting | TaskState::Running => TaskEnd::default(),
        };
        self.tasks.iter().map(end).collect()
    }
}
