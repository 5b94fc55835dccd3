//! A job inside the engine: what is known of it, what it should hold, and what really runs.

use dovetail_model::{Allocation, AttemptKey, JobSpec, Rate, Time, Work};
use serde::{Deserialize, Serialize};

use crate::queue_key::QueueKey;
use crate::shape::ShapeId;

/// How far a job has come through admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The job was submitted; admission has not looked at it.
    #[serde(alias = "Arrived")]
    Submitted,
    /// Admission holds the job.
    Held,
    /// The job was admitted: it is queued, or holds GPUs, or is about to.
    #[serde(alias = "Active")]
    Admitted,
}

/// What really runs of a job, as far as the driver reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// Nothing runs.
    #[serde(alias = "Nothing")]
    Idle,
    /// A launch was commanded and not yet confirmed.
    #[serde(alias = "Launched")]
    Starting,
    /// The job runs.
    Running,
    /// A stop was commanded; these GPUs are not free until it is confirmed.
    Stopping(Allocation),
}

/// A job as policies see it. The real run time is not in here, only what the driver disclosed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What was submitted.
    pub spec: JobSpec,
    /// How far it has come through admission.
    pub stage: Stage,
    /// What it should hold.
    pub allocation: Option<Allocation>,
    /// The same GPUs with the CPU and memory it has for now, where these exceed what was promised.
    #[serde(default)]
    pub granted: Option<Allocation>,
    /// What really runs.
    #[serde(alias = "live")]
    pub run_state: RunState,
    /// Number of launches so far.
    #[serde(alias = "generation")]
    pub attempt: AttemptKey,
    /// Its sort key.
    #[serde(alias = "line")]
    pub sort_key: QueueKey,
    /// Its shape; numbered again after a snapshot.
    #[serde(skip)]
    pub shape: ShapeId,
    /// Time it held GPUs in earlier attempts.
    pub held_before: Time,
    /// GPU time used in earlier attempts, in GPU-microseconds.
    pub gpu_time_before: i128,
    /// GPU time that no longer counts because the order gave the job a fresh start, in GPU-microseconds.
    pub forgiven: i128,
    /// The note that the order last left in its sort key.
    #[serde(alias = "remembered")]
    pub order_note: u32,
    /// When it got GPUs in this attempt.
    pub held_since: Time,
    /// When it was queued last.
    pub waiting_since: Time,
    /// Work done as of `done_at`.
    pub done: Work,
    /// The moment to which `done` refers.
    pub done_at: Time,
    /// Its speed since then.
    pub rate: Rate,
    /// The value of [`crate::ClusterLoad::job_time`] when it was submitted.
    pub job_time_before: i128,
    /// How often it was stopped with work left.
    pub preemptions: u32,
    /// Number of the decision after which it was last stopped.
    pub stopped_in: u64,
    /// When it first got GPUs.
    pub first_start: Option<Time>,
    /// Whether its owner cancelled it.
    pub cancelled: bool,
}

impl Job {
    pub(crate) fn new(spec: JobSpec, now: Time) -> Self {
        Self {
            spec,
            stage: Stage::Submitted,
            allocation: None,
            granted: None,
            run_state: RunState::Idle,
            attempt: AttemptKey(0),
            sort_key: QueueKey::fixed(0),
            shape: ShapeId(0),
            held_before: Time::ZERO,
            gpu_time_before: 0,
            forgiven: 0,
            order_note: 0,
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

    /// Returns its GPUs, with the CPU and memory it has beside them for now.
    pub fn current_allocation(&self) -> Option<&Allocation> {
        self.granted.as_ref().or(self.allocation.as_ref())
    }

    /// Whether it was launched and not told to stop since.
    pub fn holds_gpus(&self) -> bool {
        matches!(self.run_state, RunState::Starting | RunState::Running)
    }

    /// Whether it is queued: admitted, and neither holding nor vacating GPUs.
    pub fn is_queued(&self) -> bool {
        self.stage == Stage::Admitted && self.allocation.is_none() && self.run_state == RunState::Idle
    }

    /// Returns the number of GPUs it holds, or asks for if it holds none.
    pub fn width(&self) -> u32 {
        self.allocation.as_ref().map_or(self.spec.gpus, Allocation::gpus)
    }

    /// Returns the time it has held GPUs, over all attempts.
    pub fn attained(&self, now: Time) -> Time {
        if self.holds_gpus() {
            self.held_before + now.since(self.held_since)
        } else {
            self.held_before
        }
    }

    /// Returns the GPU time it has used, in GPU-microseconds.
    pub fn gpu_time(&self, now: Time) -> i128 {
        if !self.holds_gpus() {
            return self.gpu_time_before;
        }
        self.gpu_time_before + i128::from(now.since(self.held_since).0) * i128::from(self.width())
    }

    /// Returns the GPU time since its last fresh start, in GPU-microseconds.
    pub fn service(&self, now: Time) -> i128 {
        self.gpu_time(now) - self.forgiven
    }

    /// Returns the work done so far.
    pub fn done(&self, now: Time) -> Work {
        if self.run_state == RunState::Running {
            self.done + self.rate.work_in(now.since(self.done_at))
        } else {
            self.done
        }
    }

    /// Returns the work left, if the driver disclosed the total. Never zero while the job has not ended.
    pub fn remaining(&self, now: Time) -> Option<Work> {
        self.spec
            .expected
            .map(|total| Work(total.minus(self.done(now)).0.max(1)))
    }

    /// Returns how fast the remaining work decreases now.
    pub fn shrinking(&self) -> Rate {
        if self.run_state == RunState::Running {
            self.rate
        } else {
            Rate::ZERO
        }
    }

    /// Returns when it should end at its present speed, if its remaining work is known.
    pub fn expected_end(&self, now: Time) -> Option<Time> {
        let rate = if self.run_state == RunState::Running {
            self.rate
        } else {
            Rate::FULL
        };
        self.remaining(now)
            .map(|left| now.saturating_add(rate.time_for(left)))
    }
}
