//! Jobs: what is known of each, and how they come, wait, and go.

use dovetail_model::{
    Allocation, AttemptKey, Event, GpuTypeId, JobHistory, JobKey, JobSpec, NodeId, RestoredJob, TenantId,
    Time, UserId, Work,
};
use serde::{Deserialize, Serialize};

use super::{ClusterState, EventKind, Names};
use crate::actor::Actor;
use crate::fact::{Fact, InstanceEnd, TaskEnd};
use crate::request::{AfterWhen, JobRequest};
use crate::{AttemptId, JobId};

/// Why a job waits although it is not in line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Somebody wants it to.
    User(Actor),
    /// For other jobs.
    After(Vec<JobId>),
    /// As many of its array run as may.
    Array,
    /// Its user has as many GPUs in its virtual cluster as one user may.
    Cap,
    /// What it consists of is being made anew.
    #[serde(alias = "parts")]
    Workload,
}

/// Why an attempt was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Jobs ahead of it in line need its GPUs: this one, where it can be told.
    Preempted(Option<JobId>),
    /// It goes on on other GPUs.
    Moved,
    /// It goes on on more or fewer GPUs.
    Resized,
    /// A node is gone.
    NodeLost(NodeId),
    /// Somebody does not want it any more.
    Cancelled(Actor),
    /// Somebody wants it to wait.
    Held(Actor),
    /// It has run for as long as it may.
    TimeLimit,
    /// It failed on its own, and may try again.
    Failed,
    /// The platform failed it: it could not be started, or was lost.
    Platform(String),
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All its processes ended well.
    Completed,
    /// A process of it failed.
    Failed {
        /// Its exit code.
        exit_code: i32,
        /// The signal that ended it; zero if none did.
        signal: i32,
        /// What it means, as far as can be told.
        #[serde(alias = "why")]
        reason: String,
    },
    /// Somebody did not want it any more.
    Cancelled(Actor),
    /// It ran for as long as it may.
    TimeLimit,
    /// It could never run here.
    Rejected(String),
    /// A job it waited for did not end as it should have.
    DependencyFailed(JobId),
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for something other than GPUs.
    Held(Hold),
    /// It stands in line.
    Queued,
    /// Its processes are being started.
    Starting,
    /// It runs.
    Running,
    /// It was told to stop.
    Stopping(Cause),
    /// It is over.
    Ended(End),
}

impl JobState {
    /// Whether the engine knows of it.
    pub(super) fn is_in_engine(&self) -> bool {
        !matches!(self, Self::Held(_) | Self::Ended(_))
    }

    /// Whether it holds GPUs.
    pub fn holds_gpus(&self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Stopping(_))
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// Where the task of an attempt on one node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Its agent was told to start it.
    Starting,
    /// Its processes run.
    Running,
    /// They have ended.
    Ended(Box<TaskEnd>),
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// Well.
    Completed,
    /// It was stopped.
    Stopped(Cause),
    /// It failed.
    Failed(String),
}

/// One launch of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which.
    pub id: AttemptId,
    /// The engine's number for it.
    pub(super) key: AttemptKey,
    /// When its GPUs were given.
    pub since: Time,
    /// When all its processes ran.
    pub running_since: Option<Time>,
    /// When the last of them ended.
    pub until: Option<Time>,
    /// What it holds.
    pub allocation: Allocation,
    /// Its task on each node of the allocation, in that order.
    pub tasks: Vec<TaskState>,
    /// Why it was told to stop, if it was.
    pub cause: Option<Cause>,
    /// How GPUs are shared, where they are.
    pub sharing: String,
    /// Whether it was given other CPU and memory while it ran.
    #[serde(default)]
    pub(super) resized: bool,
    /// Instances of its roles that have ended, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<InstanceEnd>,
    /// What the completion rules of its roles have decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What its agents have to say, such as an image that was not used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// How it ended.
    pub end: Option<AttemptEnd>,
}

impl Attempt {
    /// A launch that has just got its GPUs.
    pub(super) fn new(
        id: AttemptId,
        key: AttemptKey,
        since: Time,
        tasks: Vec<TaskState>,
        allocation: Allocation,
    ) -> Self {
        Self {
            id,
            key,
            since,
            running_since: None,
            until: None,
            tasks,
            allocation,
            cause: None,
            sharing: String::new(),
            resized: false,
            ends: Vec::new(),
            verdict: None,
            remarks: Vec::new(),
            end: None,
        }
    }
}

/// What the completion rules of a job's roles say of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Enough instances of this role have succeeded.
    Succeeded(String),
    /// Too many instances of this role have failed; the last of them ended so.
    Failed(String, InstanceEnd),
}

/// How far a job is, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Of how many; zero if not known.
    pub total: u64,
    /// Time of a step.
    pub step_time: Time,
    /// The last step whose checkpoint is whole.
    pub checkpoint: u64,
}

/// Failures so far, by whose fault they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failures {
    /// Its own.
    pub user: u32,
    /// The platform's.
    pub platform: u32,
    /// Nodes that were lost.
    pub node: u32,
}

/// All that is known of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its number.
    pub id: JobId,
    /// Who sent it.
    pub user: String,
    /// What was asked for.
    pub request: Box<JobRequest>,
    /// When it came.
    pub submitted: Time,
    /// Where it is.
    pub state: JobState,
    /// Since when.
    pub since: Time,
    /// The engine's number for it, of the last time it stood in line.
    pub(crate) job_key: Option<JobKey>,
    /// Its launches, oldest first.
    pub attempts: Vec<Attempt>,
    /// How far it is.
    #[serde(alias = "steps")]
    pub progress: Progress,
    /// What went wrong so far.
    pub failures: Failures,
    /// Who cancelled it while it held GPUs.
    pub(super) cancelled: Option<Actor>,
    /// Who wants it to wait once it has stopped.
    pub(super) hold_after_stop: Option<Actor>,
    /// What it consists of is gone: it waits for that once it has stopped.
    #[serde(default, alias = "scattered", skip_serializing_if = "std::ops::Not::not")]
    pub(super) workload_missing: bool,
    /// What its sender called the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// How far it was at some moments, oldest first.
    #[serde(default, alias = "trail", skip_serializing_if = "Vec::is_empty")]
    pub progress_samples: Vec<ProgressSample>,
}

/// How far a job was at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressSample {
    /// When.
    pub at: Time,
    /// Steps done.
    pub step: u64,
    /// Time of a step.
    pub step_time: Time,
}

/// Marks that are kept of a job; of more, every other one is dropped.
const MARKS: usize = 240;

impl JobRecord {
    /// A job that has just come.
    pub(super) fn new(no: JobId, user: &str, request: &JobRequest, submitted: Time) -> Self {
        Self {
            id: no,
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
            key: None,
            progress_samples: Vec::new(),
        }
    }

    /// Its last launch.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    pub(super) fn attempt_of(&mut self, attempt_id: AttemptId) -> Option<&mut Attempt> {
        self.attempts
            .last_mut()
            .filter(|a| a.id == attempt_id && a.end.is_none())
    }

    /// What it has had, if it was launched before.
    pub(super) fn past(&self) -> Option<JobHistory> {
        let first = self.attempts.first()?;
        let span = |a: &Attempt| a.until.unwrap_or(a.since).since(a.since);
        let preempted = |a: &&Attempt| matches!(a.end, Some(AttemptEnd::Stopped(Cause::Preempted(_))));
        Some(JobHistory {
            held: self.attempts.iter().map(span).fold(Time::ZERO, |sum, t| sum + t),
            gpu_time: self.gpu_time(first.since),
            done: Work(0),
            preemptions: self.attempts.iter().filter(preempted).count() as u32,
            first_start: Some(first.since),
        })
    }

    /// GPU time of all its launches up to now, in GPU-microseconds.
    pub fn gpu_time(&self, now: Time) -> i128 {
        let one = |a: &Attempt| {
            let span = a.until.unwrap_or(now).since(a.since);
            i128::from(span.0) * i128::from(a.allocation.gpus())
        };
        self.attempts.iter().map(one).sum()
    }
}

impl ClusterState {
    pub(super) fn submitted(&mut self, no: JobId, user: &str, request: &JobRequest, key: Option<&String>) {
        if !self.enrol(no, user, request, key) {
            return;
        }
        if request.hold {
            self.set(no, JobState::Held(Hold::User(Actor::user(user))));
        } else {
            self.line_up(no);
        }
    }

    /// Writes a new job down; whether it is one.
    pub(super) fn enrol(
        &mut self,
        no: JobId,
        user: &str,
        request: &JobRequest,
        key: Option<&String>,
    ) -> bool {
        if no < self.next_job() {
            return false;
        }
        let mut record = JobRecord::new(no, user, request, self.now);
        record.since = self.now;
        record.key = key.cloned();
        if let Some(key) = key {
            self.keys.insert((user.to_owned(), key.clone()), no);
        }
        self.jobs.insert(no, record);
        self.live.insert(no);
        for after in &request.after {
            self.waiting_for.entry(after.job).or_default().push(no);
        }
        self.log_event(Some(no), EventKind::Submitted);
        true
    }

    /// Puts a job in line, unless something else must happen first.
    pub(super) fn line_up(&mut self, no: JobId) {
        match self.what_is_missing(no) {
            Ok(None) => self.enter_engine(no),
            Ok(Some(hold)) => self.set(no, JobState::Held(hold)),
            Err(other) => self.end(no, End::DependencyFailed(other)),
        }
    }

    /// What the job has to wait for; or the job for which it waits in vain.
    fn what_is_missing(&self, no: JobId) -> Result<Option<Hold>, JobId> {
        let request = &self.jobs[&no].request;
        let mut open = Vec::new();
        for after in &request.after {
            let end = self.jobs.get(&after.job).map(|j| &j.state);
            match (end, after.when) {
                (Some(JobState::Ended(End::Completed)), AfterWhen::Ok | AfterWhen::Any) => {}
                (Some(JobState::Ended(End::Completed)), AfterWhen::NotOk) => return Err(after.job),
                (Some(JobState::Ended(_)), AfterWhen::Any | AfterWhen::NotOk) => {}
                (Some(JobState::Ended(_)), AfterWhen::Ok) | (None, _) => return Err(after.job),
                (Some(_), _) => open.push(after.job),
            }
        }
        if !open.is_empty() {
            return Ok(Some(Hold::After(open)));
        }
        if self.array_is_full(no) {
            return Ok(Some(Hold::Array));
        }
        Ok(self.is_over_cap(no).then_some(Hold::Cap))
    }

    fn enter_engine(&mut self, no: JobId) {
        let job_key = self.job_ids.push(no);
        let users = self.names.users.len();
        let record = &self.jobs[&no];
        let spec = Self::spec(
            &mut self.names,
            &record.user,
            &record.request,
            record.submitted,
            job_key,
        );
        if self.names.users.len() > users {
            self.refresh_cells();
        }
        let record = self.known(no);
        record.job_key = Some(job_key);
        let past = record.past();
        self.set(no, JobState::Queued);
        match past {
            None => self.tell(Event::Submitted(spec)),
            Some(past) => self.tell(Event::Restored(Box::new(RestoredJob {
                spec,
                history: past,
                holds: None,
            }))),
        }
    }

    /// What the engine is told of the job.
    pub(crate) fn spec(
        names: &mut Names,
        user: &str,
        request: &JobRequest,
        submitted: Time,
        job_key: JobKey,
    ) -> JobSpec {
        let gpu_type = request.gpu_type.as_ref();
        JobSpec {
            tenant: TenantId(Names::number(&mut names.tenants, &request.tenant)),
            user: UserId(Names::number(&mut names.users, user)),
            priority: request.priority,
            min_gpus: request.min_gpus.unwrap_or(request.gpus),
            max_gpus: request.max_gpus.unwrap_or(request.gpus),
            gpu_type: gpu_type.map(|name| GpuTypeId(Names::number(&mut names.gpu_types, name))),
            cpu_milli_per_gpu: request.cpus_per_gpu.milli(),
            memory_mib_per_gpu: request.memory_mib_per_gpu,
            constraint: request.constraint,
            best_effort: request.spare,
            gpu_memory_mib: request.gpu_memory_mib,
            gpus_per_task: request.gpus_per_task,
            submit: submitted,
            expected: request.expected.map(|span| Work(span.0.max(0).unsigned_abs())),
            ..JobSpec::new(job_key, request.gpus)
        }
    }

    pub(super) fn cancelled(&mut self, no: JobId, by: &Actor) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        match &record.state {
            JobState::Ended(_) => {}
            JobState::Held(_) => self.end(no, End::Cancelled(by.clone())),
            JobState::Queued => {
                let job_key = record.job_key.expect("a job in line has a ticket");
                self.tell(Event::Cancelled { job: job_key });
                self.end(no, End::Cancelled(by.clone()));
            }
            JobState::Starting | JobState::Running | JobState::Stopping(_) => {
                record.cancelled.get_or_insert_with(|| by.clone());
                let job_key = record.job_key.expect("a job that holds GPUs has a job key");
                self.tell(Event::Cancelled { job: job_key });
            }
        }
    }

    pub(super) fn held(&mut self, no: JobId, by: &Actor) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        match &record.state {
            JobState::Ended(_) | JobState::Held(Hold::User(_)) => {}
            JobState::Held(_) => self.set(no, JobState::Held(Hold::User(by.clone()))),
            JobState::Queued => {
                let job_key = record.job_key.expect("a job in line has a ticket");
                self.tell(Event::Cancelled { job: job_key });
                self.set(no, JobState::Held(Hold::User(by.clone())));
            }
            JobState::Starting | JobState::Running | JobState::Stopping(_) => {
                record.hold_after_stop.get_or_insert_with(|| by.clone());
                let job_key = record.job_key.expect("a job that holds GPUs has a job key");
                self.tell(Event::Cancelled { job: job_key });
            }
        }
    }

    pub(super) fn released(&mut self, no: JobId, _by: &Actor) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        record.hold_after_stop = None;
        match (&record.state, record.workload_missing) {
            (JobState::Held(Hold::User(_)), true) => self.set(no, JobState::Held(Hold::Workload)),
            (JobState::Held(Hold::User(_)), false) => self.line_up(no),
            _ => {}
        }
    }

    pub(super) fn labelled(&mut self, no: JobId, key: &str, value: Option<&str>) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        match value {
            Some(value) => drop(record.request.labels.insert(key.to_owned(), value.to_owned())),
            None => drop(record.request.labels.remove(key)),
        }
    }

    pub(super) fn rejected(&mut self, job_key: JobKey, why: &str) {
        let no = self.job_ids[job_key];
        self.end(no, End::Rejected(why.to_owned()));
    }

    pub(super) fn progressed(&mut self, fact: &Fact) {
        let Fact::Progressed {
            job,
            attempt: attempt_id,
            step,
            total_steps,
            step_time,
            checkpoint_step,
        } = fact
        else {
            return;
        };
        let now = self.now;
        let Some(record) = self.jobs.get_mut(job) else {
            return;
        };
        if record.attempt_of(*attempt_id).is_some() {
            if record.progress_samples.len() >= MARKS {
                let mut keep = false;
                record.progress_samples.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
            record.progress_samples.push(ProgressSample {
                at: now,
                step: *step,
                step_time: *step_time,
            });
            record.progress = Progress {
                step: *step,
                total: *total_steps,
                step_time: *step_time,
                checkpoint: (*checkpoint_step).max(record.progress.checkpoint),
            };
        }
    }

    pub(super) fn known(&mut self, no: JobId) -> &mut JobRecord {
        self.jobs.get_mut(&no).expect("a job that is dealt with is known")
    }

    /// The job is here now.
    pub(super) fn set(&mut self, no: JobId, state: JobState) {
        let now = self.now;
        match state.holds_gpus() {
            true => self.up.insert(no),
            false => self.up.remove(&no),
        };
        match state.has_ended() {
            true => self.live.remove(&no),
            false => self.live.insert(no),
        };
        match state == JobState::Held(Hold::Cap) {
            true => self.capped.insert(no),
            false => self.capped.remove(&no),
        };
        let record = self.known(no);
        (record.state, record.since) = (state.clone(), now);
        let what = match state {
            JobState::Held(hold) => EventKind::Held(hold),
            JobState::Queued => EventKind::Queued,
            JobState::Running => EventKind::Running,
            JobState::Stopping(cause) => EventKind::Stopping(cause),
            JobState::Ended(end) => EventKind::Ended(end),
            JobState::Starting => {
                let allocation = record.attempt().map(|a| a.allocation.clone()).unwrap_or_default();
                EventKind::Starting {
                    nodes: allocation.shares.iter().map(|s| s.node).collect(),
                    gpus: allocation.gpus(),
                }
            }
        };
        self.log_event(Some(no), what);
    }

    /// The job is over; those who waited for that are looked at.
    pub(super) fn end(&mut self, no: JobId, end: End) {
        self.set(no, JobState::Ended(end));
        for waiting in self.waiting_for.remove(&no).unwrap_or_default() {
            if matches!(self.jobs[&waiting].state, JobState::Held(Hold::After(_))) {
                self.line_up(waiting);
            }
        }
        self.next_of_array(no);
        if !self.capped.is_empty() {
            self.let_in_below_caps();
        }
        self.instance_job_ended(no);
    }

    /// Builds what can be found by other keys, after loading.
    pub(super) fn index(&mut self) {
        for record in self.jobs.values() {
            if let Some(key) = &record.key {
                self.keys.insert((record.user.clone(), key.clone()), record.id);
            }
        }
        for record in self.jobs.values().filter(|j| !j.state.has_ended()) {
            self.live.insert(record.id);
            for after in &record.request.after {
                self.waiting_for.entry(after.job).or_default().push(record.id);
            }
            if record.state.holds_gpus() {
                self.up.insert(record.id);
            }
            if record.state == JobState::Held(Hold::Cap) {
                self.capped.insert(record.id);
            }
            let running = record.attempt().filter(|_| record.state == JobState::Running);
            let since = running.and_then(|a| Some((a.id, a.running_since?)));
            if let (Some(limit), Some((attempt_id, since))) = (record.request.time_limit, since) {
                let at = since + limit;
                self.limits.insert((at, record.id), attempt_id);
            }
        }
    }
}
