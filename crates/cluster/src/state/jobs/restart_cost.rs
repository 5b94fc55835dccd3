//! What it costs to stop a job and to start it again, measured where that happens.

use dovetail_model::Time;
use serde::{Deserialize, Serialize};

use super::record::{JobRecord, Progress};
use super::{Attempt, AttemptEnd};

/// A restart whose first new step was not reported yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::state) struct Restart {
    /// Time to stop the attempt before, and that of its steps that are done again.
    lost: Time,
    /// The step after which the job resumes.
    step: u64,
}

impl Restart {
    /// Returns what is known of the restart of a job that is about to get GPUs; none if the scheduler did not stop it, or it
    /// reports no steps.
    pub(in crate::state) fn of(job: &JobRecord) -> Option<Self> {
        let before = job.attempt()?;
        let is_stopped = matches!(before.end, Some(AttemptEnd::Stopped(_)));
        let to_stop = before.stop_cost().filter(|_| is_stopped)?;
        let Progress {
            step,
            checkpoint,
            step_time,
            ..
        } = job.progress;
        let again = step_time.0.saturating_mul(steps(step.saturating_sub(checkpoint)));
        (step_time > Time::ZERO).then(|| Self {
            lost: to_stop.saturating_add(Time(again)),
            step: checkpoint,
        })
    }

    /// Returns the cost, once an attempt has reported a step that was not done before: the time to stop and to do steps again,
    /// and that from the launch to the end of the first new step.
    pub(in crate::state) fn cost(self, attempt: &Attempt, at: Time, reported: Progress) -> Option<Time> {
        let new = reported.step.checked_sub(self.step).filter(|new| *new > 0)?;
        let after_first = reported.step_time.0.max(0).saturating_mul(steps(new - 1));
        let to_start = at.since(attempt.since).0.saturating_sub(after_first).max(0);
        Some(self.lost.saturating_add(Time(to_start)))
    }
}

fn steps(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
