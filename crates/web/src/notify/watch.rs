//! Watching what happens, for those who want to be told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dovetail_control::book::{Book, Cause, End, Hold, JobRecord, JobState, What};
use dovetail_control::{Handle, JobNo, Occasion};
use dovetail_model::Time;

use super::config::Notifier;
use super::lanes::Whom;
use super::message::Message;
use crate::gpu_use::mean_busy;
use crate::people::{Notify, Users};
use crate::{Nodes, now};

/// Notices that are read at a time, so that the book is not held for long.
const AT_A_TIME: usize = 256;

/// What was told already of what lasts: the job, since when, and of what.
type Told = BTreeSet<(JobNo, Time, Occasion)>;

/// Of what, and more of it in words.
fn occasion(job: &JobRecord, what: &What, book: &Book) -> Option<(Occasion, String)> {
    Some(match what {
        What::Running => (Occasion::Running, String::new()),
        What::Requeued(cause @ Cause::Preempted(_)) => (Occasion::Preempted, cause.sentence(book)),
        What::Ended(End::Completed) => (Occasion::Completed, String::new()),
        // Whoever stops its own job knows.
        What::Ended(End::Cancelled(by)) if *by == job.user => return None,
        What::Ended(end) => {
            let sentence = end.sentence();
            let why = if sentence.is_empty() {
                end.word().to_owned()
            } else {
                sentence
            };
            (Occasion::Failed, why.trim_end_matches('.').to_owned())
        }
        _ => return None,
    })
}

impl Notifier {
    /// Tells people of what happens until the signal comes. What happened before is not told.
    pub async fn watch(
        self: Arc<Self>,
        handle: Handle,
        nodes: Arc<dyn Nodes>,
        users: Arc<Users>,
        until: impl Future<Output = ()>,
    ) {
        let mut news = nodes.notices();
        let mut seen = handle.read(|book| book.last_notice());
        let mut told = Told::new();
        self.look(&handle, nodes.as_ref(), &users, &mut told, false);
        let mut ticks = tokio::time::interval(self.pace.look);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => return,
                changed = news.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    while self.hear(&handle, &users, &mut seen) {
                        tokio::task::yield_now().await;
                    }
                }
                _ = ticks.tick() => self.look(&handle, nodes.as_ref(), &users, &mut told, true),
            }
        }
    }

    /// Reads some of what happened; whether there may be more.
    fn hear(self: &Arc<Self>, handle: &Handle, users: &Users, seen: &mut u64) -> bool {
        let (messages, last, missed) = handle.read(|book| {
            let mut messages: Vec<(Whom, Message)> = Vec::new();
            let (mut last, mut missed) = (*seen, 0);
            for notice in book.notices_after(*seen).take(AT_A_TIME) {
                missed += notice.number - last - 1;
                last = notice.number;
                let Some(job) = notice.job.and_then(|no| book.job(no)) else {
                    continue;
                };
                if let Some((on, what)) = occasion(job, &notice.what, book) {
                    messages.extend(self.messages(book, users, job, on, notice.at, &what));
                }
            }
            (messages, last, missed)
        });
        self.counts.dropped.fetch_add(missed, Ordering::Relaxed);
        let more = last > *seen;
        *seen = last;
        for (whom, message) in messages {
            self.tell(whom, message);
        }
        more
    }

    /// What its owner is told of a job, by each way it wants.
    fn messages(
        &self,
        book: &Book,
        users: &Users,
        job: &JobRecord,
        on: Occasion,
        at: Time,
        what: &str,
    ) -> Vec<(Whom, Message)> {
        let Some((notify, email)) = settings(users, job) else {
            return Vec::new();
        };
        if !notify.on.contains(&on) {
            return Vec::new();
        }
        let ways = self.ways(&notify, &email);
        if ways.is_empty() {
            return Vec::new();
        }
        let message = Message::of(book, job, on, at, what, &self.public_url);
        ways.into_iter()
            .map(|way| ((job.user.clone(), way), message.clone()))
            .collect()
    }

    /// Looks who waits too long or hardly uses its GPUs. At the start nobody is told again what it was told before.
    fn look(
        self: &Arc<Self>,
        handle: &Handle,
        nodes: &dyn Nodes,
        users: &Users,
        told: &mut Told,
        tells: bool,
    ) {
        let now = now();
        let messages = handle.read(|book| {
            let mut messages = Vec::new();
            let mut still = Told::new();
            for job in book.jobs_live() {
                let Some((notify, _)) = settings(users, job) else {
                    continue;
                };
                let found = match &job.state {
                    JobState::Queued | JobState::Held(Hold::Cap) => self.waits_too_long(job, &notify, now),
                    JobState::Running => self.uses_too_little(job, &notify, nodes, now),
                    _ => None,
                };
                let Some((on, since, what)) = found else { continue };
                let key = (job.no, since, on);
                let is_new = !told.contains(&key);
                still.insert(key);
                if is_new && tells {
                    messages.extend(self.messages(book, users, job, on, now, &what));
                }
            }
            *told = still;
            messages
        });
        for (whom, message) in messages {
            self.tell(whom, message);
        }
    }

    fn waits_too_long(
        &self,
        job: &JobRecord,
        notify: &Notify,
        now: Time,
    ) -> Option<(Occasion, Time, String)> {
        if !notify.on.contains(&Occasion::PendingTooLong) {
            return None;
        }
        let limit = match notify.pending_s {
            0.0 => self.pending,
            seconds => Time::from_secs_f64(seconds),
        };
        let waited = now.since(job.since);
        (waited > limit).then(|| (Occasion::PendingTooLong, job.since, words(waited)))
    }

    fn uses_too_little(
        &self,
        job: &JobRecord,
        notify: &Notify,
        nodes: &dyn Nodes,
        now: Time,
    ) -> Option<(Occasion, Time, String)> {
        if !notify.on.contains(&Occasion::LowGpuUse) {
            return None;
        }
        let attempt = job.attempt()?;
        let since = attempt.running_since?;
        if now.since(since) < self.low_for {
            return None;
        }
        let percent = match notify.low_gpu_percent {
            0.0 => self.low_percent,
            percent => percent,
        };
        let busy = mean_busy(nodes, &attempt.allocation, Time(now.0 - self.low_for.0), now)?;
        let what = format!("{busy:.0} % over the last {}", words(self.low_for));
        (busy < percent).then_some((Occasion::LowGpuUse, since, what))
    }
}

/// How the owner of a job is told of it, and where mail reaches it.
fn settings(users: &Users, job: &JobRecord) -> Option<(Notify, String)> {
    let said = job.request.notify.as_ref();
    let (own, email) = users.notify_of(&job.user)?;
    let notify = own.for_job(said);
    (!notify.on.is_empty()).then_some((notify, email))
}

/// A span in words: `90 s`, `12 min`, `3 h`, `2 d`.
fn words(span: Time) -> String {
    let seconds = span.0 / 1_000_000;
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
