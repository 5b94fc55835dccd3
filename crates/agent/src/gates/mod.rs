//! Stage gates: jobs that share GPUs wait for one another before each stage of a step, so that one loads data while another
//! computes and a third one uses the network.
//!
//! [`StageGates`] is pure: it gets what happens, with the time, and returns what trainers are to be told. A *group* is the
//! set of running tasks that are connected through shared GPU slots. It has gates if it has two to four tasks, the stages
//! of all of them are known, and each has a trainer that understands gates. Agents of several nodes follow the same plan,
//! because it depends on the jobs alone.

mod group;
mod member;
mod period;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::stages::MOST_SHARERS;
use dovetail_model::{InterleavingTerms, StepStage};

use group::{GatedGroup, GroupKey, TaskRanks};

use crate::task::record::TaskId;

/// Microseconds since some fixed moment.
pub(crate) type Micros = u64;

/// How long a job is left out of the plan that held up others too often.
const LEFT_OUT: Micros = 60_000_000;

/// A running task, as far as gates depend on it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GateTask {
    pub(crate) id: TaskId,
    /// GPU slots of the node.
    pub(crate) slots: Vec<u32>,
    /// How its stages are interleaved with those of others, if they are to be.
    pub(crate) terms: Option<InterleavingTerms>,
    /// Connections of trainers that understand gates, by rank.
    pub(crate) trainers: BTreeMap<u32, u64>,
}

/// A trainer may begin a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Go {
    pub(crate) task: TaskId,
    pub(crate) rank: u32,
    pub(crate) stage: StepStage,
    pub(crate) step: u64,
}

/// What a trainer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateCommand {
    /// Wait at gates from the next step on, at most this long at each.
    On {
        task: TaskId,
        rank: u32,
        patience_ms: u64,
    },
    /// Do not wait at gates.
    Off { task: TaskId, rank: u32 },
    /// Begin a stage.
    Go(Go),
}

/// What happens to a trainer at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateEvent {
    /// It has come to the gate before a stage.
    Entered(StepStage),
    /// It has done a stage.
    Left(StepStage),
    /// It has done the step.
    Passed,
}

/// How the gates of a job are doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GateReport {
    pub(crate) planned_us: Micros,
    /// Zero if it was not measured yet.
    pub(crate) measured_us: Micros,
    /// Numbers of the other jobs of the group.
    pub(crate) partners: Vec<u64>,
}

/// The gates of all tasks of a node.
#[derive(Debug, Default)]
pub(crate) struct StageGates {
    groups: Vec<GatedGroup>,
    /// Connection and patience of the trainers that were told to wait at gates.
    told: BTreeMap<(TaskId, u32), (u64, u64)>,
    /// Tasks that are left out, and until when.
    left_out: BTreeMap<TaskId, Micros>,
}

impl StageGates {
    /// Adapts to the tasks that run now and are not stopping, and to their trainers.
    pub(crate) fn update(&mut self, now: Micros, tasks: &[GateTask]) -> Vec<GateCommand> {
        self.left_out
            .retain(|id, until| *until > now && tasks.iter().any(|task| task.id == *id));
        let mut commands = Vec::new();
        let mut keys = group_keys(tasks, &self.left_out);
        let (kept, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.groups)
            .into_iter()
            .partition(|group| keys.contains(&group.key));
        self.groups = kept;
        keys.retain(|key| self.groups.iter().all(|group| group.key != *key));
        let mut ranks = TaskRanks::new();
        for group in ended {
            let (going, of_group) = group.dissolve();
            commands.extend(going.into_iter().map(GateCommand::Go));
            ranks.extend(of_group);
        }
        for key in keys {
            let own = key
                .iter()
                .filter_map(|(task, _)| ranks.remove_entry(task))
                .collect();
            tracing::info!(jobs = ?key.iter().map(|(task, _)| task.job).collect::<Vec<_>>(), "stage gates are on");
            self.groups.extend(GatedGroup::new(key, own));
        }
        self.tell_trainers(now, tasks, &mut commands);
        commands
    }

    /// Tells trainers whether to wait at gates, and groups which trainers there are.
    fn tell_trainers(&mut self, now: Micros, tasks: &[GateTask], commands: &mut Vec<GateCommand>) {
        let mut wanted = BTreeMap::new();
        for group in &self.groups {
            let patience_ms = group.longest_wait_us() / 1_000;
            for task in tasks.iter().filter(|task| group.has(task.id)) {
                let trainers = task.trainers.iter();
                wanted.extend(
                    trainers.map(|(rank, connection)| ((task.id, *rank), (*connection, patience_ms))),
                );
            }
        }
        let before = std::mem::take(&mut self.told);
        for ((task, rank), (connection, _)) in &before {
            let is_new = |(now, _): &(u64, u64)| now != connection;
            if wanted.get(&(*task, *rank)).is_none_or(is_new) {
                let going = self
                    .group_mut(*task)
                    .map(|group| group.disconnect(now, *task, *rank));
                commands.extend(going.into_iter().flatten().map(GateCommand::Go));
                let is_connected = |t: &GateTask| t.id == *task && t.trainers.get(rank) == Some(connection);
                if tasks.iter().any(is_connected) {
                    commands.push(GateCommand::Off {
                        task: *task,
                        rank: *rank,
                    });
                }
            }
        }
        for ((task, rank), (connection, patience_ms)) in &wanted {
            let known = before.get(&(*task, *rank));
            if known.is_none_or(|(before, _)| before != connection)
                && let Some(group) = self.group_mut(*task)
            {
                group.connect(*task, *rank);
            }
            if known != Some(&(*connection, *patience_ms)) {
                commands.push(GateCommand::On {
                    task: *task,
                    rank: *rank,
                    patience_ms: *patience_ms,
                });
            }
        }
        self.told = wanted;
    }

    fn group_mut(&mut self, task: TaskId) -> Option<&mut GatedGroup> {
        self.groups.iter_mut().find(|group| group.has(task))
    }

    /// Handles what happens to a trainer at a gate. One that was told to wait no more, and asks all the same, may proceed.
    pub(crate) fn handle(
        &mut self,
        now: Micros,
        task: TaskId,
        rank: u32,
        step: u64,
        event: GateEvent,
    ) -> Vec<GateCommand> {
        let is_told = self.told.contains_key(&(task, rank));
        let group = self.group_mut(task).filter(|_| is_told);
        let going = match (group, event) {
            (Some(group), GateEvent::Entered(stage)) => group.enter(now, task, rank, (stage, step)),
            (Some(group), GateEvent::Left(stage)) => group.leave(now, task, rank, (stage, step)),
            (Some(group), GateEvent::Passed) => group.pass(now, task, rank, step),
            (None, GateEvent::Entered(stage)) => vec![Go {
                task,
                rank,
                stage,
                step,
            }],
            (None, GateEvent::Left(_) | GateEvent::Passed) => Vec::new(),
        };
        going.into_iter().map(GateCommand::Go).collect()
    }

    /// Returns when [`StageGates::tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Micros> {
        let stalls = self.groups.iter().filter_map(GatedGroup::next_deadline);
        stalls.chain(self.left_out.values().copied()).min()
    }

    /// Lets trainers proceed that have waited for a stalled job. Returns whether [`StageGates::update`] is due, because a job
    /// is left out of its group from now on, or no longer.
    pub(crate) fn tick(&mut self, now: Micros) -> (Vec<GateCommand>, bool) {
        let mut commands = Vec::new();
        let mut is_due = self.left_out.values().any(|until| *until <= now);
        for group in &mut self.groups {
            let (going, stalled) = group.skip_stalled(now);
            commands.extend(going.into_iter().map(GateCommand::Go));
            is_due |= !stalled.is_empty();
            self.left_out
                .extend(stalled.into_iter().map(|task| (task, now + LEFT_OUT)));
        }
        (commands, is_due)
    }

    /// Returns how the gates of a job are doing; none unless they are in force.
    pub(crate) fn report(&self, task: TaskId) -> Option<GateReport> {
        let group = self.groups.iter().find(|group| group.is_in_force(task))?;
        let others = group.key.iter().filter(|(other, _)| *other != task);
        Some(GateReport {
            planned_us: group.planned_us(),
            measured_us: group.measured_us().unwrap_or(0),
            partners: others.map(|(other, _)| other.job).collect(),
        })
    }
}

/// Returns the groups that can have gates: the tasks that are connected through shared slots, except those left out.
fn group_keys(tasks: &[GateTask], left_out: &BTreeMap<TaskId, Micros>) -> Vec<GroupKey> {
    let mut open: Vec<&GateTask> = tasks
        .iter()
        .filter(|task| !left_out.contains_key(&task.id))
        .collect();
    open.sort_unstable_by_key(|task| task.id);
    let mut keys = Vec::new();
    while let Some(first) = open.first().copied() {
        let mut slots: BTreeSet<u32> = first.slots.iter().copied().collect();
        let mut members: Vec<&GateTask> = Vec::new();
        loop {
            let (near, far): (Vec<&GateTask>, Vec<&GateTask>) = open
                .iter()
                .partition(|task| task.id == first.id || task.slots.iter().any(|slot| slots.contains(slot)));
            open = far;
            if near.is_empty() {
                break;
            }
            slots.extend(near.iter().flat_map(|task| &task.slots));
            members.extend(near);
        }
        members.sort_unstable_by_key(|task| task.id);
        let can_wait = |task: &&GateTask| (!task.trainers.is_empty()).then_some((task.id, task.terms?));
        if (2..=MOST_SHARERS).contains(&members.len())
            && let Some(key) = members.iter().map(can_wait).collect::<Option<GroupKey>>()
        {
            keys.push(key);
        }
    }
    keys
}
