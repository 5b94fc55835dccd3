//! The gates of one group of jobs, which follow a plan of phases.
//!
//! A trainer waits before a stage until the phase before it has ended, and a phase ends when all stages that end in it have
//! been left. No member waits without a limit: a member that could have done a stage and has not, while another one waits, steps
//! outside the plan until its next step.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::{InterleavingTerms, PhasePlan, StepStage};

use super::member::{Member, Participation, RankProgress, STAGES};
use super::period::PeriodMeter;
use super::{Go, Micros};
use crate::task::record::TaskId;

/// Stalls in a row after which a member is left out of the plan.
const MAX_STALLS: u32 = 3;

/// The jobs of a group, with what their plan depends on.
pub(super) type GroupKey = Vec<(TaskId, InterleavingTerms)>;

/// Where the trainers of jobs are, by rank.
pub(super) type TaskRanks = BTreeMap<TaskId, BTreeMap<u32, RankProgress>>;

/// Which phases have ended.
#[derive(Debug, Clone)]
struct Timeline {
    /// The first phase that has not ended.
    first: u64,
    /// Later ones that have ended.
    ahead: BTreeSet<u64>,
}

impl Timeline {
    fn has_ended(&self, phase: u64) -> bool {
        phase < self.first || self.ahead.contains(&phase)
    }

    /// Returns the first phase behind all that have ended.
    fn top(&self) -> u64 {
        self.ahead.last().map_or(self.first, |last| last + 1)
    }
}

/// Jobs that share GPUs and follow a plan.
#[derive(Debug, Clone)]
pub(super) struct GatedGroup {
    pub(super) key: GroupKey,
    plan: PhasePlan,
    members: Vec<Member>,
    timeline: Timeline,
    meter: PeriodMeter,
}

impl GatedGroup {
    /// Creates the group of these jobs, whose trainers are where `ranks` says; none if there is no plan for them.
    pub(super) fn new(key: GroupKey, mut ranks: TaskRanks) -> Option<Self> {
        let jobs: Vec<_> = key.iter().map(|(task, terms)| (task.job, terms.stages)).collect();
        // Jobs that were started under different settings use the shortest period.
        let ordering = key.iter().map(|(_, terms)| terms.ordering).min()?;
        let plan = PhasePlan::new(&jobs, ordering)?;
        let member = |planned: &dovetail_model::phase_plan::PlannedMember| {
            let (task, _) = key.iter().find(|(task, _)| task.job == planned.id)?;
            Some(Member::new(
                *task,
                planned,
                ranks.remove(task).unwrap_or_default(),
            ))
        };
        Some(Self {
            members: plan.members().iter().map(member).collect::<Option<_>>()?,
            timeline: Timeline {
                first: u64::from(plan.phases()),
                ahead: BTreeSet::new(),
            },
            meter: PeriodMeter::default(),
            key,
            plan,
        })
    }

    fn cycle(&self) -> u64 {
        u64::from(self.plan.phases())
    }

    fn member_mut(&mut self, task: TaskId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.task == task)
    }

    /// Returns whether a job is a member.
    pub(super) fn has(&self, task: TaskId) -> bool {
        self.members.iter().any(|member| member.task == task)
    }

    /// Returns the planned period.
    pub(super) fn planned_us(&self) -> Micros {
        self.plan.period_us() as Micros
    }

    /// Returns the measured period, once there were enough cycles.
    pub(super) fn measured_us(&self) -> Option<Micros> {
        self.meter.period_us()
    }

    /// Returns whether a job has come to a gate of this group.
    pub(super) fn is_in_force(&self, task: TaskId) -> bool {
        let member = self.members.iter().find(|member| member.task == task);
        member.is_some_and(|m| m.ranks.values().any(|rank| rank.has_come))
    }

    /// Returns the longest time that a trainer waits at a gate: as long as others may hold up each phase of a cycle, and the
    /// one that was under way when it came.
    pub(super) fn longest_wait_us(&self) -> Micros {
        let bounds = self.members.iter().map(Member::longest_bound_us);
        bounds.max().unwrap_or(0) * (self.cycle() + 1)
    }

    /// Adds a trainer. Others wait for it from its next step on.
    pub(super) fn connect(&mut self, task: TaskId, rank: u32) {
        if let Some(member) = self.member_mut(task) {
            member.ranks.insert(rank, RankProgress::default());
        }
    }

    /// Removes a trainer.
    pub(super) fn disconnect(&mut self, now: Micros, task: TaskId, rank: u32) -> Vec<Go> {
        if let Some(member) = self.member_mut(task) {
            member.ranks.remove(&rank);
            if !member.ranks.values().any(|rank| rank.has_come) {
                member.step_outside();
                self.meter.interrupt();
            }
        }
        self.advance(now)
    }

    /// A trainer has come to the gate before a stage.
    pub(super) fn enter(
        &mut self,
        now: Micros,
        task: TaskId,
        rank: u32,
        (stage, step): (StepStage, u64),
    ) -> Vec<Go> {
        let (next_phase, cycle) = (self.timeline.top() + 1, self.cycle());
        let at_once = vec![Go {
            task,
            rank,
            stage,
            step,
        }];
        let Some(member) = self.member_mut(task) else {
            return at_once;
        };
        let has_to_wait = member.enter(rank, stage, step);
        if !has_to_wait {
            return at_once;
        }
        if member.participation == Participation::Outside {
            member.join(stage, next_phase, cycle);
            self.meter.interrupt();
        }
        self.advance(now)
    }

    /// A trainer has done a stage.
    pub(super) fn leave(
        &mut self,
        now: Micros,
        task: TaskId,
        rank: u32,
        (stage, step): (StepStage, u64),
    ) -> Vec<Go> {
        if let Some(member) = self.member_mut(task) {
            member.leave(rank, stage.index() + 1, step);
        }
        self.advance(now)
    }

    /// A trainer has done a step: no further stage of it comes.
    pub(super) fn pass(&mut self, now: Micros, task: TaskId, rank: u32, step: u64) -> Vec<Go> {
        if let Some(member) = self.member_mut(task) {
            member.leave(rank, STAGES, step);
        }
        self.advance(now)
    }

    /// Ends phases and steps as far as possible, and returns the trainers that may proceed.
    fn advance(&mut self, now: Micros) -> Vec<Go> {
        let cycle = self.cycle();
        loop {
            let mut is_changed = self.end_phases(now);
            for member in &mut self.members {
                is_changed |= member.finish_step(cycle);
            }
            if !is_changed {
                break;
            }
        }
        let mut going = Vec::new();
        for member in &mut self.members {
            let task = member.task;
            let opened = member.open(now, |phase| self.timeline.has_ended(phase));
            going.extend(opened.into_iter().map(|(rank, stage, step)| Go {
                task,
                rank,
                stage,
                step,
            }));
        }
        going
    }

    /// Ends all phases that nothing holds up. Returns whether there was one.
    fn end_phases(&mut self, now: Micros) -> bool {
        if !self.members.iter().any(Member::is_inside) {
            return false;
        }
        let mut has_ended = false;
        let mut phase = self.timeline.first;
        while phase < self.timeline.first + 2 * self.cycle() {
            if !self.timeline.has_ended(phase) && self.is_complete(phase) {
                self.timeline.ahead.insert(phase);
                has_ended = true;
                self.close_phases(now);
            }
            phase += 1;
        }
        has_ended
    }

    /// Returns whether a phase ends: no stage that ends in it is still to be done. One in which no stage ends follows the
    /// one before.
    fn is_complete(&self, phase: u64) -> bool {
        let cycle = self.cycle();
        let mut held_up = self
            .members
            .iter()
            .filter_map(|member| member.holds_up(phase, cycle));
        match held_up.next() {
            None => self.timeline.has_ended(phase - 1),
            Some(first) => !first && !held_up.any(|is_held_up| is_held_up),
        }
    }

    /// Removes the phases from the list that have ended one after the other, and measures whole cycles.
    fn close_phases(&mut self, now: Micros) {
        while self.timeline.ahead.remove(&self.timeline.first) {
            self.timeline.first += 1;
            if self.timeline.first.is_multiple_of(self.cycle()) {
                let are_all_inside = self.members.iter().all(Member::is_inside);
                self.meter.end_cycle(now, are_all_inside);
            }
        }
    }

    /// Returns when a member has held up others for too long, if one waits.
    pub(super) fn next_deadline(&self) -> Option<Micros> {
        let is_waiting = self.members.iter().any(Member::is_waiting);
        let deadlines = self.members.iter().filter_map(Member::deadline);
        deadlines.min().filter(|_| is_waiting)
    }

    /// Lets members step outside that have held up others for too long. Returns the trainers that may proceed, and the jobs
    /// that did so too often.
    pub(super) fn skip_stalled(&mut self, now: Micros) -> (Vec<Go>, Vec<TaskId>) {
        let (mut going, mut left_out) = (Vec::new(), Vec::new());
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            for member in &mut self.members {
                if member.deadline().is_none_or(|deadline| deadline > now) {
                    continue;
                }
                let task = member.task;
                let released = member.step_outside().into_iter();
                going.extend(released.map(|(rank, stage, step)| Go {
                    task,
                    rank,
                    stage,
                    step,
                }));
                member.stalls += 1;
                tracing::info!(%task, stalls = member.stalls, "a job holds up others at its stage gates");
                if member.stalls >= MAX_STALLS {
                    left_out.push(task);
                }
            }
            self.meter.interrupt();
            going.extend(self.advance(now));
        }
        (going, left_out)
    }

    /// Ends the group. Returns the trainers that may proceed, and where all of them are.
    pub(super) fn dissolve(mut self) -> (Vec<Go>, TaskRanks) {
        let mut going = Vec::new();
        let mut ranks = TaskRanks::new();
        for member in &mut self.members {
            let task = member.task;
            let released = member.step_outside().into_iter();
            going.extend(released.map(|(rank, stage, step)| Go {
                task,
                rank,
                stage,
                step,
            }));
            ranks.insert(task, std::mem::take(&mut member.ranks));
        }
        (going, ranks)
    }
}
