//! Lasting conditions of jobs that their owners are notified about.

use dovetail_cluster::state::{Hold, JobRecord, JobState};
use dovetail_cluster::{LiveRuntime, NotificationKind};
use dovetail_model::Time;

use crate::accounts::Notify;
use crate::gpu_utilization::mean_utilization;

/// A lasting condition of a job that its owner is notified about.
pub(super) struct Condition {
    pub(super) kind: NotificationKind,
    pub(super) since: Time,
    pub(super) detail: String,
}

/// The limits beyond which a condition is reported, for users who set none.
#[derive(Debug)]
pub(super) struct ConditionLimits {
    /// Longest waiting time.
    pub(super) pending: Time,
    /// Lowest GPU utilization, in percent.
    pub(super) low_gpu_percent: f64,
    /// Period over which the utilization is measured.
    pub(super) low_gpu_period: Time,
}

impl ConditionLimits {
    /// Returns the condition of a job that waits too long or has low GPU utilization.
    pub(super) fn condition_of(
        &self,
        job: &JobRecord,
        notify: &Notify,
        runtime: &dyn LiveRuntime,
        now: Time,
    ) -> Option<Condition> {
        match &job.state {
            JobState::Queued | JobState::Held(Hold::Cap) => self.long_wait(job, notify, now),
            JobState::Running => self.low_utilization(job, notify, runtime, now),
            _ => None,
        }
    }

    /// Returns the condition of a queued job that waits too long.
    fn long_wait(&self, job: &JobRecord, notify: &Notify, now: Time) -> Option<Condition> {
        if !notify.on.contains(&NotificationKind::PendingTooLong) {
            return None;
        }
        let limit = match notify.pending_s {
            0.0 => self.pending,
            seconds => Time::from_secs_f64(seconds),
        };
        let waited = now.since(job.since);
        (waited > limit).then(|| Condition {
            kind: NotificationKind::PendingTooLong,
            since: job.since,
            detail: duration_text(waited),
        })
    }

    /// Returns the condition of a running job with low GPU utilization.
    fn low_utilization(
        &self,
        job: &JobRecord,
        notify: &Notify,
        runtime: &dyn LiveRuntime,
        now: Time,
    ) -> Option<Condition> {
        if !notify.on.contains(&NotificationKind::LowGpuUse) {
            return None;
        }
        let attempt = job.attempt()?;
        let since = attempt.running_since?;
        if now.since(since) < self.low_gpu_period {
            return None;
        }
        let threshold = match notify.low_gpu_percent {
            0.0 => self.low_gpu_percent,
            percent => percent,
        };
        let from = Time(now.0 - self.low_gpu_period.0);
        let percent = mean_utilization(runtime, &attempt.allocation, from, now)?;
        (percent < threshold).then(|| Condition {
            kind: NotificationKind::LowGpuUse,
            since,
            detail: format!(
                "{percent:.0} % over the last {}",
                duration_text(self.low_gpu_period)
            ),
        })
    }
}

/// Returns a duration as text: `90 s`, `12 min`, `3 h`, `2 d`.
fn duration_text(duration: Time) -> String {
    let seconds = duration.0 / 1_000_000;
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
