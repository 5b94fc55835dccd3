//! A job of a gated group: where its trainers are in their steps, and which cycle of the plan they take part in.

use std::collections::BTreeMap;

use dovetail_model::StepStage;
use dovetail_model::phase_plan::{PlannedMember, StageWindow};

use super::Micros;
use crate::task::record::TaskId;

/// Shortest time that a member may need for a stage before others stop waiting for it.
const SHORTEST_BOUND: Micros = 1_000_000;
/// Longest such time, unless the stage is planned to take more than half of it.
const LONGEST_BOUND: Micros = 10_000_000;

/// Number of stages of a step.
pub(super) const STAGES: usize = StepStage::ALL.len();

/// Where a trainer is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RankProgress {
    /// The step that it does in the current cycle, once it has come to a gate of it.
    step: Option<u64>,
    /// How many stages of that step are done.
    done: usize,
    /// The stage before which it waits, and its step: the one of this cycle or of the next.
    waiting: Option<(StepStage, u64)>,
    /// A step for which it does not wait: it did it in the last cycle, or outside the plan.
    free: Option<u64>,
    /// Whether it has come to a gate. Gates take effect with the next step of a trainer, so that others do not wait for one
    /// that has not.
    pub(super) has_come: bool,
}

impl RankProgress {
    /// Notes that it has come to a gate. Returns whether it has to wait; it does not where it enters a stage again.
    fn enter(&mut self, stage: StepStage, step: u64) -> bool {
        self.has_come = true;
        let is_repeated = self.step == Some(step) && self.done > stage.index();
        if is_repeated || self.free == Some(step) {
            return false;
        }
        match self.step {
            Some(current) if current != step => self.done = STAGES,
            // Stages before it are skipped.
            _ => (self.step, self.done) = (Some(step), stage.index()),
        }
        self.waiting = Some((stage, step));
        true
    }

    /// Notes that it has done this many stages of a step.
    fn leave(&mut self, done: usize, step: u64) {
        if !self.has_come || self.free == Some(step) {
            return;
        }
        match self.step {
            Some(current) if current != step => self.done = STAGES,
            _ => (self.step, self.done) = (Some(step), self.done.max(done)),
        }
        self.waiting = self
            .waiting
            .filter(|(stage, of)| *of != step || stage.index() >= done);
    }

    /// Begins the next cycle.
    fn finish_step(&mut self) {
        self.free = self.step;
        self.step = self.waiting.map(|(_, step)| step);
        self.done = self.waiting.map_or(0, |(stage, _)| stage.index());
    }

    /// Stops waiting for the plan in the step that it does. Returns the stage that it may begin.
    fn step_outside(&mut self) -> Option<(StepStage, u64)> {
        let waiting = self.waiting.take();
        self.free = waiting.map(|(_, step)| step).or(self.step).or(self.free);
        (self.step, self.done) = (None, 0);
        waiting
    }
}

/// How a member takes part in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Participation {
    /// It runs without waiting, and no member waits for it. It joins with its next step.
    Outside,
    /// Each of its trainers does a step in each cycle.
    Inside {
        /// The phase at which its cycle begins, counted for the first member of the plan.
        origin: u64,
        /// Whether a stage has begun in this cycle.
        is_used: bool,
    },
}

/// A member of a gated group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) task: TaskId,
    pub(super) windows: [StageWindow; STAGES],
    bounds_us: [Micros; STAGES],
    pub(super) ranks: BTreeMap<u32, RankProgress>,
    pub(super) participation: Participation,
    /// When each stage of the current cycle could begin.
    opened: [Option<Micros>; STAGES],
    /// How often in a row it held up others for too long.
    pub(super) stalls: u32,
}

impl Member {
    pub(super) fn new(task: TaskId, planned: &PlannedMember, ranks: BTreeMap<u32, RankProgress>) -> Self {
        Self {
            task,
            windows: StepStage::ALL.map(|stage| planned.window(stage)),
            bounds_us: StepStage::ALL.map(|stage| bound_us(planned.span_us(stage))),
            participation: Participation::Outside,
            ranks,
            opened: [None; STAGES],
            stalls: 0,
        }
    }

    pub(super) fn is_inside(&self) -> bool {
        matches!(self.participation, Participation::Inside { .. })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.ranks.values().any(|rank| rank.waiting.is_some())
    }

    /// Notes that a trainer has come to a gate. Returns whether it has to wait.
    pub(super) fn enter(&mut self, rank: u32, stage: StepStage, step: u64) -> bool {
        let progress = self.ranks.get_mut(&rank);
        progress.is_some_and(|progress| progress.enter(stage, step))
    }

    /// Notes that a trainer has done this many stages of a step.
    pub(super) fn leave(&mut self, rank: u32, done: usize, step: u64) {
        if self.is_inside()
            && let Some(progress) = self.ranks.get_mut(&rank)
        {
            progress.leave(done, step);
        }
    }

    /// Returns whether all trainers have done a stage of the current cycle.
    fn has_done(&self, stage: usize) -> bool {
        let mut coming = self.ranks.values().filter(|rank| rank.has_come);
        self.is_inside() && coming.all(|rank| rank.step.is_some() && rank.done > stage)
    }

    /// Returns whether a phase must wait for this member; none if no stage of it ends there.
    pub(super) fn holds_up(&self, phase: u64, cycle: u64) -> Option<bool> {
        let Participation::Inside { origin, .. } = self.participation else {
            return None;
        };
        let mut holds_up = None;
        for (stage, window) in self.windows.iter().enumerate() {
            let Some(after) = phase.checked_sub(origin + u64::from(window.last)) else {
                continue;
            };
            if after % cycle == 0 {
                let is_done = after == 0 && self.has_done(stage);
                holds_up = Some(holds_up.unwrap_or(false) || !is_done);
            }
        }
        holds_up
    }

    /// Begins the next cycle if the step of this one has ended. Returns whether it has.
    pub(super) fn finish_step(&mut self, cycle: u64) -> bool {
        if !self.has_done(STAGES - 1) {
            return false;
        }
        if let Participation::Inside { origin, is_used } = &mut self.participation {
            // A step without stages takes no time of the cycle.
            if *is_used {
                *origin += cycle;
                self.opened = [None; STAGES];
                self.stalls = 0;
            }
            *is_used = false;
        }
        self.ranks.values_mut().for_each(RankProgress::finish_step);
        true
    }

    /// Begins to take part, with a stage of its next step, in a phase that has not begun.
    pub(super) fn join(&mut self, stage: StepStage, next_phase: u64, cycle: u64) {
        let offset = u64::from(self.windows[stage.index()].first);
        let origin = next_phase.saturating_sub(offset).div_ceil(cycle) * cycle;
        self.opened = [None; STAGES];
        self.participation = Participation::Inside {
            origin,
            is_used: false,
        };
    }

    /// Stops taking part until the next step. All its trainers may proceed.
    pub(super) fn step_outside(&mut self) -> Vec<(u32, StepStage, u64)> {
        self.participation = Participation::Outside;
        let released = self.ranks.iter_mut().filter_map(|(rank, progress)| {
            let (stage, step) = progress.step_outside()?;
            Some((*rank, stage, step))
        });
        released.collect()
    }

    /// Opens the stages whose phase has come, and returns the trainers that may proceed.
    pub(super) fn open(
        &mut self,
        now: Micros,
        has_ended: impl Fn(u64) -> bool,
    ) -> Vec<(u32, StepStage, u64)> {
        let Participation::Inside { origin, is_used } = &mut self.participation else {
            return Vec::new();
        };
        let is_open =
            |stage: usize| has_ended((*origin + u64::from(self.windows[stage].first)).saturating_sub(1));
        for stage in 0..STAGES {
            if self.opened[stage].is_none() && is_open(stage) {
                self.opened[stage] = Some(now);
            }
        }
        let mut going = Vec::new();
        for (rank, progress) in &mut self.ranks {
            if let Some((stage, step)) = progress.waiting.filter(|(_, step)| progress.step == Some(*step))
                && is_open(stage.index())
            {
                progress.waiting = None;
                *is_used = true;
                going.push((*rank, stage, step));
            }
        }
        going
    }

    /// Returns until when others wait for a stage that it could have begun and has not done.
    pub(super) fn deadline(&self) -> Option<Micros> {
        let stages = (0..STAGES).filter(|stage| self.is_inside() && !self.has_done(*stage));
        let deadlines = stages.filter_map(|stage| Some(self.opened[stage]? + self.bounds_us[stage]));
        deadlines.min()
    }

    /// Returns the longest time that others wait for a stage of it.
    pub(super) fn longest_bound_us(&self) -> Micros {
        self.bounds_us.into_iter().max().unwrap_or(SHORTEST_BOUND)
    }
}

/// Returns how long others wait for a stage that is planned to take this long.
fn bound_us(span_us: f64) -> Micros {
    let span = span_us as Micros;
    (4 * span).clamp(SHORTEST_BOUND, LONGEST_BOUND).max(2 * span)
}
