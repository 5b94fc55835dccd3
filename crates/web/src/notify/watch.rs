//! Watches events and jobs for users who want to be notified.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dovetail_cluster::state::{Cause, ClusterState, End, EventKind, JobRecord};
use dovetail_cluster::{ClusterEvent, Handle, JobId, LiveRuntime, NotificationKind};
use dovetail_model::Time;

use super::conditions::{Condition, ConditionLimits};
use super::config::{NotifyConfig, NotifyTiming};
use super::deliver::Delivery;
use super::message::Message;
use super::outbox::Recipient;
use crate::accounts::{Notify, Users};
use crate::{SettingError, now};

/// Maximum number of events that are read at a time, so that the cluster state is not locked for long.
const BATCH: usize = 256;

/// Notifications about lasting conditions that were sent: the job, the start of the condition, and its kind.
type SentConditions = BTreeSet<(JobId, Time, NotificationKind)>;

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

/// Notifies users of events and conditions of their jobs.
#[derive(Debug)]
pub struct Notifier {
    pub(crate) delivery: Arc<Delivery>,
    pub(super) limits: ConditionLimits,
    /// Address of the page; empty if it is not configured.
    pub(super) public_url: String,
    /// Interval between checks for conditions.
    check_interval: Duration,
}

impl Notifier {
    /// Checks the configuration. No connection is opened yet.
    ///
    /// # Errors
    /// When a setting is invalid. The error names the key and what is expected.
    pub fn open(config: &NotifyConfig, timing: NotifyTiming) -> Result<Arc<Self>, SettingError> {
        let public_url = config.page_address()?;
        let low_gpu_percent = config.low_gpu_limit()?;
        let client = config.client(timing.timeout)?;
        let smtp = config.mail_server(timing.timeout)?;
        let limits = ConditionLimits {
            pending: config.pending_limit()?,
            low_gpu_percent,
            low_gpu_period: config.low_gpu_period()?,
        };
        Ok(Arc::new(Self {
            limits,
            public_url,
            check_interval: timing.check_interval,
            delivery: Arc::new(Delivery::new(client, smtp, timing)),
        }))
    }

    /// Sends notifications until `until` completes. Earlier events are skipped.
    pub async fn watch(
        self: Arc<Self>,
        handle: Handle,
        runtime: Arc<dyn LiveRuntime>,
        users: Arc<Users>,
        until: impl Future<Output = ()>,
    ) {
        let mut last_event = handle.last_event();
        let mut seen = handle.read(|state| state.last_event());
        // Conditions that exist at the start were reported before the restart.
        let mut sent = self.check_conditions(&handle, runtime.as_ref(), &users, None);
        let mut ticks = tokio::time::interval(self.check_interval);
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
                _ = ticks.tick() => sent = self.check_conditions(&handle, runtime.as_ref(), &users, Some(&sent)),
            }
        }
    }

    /// Sends notifications for a batch of events, and returns whether there may be more.
    fn read_events(&self, handle: &Handle, users: &Users, seen: &mut u64) -> bool {
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
        self.delivery.counts.dropped.fetch_add(missed, Ordering::Relaxed);
        let has_more = last > *seen;
        *seen = last;
        for (recipient, message) in messages {
            self.delivery.send(recipient, message);
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
        let channels = self.delivery.channels(&notify, &email);
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
        &self,
        handle: &Handle,
        runtime: &dyn LiveRuntime,
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
                let condition = self.limits.condition_of(job, &notify, runtime, now);
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
            self.delivery.send(recipient, message);
        }
        current
    }
}

/// Returns the notification settings for a job, and the mail address of its owner; none if notifications are off.
fn settings(users: &Users, job: &JobRecord) -> Option<(Notify, String)> {
    let (own, email) = users.notify_of(&job.user)?;
    let notify = own.for_job(job.request.notify.as_ref());
    (!notify.on.is_empty()).then_some((notify, email))
}
