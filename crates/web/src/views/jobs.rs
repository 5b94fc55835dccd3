//! Bodies of jobs.

use std::collections::BTreeMap;

use dovetail_cluster::state::{
    Attempt, AttemptEnd, Cause, ClusterState, End, JobRecord, JobState, NodeSlots, SubmissionPreview,
    TaskState,
};
use dovetail_cluster::{JobId, JobRequest};
use dovetail_jobfile::{ArrayRequest, JobFile};
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gates::GatesView;
use super::profiles::EstimateView;
use super::roles::{RoleView, role_views};
use crate::accounts::User;
use crate::failure_hints::failure_hint;

/// A job, or an array of jobs, to submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The job.
    pub job: JobRequest,
    /// The array of such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayRequest>,
    /// Whether to return a preview without submitting the job.
    #[serde(default)]
    pub dry_run: bool,
}

impl Submission {
    /// Creates the submission of a job file.
    pub fn new(file: JobFile, dry_run: bool) -> Self {
        Self {
            job: file.job,
            array: file.array,
            dry_run,
        }
    }
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitResponse {
    /// Id of the job, or of the first job of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// Id of the last job of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<JobId>,
    /// Preview, for a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<SubmissionPreview>,
    /// Parts of an OpenPAI file that are ignored or work differently here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

/// An attempt to run a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// Number of the attempt, from 1.
    pub attempt: u64,
    /// When GPUs were allocated, in microseconds since 1970 like all times here.
    #[schemars(with = "i64")]
    pub since: Time,
    /// When all its processes were running.
    #[schemars(with = "Option<i64>")]
    pub running_since: Option<Time>,
    /// When the last of its processes ended.
    #[schemars(with = "Option<i64>")]
    pub until: Option<Time>,
    /// GPUs, by node.
    pub placement: Vec<NodeSlots>,
    /// CPU on each node, in the same order, in milli-cores; zero if not limited.
    #[serde(default)]
    pub cpu_milli: Vec<u32>,
    /// Memory on each node, in the same order, in MiB; zero if not limited.
    #[serde(default)]
    pub memory_mib: Vec<u64>,
    /// CPU per GPU with which it is measured at the moment, in milli-cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_trial: Option<u32>,
    /// State of the task on each node, in the same order: `starting`, `running` or `ended`.
    pub tasks: Vec<String>,
    /// How the attempt ended, or why it is stopping.
    pub end: Option<String>,
    /// How its GPUs are shared with other jobs now: `stage gates`, `mps` or `time slices`; empty if they are not.
    pub sharing: String,
    /// The other jobs on its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<JobId>,
    /// How its stages take turns with those of the other jobs, if stage gates are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<GatesView>,
    /// Differences from the request, such as an image that was not used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Last output of the first task that failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_output: String,
}

/// Progress that a job reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepsView {
    /// Number of steps done.
    pub step: u64,
    /// Total number of steps; 0 if unknown.
    pub total: u64,
    /// Time per step, in microseconds.
    #[schemars(with = "i64")]
    pub step_time: Time,
    /// Last step with a complete checkpoint.
    pub checkpoint: u64,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobView {
    /// Job id.
    pub id: JobId,
    /// Name of the job.
    pub name: String,
    /// User that submitted it.
    pub user: String,
    /// Virtual cluster of the job.
    pub tenant: String,
    /// State: queued, held, starting, running, stopping, completed, failed or cancelled.
    pub state: String,
    /// Reason for the state, in a word: `preempted` (queued), `time-limit` or `rejected` (failed),
    /// `dependency-failed` (cancelled); otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state_reason: String,
    /// Explanation of the state, in a sentence.
    pub detail: String,
    /// Start of the state.
    #[schemars(with = "i64")]
    pub since: Time,
    /// Exit code, if the job has ended.
    pub exit_code: Option<i32>,
    /// Number of GPUs it requests.
    pub gpus: u32,
    /// Priority; a larger number is more urgent.
    pub priority: i32,
    /// When the job was submitted.
    #[schemars(with = "i64")]
    pub submitted: Time,
    /// When its processes first ran.
    #[schemars(with = "Option<i64>")]
    pub started: Option<Time>,
    /// When the job ended; none if it has not.
    #[schemars(with = "Option<i64>")]
    pub ended: Option<Time>,
    /// GPUs that it holds, by node.
    pub placement: Vec<NodeSlots>,
    /// Progress, if the job reports any.
    pub steps: Option<StepsView>,
    /// How long it is expected to run; none if nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateView>,
    /// GPU-seconds so far.
    pub gpu_seconds: f64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Number of attempts.
    pub attempt_count: u64,
    /// Attempts, oldest first; not in the list of jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptView>,
    /// Advice for a failed job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Roles, with their instances in the last attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleView>,
    /// The request, for the owner and administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<JobRequest>,
}

/// A page of the list of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobPage {
    /// Jobs, newest first unless sorted otherwise.
    pub jobs: Vec<JobView>,
    /// The value of `cursor` for the next page; none on the last page.
    pub next: Option<String>,
    /// Number of jobs on all pages.
    pub total: u64,
}

/// A new priority for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPriority {
    /// Priority; a larger number is more urgent.
    pub priority: i32,
}

/// An action on several jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkAction {
    /// `stop`, `hold` or `release`.
    pub action: String,
    /// Job ids.
    pub ids: Vec<JobId>,
}

/// The result of an action on one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActionResult {
    /// Job id.
    pub id: JobId,
    /// Whether the action succeeded.
    pub ok: bool,
    /// Reason for the failure.
    pub detail: String,
}

/// The progress of a job at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgressPoint {
    /// Time of the report.
    #[schemars(with = "i64")]
    pub at: Time,
    /// Number of steps done.
    pub step: u64,
    /// Total number of steps; 0 if unknown.
    pub total: u64,
    /// Time per step, in microseconds.
    pub step_time_us: i64,
    /// Last step with a complete checkpoint.
    pub checkpoint: u64,
}

/// The contents of a job file, or what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileCheck {
    /// Format: `native` or `openpai`.
    pub kind: String,
    /// The job, if the file is valid.
    pub job: Option<JobRequest>,
    /// The array of such jobs.
    pub array: Option<ArrayRequest>,
    /// Parts of an OpenPAI file that are ignored or work differently here.
    pub ignored: Vec<String>,
    /// Errors.
    pub errors: Vec<String>,
}

/// Returns the state of a job and the reason for it, each in a word; the reason may be empty.
pub(crate) fn state_of(job: &JobRecord) -> (&'static str, &'static str) {
    let last = job.attempt().and_then(|a| a.end.as_ref());
    match &job.state {
        JobState::Held(_) => ("held", ""),
        JobState::Queued => match last {
            Some(AttemptEnd::Stopped(Cause::Preempted(_))) => ("queued", "preempted"),
            _ => ("queued", ""),
        },
        JobState::Starting => ("starting", ""),
        JobState::Running => ("running", ""),
        JobState::Stopping(_) => ("stopping", ""),
        JobState::Ended(end) => end.state_words(),
    }
}

fn detail(state: &ClusterState, job: &JobRecord) -> String {
    let last = job.attempt().and_then(|a| a.end.as_ref());
    match (&job.state, last) {
        (JobState::Queued, Some(AttemptEnd::Stopped(cause))) => {
            let at = job.attempt().and_then(|a| a.until).unwrap_or(job.since);
            format!("stopped: {}", cause.sentence(state, at))
        }
        (JobState::Queued, Some(AttemptEnd::Failed(reason))) => format!("retried after a failure: {reason}"),
        (JobState::Held(_) | JobState::Stopping(_), _) => state.explain(job.id).unwrap_or_default().sentence,
        (JobState::Ended(end), _) => end.sentence(),
        (JobState::Queued | JobState::Starting | JobState::Running, _) => String::new(),
    }
}

/// Returns the other jobs on the GPUs of an attempt; none if it has ended.
fn shared_with(state: &ClusterState, job: &JobRecord, attempt: &Attempt) -> Vec<JobId> {
    let overlaps = |other: &&JobRecord| {
        let attempt_of_other = other.attempt().filter(|a| a.end.is_none());
        other.id != job.id && attempt_of_other.is_some_and(|a| a.allocation.overlaps(&attempt.allocation))
    };
    match attempt.end {
        None => state
            .active_jobs()
            .filter(overlaps)
            .map(|other| other.id)
            .collect(),
        Some(_) => Vec::new(),
    }
}

impl AttemptView {
    fn new(state: &ClusterState, job: &JobRecord, attempt: &Attempt) -> Self {
        let task = |state: &TaskState| match state {
            TaskState::Starting => "starting".to_owned(),
            TaskState::Running => "running".to_owned(),
            TaskState::Ended(_) => "ended".to_owned(),
        };
        let end = match (&attempt.end, &attempt.cause) {
            (Some(AttemptEnd::Completed), _) => Some("completed".to_owned()),
            (Some(AttemptEnd::Stopped(cause)), _) | (None, Some(cause)) => {
                let at = attempt.until.unwrap_or(state.now());
                Some(format!("{}: {}", cause.word(), cause.sentence(state, at)))
            }
            (Some(AttemptEnd::Failed(reason)), _) => Some(format!("failed: {reason}")),
            (None, None) => None,
        };
        let last_output = attempt.tasks.iter().find_map(|task| match task {
            TaskState::Ended(end) if end.exit_code != 0 || end.signal != 0 => Some(end.log_tail.clone()),
            _ => None,
        });
        let shares = &attempt.allocation.shares;
        let shared_with = shared_with(state, job, attempt);
        let gates = GatesView::new(state, job, attempt).filter(|_| !shared_with.is_empty());
        Self {
            attempt: attempt.id,
            since: attempt.since,
            running_since: attempt.running_since,
            until: attempt.until,
            placement: state.node_slots(&attempt.allocation),
            cpu_milli: (0..shares.len())
                .map(|place| attempt.cpu_milli_at(place))
                .collect(),
            memory_mib: shares.iter().map(|share| share.memory_mib).collect(),
            cpu_trial: attempt.trial.as_ref().map(|trial| trial.cpu_milli_per_gpu),
            tasks: attempt.tasks.iter().map(task).collect(),
            end,
            sharing: match (&gates, shared_with.is_empty()) {
                (_, true) => String::new(),
                (Some(_), false) => "stage gates".to_owned(),
                (None, false) => attempt.sharing.clone(),
            },
            shared_with,
            gates,
            remarks: attempt.remarks.clone(),
            last_output: last_output.unwrap_or_default(),
        }
    }
}

impl JobView {
    /// Whether the job has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the number of GPUs it holds, or requests if it holds none. An elastic job may hold more or fewer than it
    /// requests.
    pub fn held_gpus(&self) -> u32 {
        match self.placement.is_empty() {
            true => self.gpus,
            false => self.placement.iter().map(|slots| slots.gpus.len() as u32).sum(),
        }
    }

    /// Returns the state with its reason: `running`, `queued (preempted)`.
    pub fn state_text(&self) -> String {
        match self.state_reason.as_str() {
            "" => self.state.clone(),
            reason => format!("{} ({reason})", self.state),
        }
    }

    /// Renders a job for the list of jobs.
    pub(crate) fn summary(state: &ClusterState, job: &JobRecord) -> Self {
        let end = match &job.state {
            JobState::Ended(end) => Some(end),
            _ => None,
        };
        let current = job.attempt().filter(|_| job.state.holds_gpus());
        let (word, reason) = state_of(job);
        Self {
            id: job.id,
            name: job.request.name.clone(),
            user: job.user.clone(),
            tenant: job.request.tenant.clone(),
            state: word.to_owned(),
            state_reason: reason.to_owned(),
            detail: detail(state, job),
            since: job.since,
            exit_code: end.map(End::exit_code),
            gpus: job.request.gpus,
            priority: job.request.priority,
            submitted: job.submitted,
            started: job.attempts.iter().find_map(|a| a.running_since),
            ended: end.map(|_| job.since),
            placement: current.map_or(Vec::new(), |a| state.node_slots(&a.allocation)),
            steps: (job.progress.step > 0 || job.progress.checkpoint > 0).then_some(StepsView {
                step: job.progress.step,
                total: job.progress.total,
                step_time: job.progress.step_time,
                checkpoint: job.progress.checkpoint,
            }),
            estimate: EstimateView::new(job),
            gpu_seconds: job.gpu_time(state.now()) as f64 / 1e6,
            labels: job.request.labels.clone(),
            attempt_count: job.attempts.len() as u64,
            attempts: Vec::new(),
            hint: String::new(),
            request: None,
            roles: Vec::new(),
        }
    }

    /// Renders a job with its attempts and roles. Only users who may control it see its request and output.
    pub(crate) fn full(state: &ClusterState, job: &JobRecord, user: &User) -> Self {
        let attempts = job.attempts.iter();
        let mut view = Self {
            attempts: attempts.map(|a| AttemptView::new(state, job, a)).collect(),
            roles: role_views(state, job),
            ..Self::summary(state, job)
        };
        if user.may_control(state, job) {
            view.request = Some(job.request.without_secrets());
            if let JobState::Ended(end) = &job.state {
                let output = view.attempts.last().map(|a| a.last_output.as_str());
                view.hint = failure_hint(end, output.unwrap_or_default());
            }
        } else {
            // The output of a process may contain anything.
            view.attempts.iter_mut().for_each(|a| a.last_output.clear());
        }
        view
    }
}
