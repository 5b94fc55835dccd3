//! Watches events and jobs for users who want to be notified.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dovetail_cluster::state::{Cause, ClusterState, End, EventKind, Hold, JobRecord, JobState};
use dovetail_cluster::{ClusterEvent, Handle, JobId, NotificationKind};
use dovetail_model::Time;

use super::config::Notifier;
use super::message::Message;
use super::outbox::Recipient;
use crate::accounts::{Notify, Users};
use crate::gpu_utilization::mean_utilization;
use crate::{Nodes, now};

/// Maximum number of events that are read at a time, so that the cluster state is not locked for long.
const BATCH: usize = 256;

/// Notifications about lasting conditions that were sent: the job, the start of the condition, and its kind.
type SentConditions = BTreeSet<(JobId, Time, NotificationKind)>;

/// A lasting condition of a job that its owner is notified about.
struct Condition {
    kind: NotificationKind,
    since: Time,
    detail: String,
}

/// Returns the kind of notification for an event, and its detail.
fn notification_for(
    job: &JobRecord,
    event: &ClusterEvent,
    state: &ClusterState,
) -> Option<(NotificationKind, String)> {
    Some(match &event.kind {
        EventKind::Running => (NotificationKind::Running, String::new()),
        EventKind::Requeued(cause @ Cause::Preempted(_)) => {
            (NotificationKind::Preempted, cause.sentence(state, event.at))
        }
        EventKind::Ended(End::Completed) => (NotificationKind::Completed, String::new()),
        // Users who stop their own jobs need no notification.
        EventKind::Ended(End::Cancelled(by)) if by.is_user(&job.user) => return None,
        EventKind::Ended(end) => {
            let sentence = end.sentence();
            let detail = if sentence.is_empty() {
                end.word().to_owned()
            } else {
                sentence
            };
            (NotificationKind::Failed, detail.trim_end_matches('.').to_owned())
        }
        _ => return None,
    })
}

impl Notifier {
    /// Sends notifications until `until` completes. Earlier events are skipped.
    pub async fn watch(
        self: Arc<Self>,
        handle: Handle,
        nodes: Arc<dyn Nodes>,
        users: Arc<Users>,
        until: impl Future<Output = ()>,
    ) {
        let mut last_event = nodes.last_event();
        let mut seen = handle.read(|state| state.last_event());
        // Conditions that exist at the start were reported before the restart.
        let mut sent = self.check_conditions(&handle, nodes.as_ref(), &users, None);
        let mut ticks = tokio::time::interval(self.timing.check_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => return,
                changed = last_event.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    while self.read_events(&handle, &users, &mut seen) {
                        tokio::task::yield_now().await;
                    }
                }
                _ = ticks.tick() => sent = self.check_conditions(&handle, nodes.as_ref(), &users, Some(&sent)),
            }
        }
    }

    /// Sends notifications for a batch of events, and returns whether there may be more.
    fn read_events(self: &Arc<Self>, handle: &Handle, users: &Users, seen: &mut u64) -> bool {
        let (messages, last, missed) = handle.read(|state| {
            let mut messages: Vec<(Recipient, Message)> = Vec::new();
            let (mut last, mut missed) = (*seen, 0);
            for event in state.events_after(*seen).take(BATCH) {
                missed += event.number - last - 1;
                last = event.number;
                let Some(job) = event.job.and_then(|id| state.job(id)) else {
                    continue;
                };
                if let Some((kind, detail)) = notification_for(job, event, state) {
                    messages.extend(self.messages(state, users, job, kind, event.at, &detail));
                }
            }
            (messages, last, missed)
        });
        self.counts.dropped.fetch_add(missed, Ordering::Relaxed);
        let has_more = last > *seen;
        *seen = last;
        for (recipient, message) in messages {
            self.send(recipient, message);
        }
        has_more
    }

    /// Returns the notifications about a job for its owner, one for each channel.
    fn messages(
        &self,
        state: &ClusterState,
        users: &Users,
        job: &JobRecord,
        kind: NotificationKind,
        at: Time,
        detail: &str,
    ) -> Vec<(Recipient, Message)> {
        let Some((notify, email)) = settings(users, job) else {
            return Vec::new();
        };
        if !notify.on.contains(&kind) {
            return Vec::new();
        }
        let channels = self.channels(&notify, &email);
        if channels.is_empty() {
            return Vec::new();
        }
        let message = Message::about_job(state, job, kind, at, detail, &self.public_url);
        let recipient = |channel| Recipient {
            user: job.user.clone(),
            channel,
        };
        channels
            .into_iter()
            .map(|channel| (recipient(channel), message.clone()))
            .collect()
    }

    /// Looks for jobs that wait too long or have low GPU utilization, and returns all such conditions. Sends notifications
    /// about those that are not in `sent`; without `sent`, about none.
    fn check_conditions(
        self: &Arc<Self>,
        handle: &Handle,
        nodes: &dyn Nodes,
        users: &Users,
        sent: Option<&SentConditions>,
    ) -> SentConditions {
        let now = now();
        let (messages, current) = handle.read(|state| {
            let mut messages = Vec::new();
            let mut current = SentConditions::new();
            for job in state.unfinished_jobs() {
                let Some((notify, _)) = settings(users, job) else {
                    continue;
                };
                let condition = match &job.state {
                    JobState::Queued | JobState::Held(Hold::Cap) => self.waits_too_long(job, &notify, now),
                    JobState::Running => self.has_low_utilization(job, &notify, nodes, now),
                    _ => None,
                };
                let Some(Condition { kind, since, detail }) = condition else {
                    continue;
                };
                let key = (job.id, since, kind);
                if sent.is_some_and(|sent| !sent.contains(&key)) {
                    messages.extend(self.messages(state, users, job, kind, now, &detail));
                }
                current.insert(key);
            }
            (messages, current)
        });
        for (recipient, message) in messages {
            self.send(recipient, message);
        }
        current
    }

    fn waits_too_long(&self, job: &JobRecord, notify: &Notify, now: Time) -> Option<Condition> {
        if !notify.on.contains(&NotificationKind::PendingTooLong) {
            return None;
        }
        let limit = match notify.pending_s {
            0.0 => self.pending_limit,
            seconds => Time::from_secs_f64(seconds),
        };
        let waited = now.since(job.since);
        (waited > limit).then(|| Condition {
            kind: NotificationKind::PendingTooLong,
            since: job.since,
            detail: duration_text(waited),
        })
    }

    fn has_low_utilization(
        &self,
        job: &JobRecord,
        notify: &Notify,
        nodes: &dyn Nodes,
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
        let percent = mean_utilization(nodes, &attempt.allocation, from, now)?;
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

/// Returns the notification settings for a job, and the mail address of its owner; none if notifications are off.
fn settings(users: &Users, job: &JobRecord) -> Option<(Notify, String)> {
    let (own, email) = users.notify_of(&job.user)?;
    let notify = own.for_job(job.request.notify.as_ref());
    (!notify.on.is_empty()).then_some((notify, email))
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
