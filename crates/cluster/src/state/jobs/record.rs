//! Records of jobs: request, state, attempts and progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_model::{JobHistory, JobKey, Time, Work};
use serde::{Deserialize, Serialize};

use super::{Attempt, AttemptEnd, Cause, JobState, TaskState, Verdict};
use crate::actor::Actor;
use crate::request::{JobRequest, Processes};
use crate::state::learning::LearnedTraits;
use crate::{AttemptId, JobId};

/// Progress of a job, as it reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Number of finished steps.
    pub step: u64,
    /// Number of steps in total; zero if unknown.
    pub total: u64,
    /// Duration of one step.
    pub step_time: Time,
    /// The part of it that waits for data.
    #[serde(default)]
    pub data_time: Time,
    /// Last step with a complete checkpoint.
    pub checkpoint: u64,
}

/// What a job received in attempts that an earlier scheduler started, and that are not listed in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EarlierService {
    /// Number of the last of these attempts; zero if there was none.
    pub attempts: AttemptId,
    /// Time they held GPUs, up to when they were told to stop.
    pub held: Time,
    /// GPU time of that, in GPU-microseconds.
    pub gpu_time: i64,
    /// How often they were preempted.
    pub preemptions: u32,
    /// When the first of them got GPUs.
    pub first_start: Option<Time>,
    /// The last report of progress.
    pub progress: Progress,
}

impl EarlierService {
    /// Returns the service with that of another attempt.
    #[must_use]
    fn with(mut self, attempt: &Attempt, now: Time) -> Self {
        let span = attempt.service(now);
        let gpu_time = i128::from(span.0) * i128::from(attempt.allocation.gpus());
        let is_preempted = match &attempt.end {
            Some(end) => matches!(end, AttemptEnd::Stopped(Cause::Preempted(_))),
            None => matches!(attempt.cause, Some(Cause::Preempted(_))),
        };
        self.attempts = attempt.id;
        self.held = self.held.saturating_add(span);
        self.gpu_time = self
            .gpu_time
            .saturating_add(i64::try_from(gpu_time).unwrap_or(i64::MAX));
        self.preemptions += u32::from(is_preempted);
        self.first_start.get_or_insert(attempt.since);
        self
    }
}

/// Number of failures so far, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failures {
    /// Failures of the job itself.
    pub user: u32,
    /// Failures of the platform.
    pub platform: u32,
    /// Nodes that were lost.
    pub node: u32,
}

/// Everything the scheduler knows about a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Number of the job.
    #[serde(alias = "no")]
    pub id: JobId,
    /// User who submitted it.
    pub user: String,
    /// What was requested.
    pub request: Arc<JobRequest>,
    /// When it was submitted.
    pub submitted: Time,
    /// Current state.
    pub state: JobState,
    /// When it entered this state.
    pub since: Time,
    /// Integral over its life of the number of unfinished jobs when it last left the engine, in job-microseconds.
    #[serde(skip)]
    pub(in crate::state) alive: Option<i128>,
    /// The engine's handle of the job, from the last time it was queued.
    #[serde(alias = "ticket")]
    pub(in crate::state) job_key: Option<JobKey>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// What it received in attempts before these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierService>,
    /// When it was queued last, if that is to count instead of the time at which it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::state) queued_since: Option<Time>,
    /// Reported progress.
    #[serde(alias = "steps")]
    pub progress: Progress,
    /// Failures so far.
    pub failures: Failures,
    /// Who cancelled it while it held GPUs.
    pub(in crate::state) cancelled: Option<Actor>,
    /// Who asked to hold it after it has stopped.
    pub(in crate::state) hold_after_stop: Option<Actor>,
    /// Whether its workload does not exist; it then waits for its controller after it has stopped.
    #[serde(default, alias = "scattered", skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::state) workload_missing: bool,
    /// Whether the engine forgets it as soon as it has stopped, because it was cancelled or held.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::state) leaves_engine: bool,
    /// Priority with which it was queued last; a change counts from the next time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::state) queued_priority: Option<i32>,
    /// Run time that the engine was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::state) told: Option<Work>,
    /// What was known about it from other jobs when it was queued last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Box<LearnedTraits>>,
    /// Idempotency key of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::state) key: Option<String>,
    /// Samples of its progress, oldest first.
    #[serde(default, alias = "trail", skip_serializing_if = "Vec::is_empty")]
    pub progress_samples: Vec<ProgressSample>,
}

/// Progress of a job at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressSample {
    /// Time of the sample.
    pub at: Time,
    /// Number of finished steps.
    pub step: u64,
    /// Duration of one step.
    pub step_time: Time,
}

/// Number of samples kept for a job; when it is reached, every second one is dropped.
const MAX_SAMPLES: usize = 240;

impl JobRecord {
    /// Creates the record of a new job.
    pub(in crate::state) fn new(id: JobId, user: &str, request: &Arc<JobRequest>, submitted: Time) -> Self {
        Self {
            id,
            user: user.to_owned(),
            request: Arc::clone(request),
            submitted,
            state: JobState::Queued,
            since: submitted,
            alive: None,
            job_key: None,
            attempts: Vec::new(),
            earlier: None,
            queued_since: None,
            progress: Progress::default(),
            failures: Failures::default(),
            cancelled: None,
            hold_after_stop: None,
            workload_missing: false,
            leaves_engine: false,
            queued_priority: None,
            told: None,
            learned: None,
            key: None,
            progress_samples: Vec::new(),
        }
    }

    /// Sets or removes a label.
    pub(crate) fn set_label(&mut self, key: &str, value: Option<&str>) {
        let labels = &mut Arc::make_mut(&mut self.request).labels;
        match value {
            Some(value) => drop(labels.insert(key.to_owned(), value.to_owned())),
            None => drop(labels.remove(key)),
        }
    }

    /// Returns the idempotency key of the request.
    pub(crate) fn key(&self) -> Option<&String> {
        self.key.as_ref()
    }

    /// Returns how long it waited until it first got GPUs, or until it ended without, or so far.
    pub fn wait(&self, now: Time) -> Time {
        let started = self.attempts.first().map(|a| a.since);
        let until = started.unwrap_or(if self.state.has_ended() { self.since } else { now });
        until.since(self.submitted)
    }

    /// Returns the GPU time by day, as days since 1970 and GPU-microseconds.
    pub fn usage_by_day(&self, now: Time) -> BTreeMap<i64, i128> {
        const DAY_US: i64 = 86_400_000_000;
        let mut days: BTreeMap<i64, i128> = BTreeMap::new();
        for attempt in &self.attempts {
            let (mut from, until) = (attempt.since.0, attempt.until.unwrap_or(now).0);
            while from < until {
                let day = from.div_euclid(DAY_US);
                let to = until.min((day + 1) * DAY_US);
                *days.entry(day).or_default() +=
                    i128::from(to - from) * i128::from(attempt.allocation.gpus());
                from = to;
            }
        }
        days
    }

    /// Returns the engine's handle of the job, from the last time it was queued.
    pub fn job_key(&self) -> Option<JobKey> {
        self.job_key
    }

    /// Returns the last attempt.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// Returns the attempt with this number if it is the last one and has not ended.
    pub(in crate::state) fn open_attempt(&mut self, attempt_id: AttemptId) -> Option<&mut Attempt> {
        self.attempts.last_mut().filter(|a| a.is_open(attempt_id))
    }

    /// Sets how the last attempt ended.
    pub(in crate::state) fn end_attempt(&mut self, end: AttemptEnd) {
        let attempt = self.attempts.last_mut();
        attempt.expect("only a job with an attempt ends one").end = Some(end);
    }

    /// Returns whether the process on the first node was all there was and has ended, or the completion rules are met:
    /// the remaining tasks only hold their nodes.
    pub(in crate::state) fn only_holds_nodes(&self, attempt_id: AttemptId) -> bool {
        let attempt = self.attempt().filter(|a| a.id == attempt_id);
        if attempt.is_some_and(|a| matches!(a.verdict, Some(Verdict::Succeeded(_)))) {
            return true;
        }
        let first = attempt.and_then(|a| a.tasks.first());
        self.request.processes == Processes::FirstNode && first.is_some_and(TaskState::has_ended)
    }

    /// Adds a progress report of an attempt.
    pub(in crate::state) fn record_progress(&mut self, now: Time, reported: Progress) {
        if self.progress_samples.len() >= MAX_SAMPLES {
            let mut keep = false;
            self.progress_samples.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.progress_samples.push(ProgressSample {
            at: now,
            step: reported.step,
            step_time: reported.step_time,
        });
        self.progress = Progress {
            checkpoint: reported.checkpoint.max(self.progress.checkpoint),
            ..reported
        };
    }

    /// Returns what it has received by now in all its attempts.
    pub fn service(&self, now: Time) -> EarlierService {
        self.service_of(&self.attempts, now)
    }

    /// Returns what it had received before its last attempt.
    pub fn service_before_last_attempt(&self) -> EarlierService {
        let before = self.attempts.split_last().map_or(&[][..], |(_, before)| before);
        self.service_of(before, Time::ZERO)
    }

    fn service_of(&self, attempts: &[Attempt], now: Time) -> EarlierService {
        let earlier = self.earlier.unwrap_or_default();
        let service = attempts.iter().fold(earlier, |sum, a| sum.with(a, now));
        EarlierService {
            progress: self.progress,
            ..service
        }
    }

    /// Returns the number of its last attempt; zero if there was none.
    pub fn last_attempt(&self) -> AttemptId {
        let earlier = self.earlier.map_or(0, |earlier| earlier.attempts);
        self.attempt().map_or(earlier, |attempt| attempt.id)
    }

    /// Returns what the engine has to know about earlier attempts, if there were any.
    pub(in crate::state) fn history(&self, now: Time) -> Option<JobHistory> {
        let service = self.service(now);
        if service.first_start.is_none() && self.queued_since.is_none() {
            return None;
        }
        Some(JobHistory {
            held: service.held,
            gpu_time: i128::from(service.gpu_time),
            done: self.saved_work(),
            preemptions: service.preemptions,
            first_start: service.first_start,
            waiting_since: self.queued_since.or(self.waiting_since()),
            alive: self.alive,
        })
    }

    /// Returns since when it waits for GPUs, as in the engine: from when the scheduler told it to stop.
    pub fn waiting_since(&self) -> Option<Time> {
        match &self.state {
            JobState::Stopping(_) => Some(self.since),
            JobState::Queued => {
                let stopped = self.attempt().filter(|a| a.until == Some(self.since));
                let stopped = stopped.and_then(Attempt::stopped_by_scheduler);
                Some(stopped.unwrap_or(self.since))
            }
            _ => None,
        }
    }

    /// Returns for how long it held GPUs, scaled to the number it asks for.
    pub(in crate::state) fn held_work(&self) -> Work {
        let gpus = i128::from(self.request.gpus.max(1));
        Work(u64::try_from(self.gpu_time(self.since) / gpus).unwrap_or(0))
    }

    /// Returns the GPU time of all attempts up to now, in GPU-microseconds.
    pub fn gpu_time(&self, now: Time) -> i128 {
        let one = |a: &Attempt| {
            let span = a.until.unwrap_or(now).since(a.since);
            i128::from(span.0) * i128::from(a.allocation.gpus())
        };
        let earlier = self.earlier.map_or(0, |earlier| earlier.gpu_time);
        i128::from(earlier) + self.attempts.iter().map(one).sum::<i128>()
    }
}
