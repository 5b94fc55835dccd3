//! Records of jobs: request, state, attempts and progress.

use dovetail_model::{JobHistory, JobKey, Time, Work};
use serde::{Deserialize, Serialize};

use super::{Attempt, AttemptEnd, Cause, JobState, TaskState, Verdict};
use crate::actor::Actor;
use crate::request::{JobRequest, Processes};
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
    /// Last step with a complete checkpoint.
    pub checkpoint: u64,
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
    pub request: Box<JobRequest>,
    /// When it was submitted.
    pub submitted: Time,
    /// Current state.
    pub state: JobState,
    /// When it entered this state.
    pub since: Time,
    /// The engine's handle of the job, from the last time it was queued.
    #[serde(alias = "ticket")]
    pub(in crate::state) job_key: Option<JobKey>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
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
    pub(in crate::state) fn new(id: JobId, user: &str, request: &JobRequest, submitted: Time) -> Self {
        Self {
            id,
            user: user.to_owned(),
            request: Box::new(request.clone()),
            submitted,
            state: JobState::Queued,
            since: submitted,
            job_key: None,
            attempts: Vec::new(),
            progress: Progress::default(),
            failures: Failures::default(),
            cancelled: None,
            hold_after_stop: None,
            workload_missing: false,
            leaves_engine: false,
            queued_priority: None,
            told: None,
            key: None,
            progress_samples: Vec::new(),
        }
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

    /// Returns what the engine has to know about earlier attempts, if there were any.
    pub(in crate::state) fn history(&self, now: Time) -> Option<JobHistory> {
        let first = self.attempts.first()?;
        let span = |a: &Attempt| a.until.unwrap_or(now).since(a.since);
        let preempted = |a: &&Attempt| matches!(a.end, Some(AttemptEnd::Stopped(Cause::Preempted(_))));
        Some(JobHistory {
            held: self.attempts.iter().map(span).fold(Time::ZERO, |sum, t| sum + t),
            gpu_time: self.gpu_time(now),
            done: self.saved_work(),
            preemptions: self.attempts.iter().filter(preempted).count() as u32,
            first_start: Some(first.since),
            waiting_since: (self.state == JobState::Queued).then_some(self.since),
        })
    }

    /// Returns the GPU time of all attempts up to now, in GPU-microseconds.
    pub fn gpu_time(&self, now: Time) -> i128 {
        let one = |a: &Attempt| {
            let span = a.until.unwrap_or(now).since(a.since);
            i128::from(span.0) * i128::from(a.allocation.gpus())
        };
        self.attempts.iter().map(one).sum()
    }
}
