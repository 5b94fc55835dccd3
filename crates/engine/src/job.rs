//! A job inside the engine: what is known of it, what it should hold, and what is really there.

use dovetail_model::{Allocation, Generation, JobSpec, Rate, Time, Work};
use serde::{Deserialize, Serialize};

use crate::line::Line;
use crate::shape::ShapeId;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It just came in; admission has not seen it.
    Arrived,
    /// Admission holds it.
    Held,
    /// It stands in line, or holds GPUs, or is about to.
    Active,
}

/// What is really there of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Live {
    /// Nothing.
    Nothing,
    /// It was told to start, and has not answered.
    Launched,
    /// It runs.
    Running,
    /// It was told to stop; these GPUs are not free until it has.
    Stopping(Allocation),
}

/// A job as policies see it. There is no real run time in here: only what the driver let out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What was submitted.
    pub spec: JobSpec,
    /// Where it is.
    pub stage: Stage,
    /// What it should hold.
    pub allocation: Option<Allocation>,
    /// The same GPUs with the CPU and memory it has there for now, where that is more than it was promised.
    #[serde(default)]
    pub granted: Option<Allocation>,
    /// What is there.
    pub live: Live,
    /// How often it was launched.
    pub generation: Generation,
    /// Its place in line.
    pub line: Line,
    /// Its shape, numbered anew after a snapshot.
    #[serde(skip)]
    pub shape: ShapeId,
    /// Time it held GPUs in earlier launches.
    pub held_before: Time,
    /// GPU-time (GPUs × microseconds) it used in earlier launches.
    pub gpu_time_before: i128,
    /// GPU-time that no longer counts: the order gave the job a fresh start.
    pub forgiven: i128,
    /// What the order last asked to remember of it.
    pub remembered: u32,
    /// Since when it holds GPUs in this launch.
    pub held_since: Time,
    /// Since when it has waited.
    pub waiting_since: Time,
    /// Work done, as of `done_at`.
    pub done: Work,
    /// When `done` was true.
    pub done_at: Time,
    /// How fast it goes on from there.
    pub rate: Rate,
    /// The crowd's [`crate::Crowd::job_time`] when it came in.
    pub job_time_before: i128,
    /// How often it was stopped with work left.
    pub preemptions: u32,
    /// The decision, by number, after which it was last told to stop.
    pub stopped_in: u64,
    /// When it first got GPUs.
    pub first_start: Option<Time>,
    /// Its owner wants it gone.
    pub cancelled: bool,
}

impl Job {
    pub(crate) fn new(spec: JobSpec, now: Time) -> Self {
        Self {
            spec,
            stage: Stage::Arrived,
            allocation: None,
            granted: None,
            live: Live::Nothing,
            generation: Generation(0),
            line: Line::fixed(0),
            shape: ShapeId(0),
            held_before: Time::ZERO,
            gpu_time_before: 0,
            forgiven: 0,
            remembered: 0,
            held_since: now,
            waiting_since: now,
            done: Work(0),
            done_at: now,
            rate: Rate::ZERO,
            job_time_before: 0,
            preemptions: 0,
            stopped_in: 0,
            first_start: None,
            cancelled: false,
        }
    }

    /// Its GPUs, and the CPU and memory it has beside them for now.
    pub fn holds(&self) -> Option<&Allocation> {
        self.granted.as_ref().or(self.allocation.as_ref())
    }

    /// Whether it was told to start and not yet to stop.
    pub fn is_up(&self) -> bool {
        matches!(self.live, Live::Launched | Live::Running)
    }

    /// Whether it stands in the waiting line: let in, and neither holding nor giving up GPUs.
    pub fn is_waiting(&self) -> bool {
        self.stage == Stage::Active && self.allocation.is_none() && self.live == Live::Nothing
    }

    /// GPUs it holds, or would hold as it was submitted.
    pub fn width(&self) -> u32 {
        self.allocation.as_ref().map_or(self.spec.gpus, Allocation::gpus)
    }

    /// All time it has held GPUs.
    pub fn attained(&self, now: Time) -> Time {
        if self.is_up() {
            self.held_before + now.since(self.held_since)
        } else {
            self.held_before
        }
    }

    /// All GPU-time it has used, in GPU-microseconds.
    pub fn gpu_time(&self, now: Time) -> i128 {
        if !self.is_up() {
            return self.gpu_time_before;
        }
        self.gpu_time_before + i128::from(now.since(self.held_since).0) * i128::from(self.width())
    }

    /// GPU-time since its last fresh start, in GPU-microseconds.
    pub fn service(&self, now: Time) -> i128 {
        self.gpu_time(now) - self.forgiven
    }

    /// Work done so far.
    pub fn done(&self, now: Time) -> Work {
        if self.live == Live::Running {
            self.done + self.rate.work_in(now.since(self.done_at))
        } else {
            self.done
        }
    }

    /// Work left, if the driver said how much there is. Never zero while the job lives.
    pub fn remaining(&self, now: Time) -> Option<Work> {
        self.spec
            .expected
            .map(|total| Work(total.minus(self.done(now)).0.max(1)))
    }

    /// How fast the work left shrinks right now.
    pub fn shrinking(&self) -> Rate {
        if self.live == Live::Running {
            self.rate
        } else {
            Rate::ZERO
        }
    }

    /// When it should be done, if it runs on as it does and the work is known.
    pub fn expected_end(&self, now: Time) -> Option<Time> {
        let rate = if self.live == Live::Running {
            self.rate
        } else {
            Rate::FULL
        };
        self.remaining(now)
            .map(|left| now.saturating_add(rate.time_for(left)))
    }
}
