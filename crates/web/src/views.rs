//! What the API says, as data: the same types are written by the server and read by the command line.

use std::collections::BTreeMap;

use dovetail_control::book::{
    Attempt, AttemptEnd, Book, Cause, JobRecord, JobState, NodeState, Notice, Outlook, Seats, TaskState, What,
};
use dovetail_control::{JobNo, JobRequest, Operate};
use dovetail_model::Time;
use serde::{Deserialize, Serialize};

use crate::User;

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    pub admin: bool,
}

/// A user to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    #[serde(default)]
    pub admin: bool,
}

/// A token, shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The token.
    pub token: String,
}

/// Jobs that differ in an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayRequest {
    /// One job for each.
    pub indices: Vec<u32>,
    /// So many run at once at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
}

/// A job, or an array of them, to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The job.
    pub job: JobRequest,
    /// An array of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayRequest>,
    /// Only say what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// The number of the job, or of the first of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobNo>,
    /// The number of the last of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<JobNo>,
    /// What would happen, for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Outlook>,
}

/// One launch of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Which.
    pub launch: u64,
    /// When GPUs were given, in microseconds since 1970 as all times here.
    pub since: Time,
    /// When all its processes ran.
    pub running_since: Option<Time>,
    /// When the last of them ended.
    pub until: Option<Time>,
    /// Its GPUs.
    pub seats: Vec<Seats>,
    /// Of the tasks, in the same order: `starting`, `running` or `ended`.
    pub tasks: Vec<String>,
    /// How it ended, or why it was told to stop.
    pub end: Option<String>,
    /// How GPUs are shared, where they are.
    pub sharing: String,
    /// What the first task that failed printed last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_words: String,
}

/// How far a job is, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsView {
    /// Steps done.
    pub step: u64,
    /// Of how many; zero if not known.
    pub total: u64,
    /// Time of a step.
    pub step_time: Time,
    /// The last step whose checkpoint is whole.
    pub checkpoint: u64,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its number.
    pub id: JobNo,
    /// Its name.
    pub name: String,
    /// Who sent it.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// In a word: held, queued, preempted, starting, running, stopping, completed, failed, cancelled, time-limit,
    /// rejected or dependency-failed.
    pub state: String,
    /// More of it, in a sentence.
    pub detail: String,
    /// Since when.
    pub since: Time,
    /// Whether it is over.
    pub over: bool,
    /// The exit code, of one that is over.
    pub exit_code: Option<i32>,
    /// GPUs it asks for.
    pub gpus: u32,
    /// Larger is more urgent.
    pub priority: i32,
    /// When it came.
    pub submitted: Time,
    /// When its processes first ran.
    pub started: Option<Time>,
    /// When it was over.
    pub ended: Option<Time>,
    /// Where it is.
    pub seats: Vec<Seats>,
    /// How far it is.
    pub steps: Option<StepsView>,
    /// GPU-seconds so far.
    pub gpu_seconds: f64,
    /// Marks of its owner.
    pub labels: BTreeMap<String, String>,
    /// Its launches; in the list of jobs only how many.
    pub launches: u64,
    /// Its launches, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptView>,
    /// What was asked for, for its owner and administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<JobRequest>,
}

/// A page of the list of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobPage {
    /// The jobs, newest first.
    pub jobs: Vec<JobView>,
    /// Ask with `before` this for the next page; none if this is the last.
    pub next: Option<JobNo>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// `up`, `draining` or `lost`.
    pub state: String,
    /// More of it.
    pub detail: String,
    /// Since when.
    pub since: Time,
    /// Whether its agent is connected now.
    pub connected: bool,
    /// The kind of its GPUs.
    pub gpu_type: String,
    /// GPUs it has.
    pub gpus: u32,
    /// GPUs that are held.
    pub used_gpus: u32,
    /// CPUs in thousandths.
    pub cpu_milli: u32,
    /// Memory.
    pub memory_mib: u64,
    /// Its rack.
    pub rack: String,
    /// Where others reach it.
    pub address: String,
    /// Jobs on it.
    pub jobs: Vec<JobNo>,
}

/// The cluster at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The time there.
    pub now: Time,
    /// The policy.
    pub policy: String,
    /// Parts that replace the preset's.
    pub parts: BTreeMap<String, String>,
    /// `events`, or the length of a round.
    pub clock: String,
    /// Whether nothing is decided for now.
    pub paused: bool,
    /// Nodes that are not lost.
    pub nodes: u32,
    /// GPUs of those.
    pub gpus: u32,
    /// GPUs that are held.
    pub used_gpus: u32,
    /// Jobs in each state that is no end.
    pub jobs: BTreeMap<String, u64>,
    /// Why the journal cannot be written; none if it can.
    pub trouble: Option<String>,
    /// The number of the last event.
    pub last_event: u64,
    /// The release of the server.
    pub version: String,
}

/// GPU time of somebody on a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The day, in UTC: `2026-11-16`.
    pub day: String,
    /// Who sent the jobs.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// GPU-hours.
    pub gpu_hours: f64,
    /// Jobs that held GPUs that day.
    pub jobs: u64,
}

/// A change by an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// What.
    pub operate: Operate,
}

/// Why a node is to take no more jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Because {
    /// Why.
    pub why: String,
}

/// An event, in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// Counts up without a gap.
    pub number: u64,
    /// When.
    pub at: Time,
    /// The job it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobNo>,
    /// What, in a word.
    pub kind: String,
    /// What, in a sentence.
    pub text: String,
}

/// A piece of a log, as it is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The node.
    pub node: String,
    /// The launch.
    pub launch: u64,
    /// What was printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// Where in the log it ends.
    #[serde(default)]
    pub offset: u64,
    /// It cannot be read on: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of a job in a word: one that was preempted and stands in line again is told from one that never ran.
pub fn state_word(job: &JobRecord) -> &'static str {
    let last = job.attempt().and_then(|a| a.end.as_ref());
    match &job.state {
        JobState::Held(_) => "held",
        JobState::Queued => match last {
            Some(AttemptEnd::Stopped(Cause::Preempted(_))) => "preempted",
            _ => "queued",
        },
        JobState::Starting => "starting",
        JobState::Running => "running",
        JobState::Stopping(_) => "stopping",
        JobState::Ended(end) => end.word(),
    }
}

fn detail(book: &Book, job: &JobRecord) -> String {
    let last = job.attempt().and_then(|a| a.end.as_ref());
    match (&job.state, last) {
        (JobState::Queued, Some(AttemptEnd::Stopped(cause))) => format!("stopped: {}", cause.sentence(book)),
        (JobState::Queued, Some(AttemptEnd::Failed(why))) => format!("tried again after: {why}"),
        (JobState::Held(_) | JobState::Stopping(_), _) => book.explain(job.no).unwrap_or_default().sentence,
        (JobState::Ended(end), _) => end.sentence(),
        (JobState::Queued | JobState::Starting | JobState::Running, _) => String::new(),
    }
}

fn attempt_view(book: &Book, attempt: &Attempt) -> AttemptView {
    let task = |state: &TaskState| match state {
        TaskState::Starting => "starting".to_owned(),
        TaskState::Running => "running".to_owned(),
        TaskState::Ended(_) => "ended".to_owned(),
    };
    let end = match (&attempt.end, &attempt.cause) {
        (Some(AttemptEnd::Completed), _) => Some("completed".to_owned()),
        (Some(AttemptEnd::Stopped(cause)), _) | (None, Some(cause)) => {
            Some(format!("{}: {}", cause.word(), cause.sentence(book)))
        }
        (Some(AttemptEnd::Failed(why)), _) => Some(format!("failed: {why}")),
        (None, None) => None,
    };
    let words = attempt.tasks.iter().find_map(|task| match task {
        TaskState::Ended(end) if end.exit_code != 0 || end.signal != 0 => Some(end.last_words.clone()),
        _ => None,
    });
    AttemptView {
        launch: attempt.launch,
        since: attempt.since,
        running_since: attempt.running_since,
        until: attempt.until,
        seats: book.seats(&attempt.allocation),
        tasks: attempt.tasks.iter().map(task).collect(),
        end,
        sharing: attempt.sharing.clone(),
        last_words: words.unwrap_or_default(),
    }
}

impl JobView {
    /// A job as a user may see it, in a list or whole.
    pub(crate) fn of(book: &Book, job: &JobRecord, user: &User, whole: bool) -> Self {
        let ended = match &job.state {
            JobState::Ended(end) => Some(end),
            _ => None,
        };
        let held = job.attempt().filter(|_| job.state.is_up());
        let own = user.admin || user.name == job.user;
        let attempts = job.attempts.iter().map(|a| attempt_view(book, a));
        let mut view = Self {
            id: job.no,
            name: job.request.name.clone(),
            user: job.user.clone(),
            tenant: job.request.tenant.clone(),
            state: state_word(job).to_owned(),
            detail: detail(book, job),
            since: job.since,
            over: ended.is_some(),
            exit_code: ended.map(dovetail_control::book::End::exit_code),
            gpus: job.request.gpus,
            priority: job.request.priority,
            submitted: job.submitted,
            started: job.attempts.iter().find_map(|a| a.running_since),
            ended: ended.map(|_| job.since),
            seats: held.map_or(Vec::new(), |a| book.seats(&a.allocation)),
            steps: (job.steps.step > 0 || job.steps.checkpoint > 0).then_some(StepsView {
                step: job.steps.step,
                total: job.steps.total,
                step_time: job.steps.step_time,
                checkpoint: job.steps.checkpoint,
            }),
            gpu_seconds: job.gpu_time(book.now()) as f64 / 1e6,
            labels: job.request.labels.clone(),
            launches: job.attempts.len() as u64,
            attempts: if whole { attempts.collect() } else { Vec::new() },
            request: (whole && own).then(|| (*job.request).clone()),
        };
        if !own {
            // What a process printed may hold anything.
            view.attempts.iter_mut().for_each(|a| a.last_words.clear());
        }
        view
    }
}

/// Whether a user may know of a job.
pub(crate) fn may_see(user: &User, job: &JobRecord) -> bool {
    user.admin || user.name == job.user || !job.request.private
}

impl EventView {
    /// A notice, in words.
    pub(crate) fn of(book: &Book, notice: &Notice) -> Self {
        let name = |node| {
            let record = book.node(node);
            record.map(|n| n.spec.name.clone()).unwrap_or_default()
        };
        let (kind, text) = match &notice.what {
            What::Submitted => ("submitted", String::new()),
            What::Held(_) => ("held", notice_why(book, notice)),
            What::Queued => ("queued", String::new()),
            What::Starting { nodes, gpus } => {
                let names: Vec<String> = nodes.iter().map(|n| name(*n)).collect();
                ("starting", format!("{gpus} GPUs on {}", names.join(", ")))
            }
            What::Running => ("running", String::new()),
            What::Stopping(cause) => ("stopping", cause.sentence(book)),
            What::Requeued(cause) => (cause.word(), format!("in line again: {}", cause.sentence(book))),
            What::Ended(end) => (end.word(), end.sentence()),
            What::NodeJoined { node } => ("node-joined", name(*node)),
            What::NodeLost { node } => ("node-lost", name(*node)),
            What::NodeDrained { node, by, why } => (
                "node-drained",
                format!("{} takes no new jobs, says {by}: {why}", name(*node)),
            ),
            What::NodeResumed { node, by } => (
                "node-resumed",
                format!("{} takes jobs again, says {by}", name(*node)),
            ),
            What::Operated { what, by } => ("operated", format!("{by}: {}", operated(what))),
            What::Refused(why) => ("refused", why.clone()),
        };
        Self {
            number: notice.number,
            at: notice.at,
            job: notice.job,
            kind: kind.to_owned(),
            text,
        }
    }
}

fn notice_why(book: &Book, notice: &Notice) -> String {
    let why = notice.job.and_then(|no| book.explain(no));
    why.map(|w| w.sentence).unwrap_or_default()
}

fn operated(what: &Operate) -> String {
    match what {
        Operate::Policy(text) => format!("policy {}", text.policy),
        Operate::Round(Some(period)) => format!("rounds of {} s", period.as_secs_f64()),
        Operate::Round(None) => "decide whenever something happens".to_owned(),
        Operate::Pause => "pause".to_owned(),
        Operate::Resume => "resume".to_owned(),
    }
}

/// A node as people see it.
pub(crate) fn node_state(state: &NodeState) -> (&'static str, String) {
    match state {
        NodeState::Up => ("up", String::new()),
        NodeState::Draining { by, why } if why.is_empty() => ("draining", format!("by {by}")),
        NodeState::Draining { by, why } => ("draining", format!("{why} (by {by})")),
        NodeState::Lost => ("lost", "not heard of for longer than its lease".to_owned()),
    }
}
