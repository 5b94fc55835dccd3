//! What the API says, as data: the same types are written by the server and read by the command line.

use std::collections::BTreeMap;

use dovetail_control::book::{
    Attempt, AttemptEnd, Book, Cause, Instead, JobRecord, JobState, NodeState, Notice, Outlook, Seats,
    TaskState, What, Why,
};
use dovetail_control::forecast::Eta;
use dovetail_control::{Everyone, JobNo, JobRequest, Operate, Promise, VirtualCluster};
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::roles::{InstanceView, RoleView};

use crate::people::{Role, Scope, User};

/// Whoever asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Me {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    pub admin: bool,
    /// Where mail reaches it; empty if nowhere.
    #[serde(default)]
    pub email: String,
    /// What it may do in virtual clusters.
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
    /// `session` or `token`.
    #[serde(default)]
    pub via: String,
    /// What a page sends along as `X-Csrf-Token` to change anything.
    #[serde(default)]
    pub csrf: Option<String>,
    /// The password was given by somebody else.
    #[serde(default)]
    pub must_change_password: bool,
}

/// A name and its password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

/// Who has signed in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignedIn {
    /// Who.
    pub user: Me,
}

/// Another password for oneself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// The present one; empty if there is none.
    #[serde(default)]
    pub old: String,
    /// The next one.
    pub new: String,
}

/// A user, as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountView {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    pub admin: bool,
    /// Where mail reaches it; empty if nowhere.
    pub email: String,
    /// What it may do in virtual clusters.
    pub roles: BTreeMap<String, Role>,
    /// Whether it can sign in with a password.
    pub has_password: bool,
    /// Its tokens, without sessions.
    pub tokens: u64,
}

/// A user to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    #[serde(default)]
    pub admin: bool,
    /// Where mail reaches it.
    #[serde(default)]
    pub email: String,
    /// What it may do in virtual clusters.
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
    /// Its first password; one is drawn if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// The secrets of a new user, shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewUserSecrets {
    /// A token.
    pub token: String,
    /// The password, if it was drawn.
    #[serde(default)]
    pub password: Option<String>,
}

/// What is to be changed of a user; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccountChange {
    /// Whether it may do everything.
    pub admin: Option<bool>,
    /// Where mail reaches it.
    pub email: Option<String>,
    /// What it may do in virtual clusters.
    pub roles: Option<BTreeMap<String, Role>>,
    /// Another password, which it has to change.
    pub password: Option<String>,
}

/// A token to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewToken {
    /// What its owner calls it.
    pub label: String,
    /// What it may do.
    pub scope: Scope,
    /// So long it is good, in seconds; none for ever.
    pub expires_s: Option<f64>,
}

/// A token, shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenMade {
    /// By which it can be taken back.
    pub id: String,
    /// The token.
    pub token: String,
}

/// A token, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// By which it can be taken back.
    pub id: String,
    /// What its owner calls it.
    pub label: String,
    /// What it may do.
    pub scope: Scope,
    /// Whether it belongs to a browser that has signed in.
    pub session: bool,
    /// Since when.
    #[schemars(with = "i64")]
    pub created: Time,
    /// Until when; none for ever.
    #[schemars(with = "Option<i64>")]
    pub expires: Option<Time>,
}

/// What a server is, for whoever has not signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Info {
    /// `dovetail`.
    pub name: String,
    /// Its release.
    pub version: String,
    /// The version of the API.
    pub api: String,
    /// Ways to sign in.
    pub sign_in: Vec<String>,
    /// Where to go to sign in elsewhere.
    pub oidc_url: Option<String>,
}

/// Ways to sign in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignInOptions {
    /// With a name and a password (`POST /session`).
    pub password: bool,
    /// Elsewhere, where that is set up.
    pub oidc: Option<OidcOption>,
}

/// Signing in elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OidcOption {
    /// What the button says.
    pub label: String,
    /// Where the browser goes; `?to=/path` says where it ends up.
    pub url: String,
}

/// What came of trying how one is told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotifyTried {
    /// By a request; none if none is asked for.
    pub webhook: Option<Tried>,
    /// By mail; none if none is asked for.
    pub email: Option<Tried>,
}

/// What came of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// Whether it was taken.
    pub ok: bool,
    /// Why not.
    pub detail: String,
}

/// How busy the GPUs of a job are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuUse {
    /// Whether anything is known.
    pub known: bool,
    /// Why nothing is.
    pub note: String,
    /// The mean of all its GPUs.
    pub mean: Vec<GpuPoint>,
    /// GPU by GPU, of jobs that have not too many.
    pub gpus: Vec<GpuSeries>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuSeries {
    /// The node.
    pub node: String,
    /// Its place in the node.
    pub gpu: u32,
    /// Oldest first.
    pub points: Vec<GpuPoint>,
}

/// How busy it was up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuPoint {
    /// The moment.
    #[schemars(with = "i64")]
    pub at: Time,
    /// The part of the time it did something, in percent.
    pub busy: f64,
    /// Memory in use, where that is known.
    pub memory_mib: Option<u64>,
}

/// Jobs that differ in an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayRequest {
    /// One job for each.
    pub indices: Vec<u32>,
    /// So many run at once at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
}

/// A job, or an array of them, to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    /// The number of the job, or of the first of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobNo>,
    /// The number of the last of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<JobNo>,
    /// What would happen, for a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Outlook>,
    /// What of a foreign job file was left out or is not quite the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

/// One launch of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// Which.
    pub launch: u64,
    /// When GPUs were given, in microseconds since 1970 as all times here.
    #[schemars(with = "i64")]
    pub since: Time,
    /// When all its processes ran.
    #[schemars(with = "Option<i64>")]
    pub running_since: Option<Time>,
    /// When the last of them ended.
    #[schemars(with = "Option<i64>")]
    pub until: Option<Time>,
    /// Its GPUs.
    pub seats: Vec<Seats>,
    /// Of the tasks, in the same order: `starting`, `running` or `ended`.
    pub tasks: Vec<String>,
    /// How it ended, or why it was told to stop.
    pub end: Option<String>,
    /// How GPUs are shared, where they are.
    pub sharing: String,
    /// What is not as it was asked for, such as an image that was not used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// What the first task that failed printed last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_words: String,
}

/// How far a job is, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepsView {
    /// Steps done.
    pub step: u64,
    /// Of how many; zero if not known.
    pub total: u64,
    /// Time of a step.
    #[schemars(with = "i64")]
    pub step_time: Time,
    /// The last step whose checkpoint is whole.
    pub checkpoint: u64,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    #[schemars(with = "i64")]
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
    #[schemars(with = "i64")]
    pub submitted: Time,
    /// When its processes first ran.
    #[schemars(with = "Option<i64>")]
    pub started: Option<Time>,
    /// When it was over.
    #[schemars(with = "Option<i64>")]
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
    /// What may help, for one that failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Its roles and their instances at the last launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleView>,
    /// What was asked for, for its owner and administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<JobRequest>,
}

/// A page of the list of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobPage {
    /// The jobs, newest first unless asked for otherwise.
    pub jobs: Vec<JobView>,
    /// Ask with `cursor` this for the next page; none if this is the last.
    pub next: Option<String>,
    /// How many there are on all pages.
    pub total: u64,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// `up`, `draining` or `lost`.
    pub state: String,
    /// More of it.
    pub detail: String,
    /// Since when.
    #[schemars(with = "i64")]
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
    /// Its GPUs one by one.
    #[serde(default)]
    pub slots: Vec<SlotView>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlotView {
    /// Its place in the node.
    pub index: u32,
    /// Jobs on it.
    pub jobs: Vec<JobNo>,
    /// The virtual cluster of those jobs.
    pub vc: Option<String>,
    /// `ok`, or `bad` where the node is lost.
    pub health: String,
}

/// All virtual clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClustersView {
    /// How GPUs are promised.
    pub mode: Promise,
    /// GPUs that are there.
    pub gpus: u32,
    /// Each of them, by name.
    pub vcs: Vec<VcView>,
}

/// A virtual cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VcView {
    /// Its name.
    pub name: String,
    /// GPUs that are its own.
    pub guaranteed_gpus: u32,
    /// The most it may borrow; none is no limit.
    pub most_borrowed: Option<u32>,
    /// GPUs its guaranteed jobs hold.
    pub used_gpus: u32,
    /// GPUs its jobs of negative priority hold.
    pub borrowed_gpus: u32,
    /// GPUs of its cells that others hold.
    pub lent_gpus: u32,
    /// Jobs that hold GPUs.
    pub running_jobs: u64,
    /// Jobs that wait.
    pub waiting_jobs: u64,
    /// GPUs that the jobs of one user may have or stand in line for.
    pub user_cap_gpus: Option<u32>,
    /// The highest priority a job may have.
    pub max_priority: Option<i32>,
    /// What everyone may do.
    pub everyone: Everyone,
    /// In which order its own jobs stand in line; none is that of the policy.
    #[serde(default)]
    pub order: Option<String>,
    /// What whoever asks may do.
    pub role: Option<Role>,
    /// Its cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellView>,
}

/// A cell, or a GPU of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellView {
    /// Its address.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// How far above a GPU.
    pub level: u32,
    /// GPUs of it.
    pub gpus: u32,
    /// Of those, held by jobs of its owner.
    pub used_gpus: u32,
    /// Of those, held by jobs of others.
    pub lent_gpus: u32,
    /// `ok` or `bad`.
    pub health: String,
    /// Where it is now; none while it is nowhere in particular.
    pub node: Option<String>,
    /// The job on it, of a GPU.
    pub job: Option<JobNo>,
    /// Its GPUs, while it is somewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<CellView>,
}

/// What is to be changed of a virtual cluster; what is left out stays, and `null` takes a limit away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterEdit {
    /// GPUs that are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus: Option<u32>,
    /// The most it may borrow.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub most_borrowed: Option<Option<u32>>,
    /// GPUs that the jobs of one user may have or stand in line for.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub user_cap_gpus: Option<Option<u32>>,
    /// The highest priority a job may have.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub max_priority: Option<Option<i32>>,
    /// What everyone may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub everyone: Option<Everyone>,
    /// In which order its own jobs stand in line, such as `las`; only where GPUs are promised.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub order: Option<Option<String>>,
}

/// Tells what is not there from what is null.
fn given<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl ClusterEdit {
    /// Does it.
    pub(crate) fn apply(&self, to: &mut VirtualCluster) {
        to.guaranteed_gpus = self.guaranteed_gpus.unwrap_or(to.guaranteed_gpus);
        to.most_borrowed = self.most_borrowed.unwrap_or(to.most_borrowed);
        to.user_cap_gpus = self.user_cap_gpus.unwrap_or(to.user_cap_gpus);
        to.max_priority = self.max_priority.unwrap_or(to.max_priority);
        to.everyone = self.everyone.unwrap_or(to.everyone);
        to.order = self.order.clone().unwrap_or_else(|| to.order.clone());
    }
}

/// All virtual clusters, to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClustersFile {
    /// How GPUs are promised.
    pub mode: Promise,
    /// By name.
    pub vcs: BTreeMap<String, VirtualCluster>,
    /// HiveD's configuration as YAML, where GPUs are promised as cells; without it the cells stay.
    pub cells: Option<String>,
}

/// A field that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldChange {
    /// The virtual cluster; empty for all.
    pub vc: String,
    /// The field.
    pub field: String,
    /// How it was.
    pub before: serde_json::Value,
    /// How it is to be.
    pub after: serde_json::Value,
}

/// A change of virtual clusters, and what it does at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VcDiff {
    /// What changes.
    pub changes: Vec<FieldChange>,
    /// What follows, in sentences.
    pub effects: Vec<String>,
    /// Jobs that stop.
    pub stops: Vec<JobNo>,
    /// Jobs that start.
    pub starts: Vec<JobNo>,
    /// Why it cannot be done.
    pub refused: Option<String>,
}

/// Why a job waits, what would start instead, and when it starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// Why.
    #[serde(flatten)]
    pub why: Why,
    /// Jobs that stand in line before it, the first ten.
    pub jobs_ahead: Vec<JobAhead>,
    /// Changes with which it would start at once.
    pub instead: Vec<Instead>,
    /// When it starts.
    pub eta: Option<Eta>,
    /// Why nothing is said of when it starts.
    pub eta_hidden: String,
}

/// A job that stands in line before another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobAhead {
    /// The job.
    pub id: JobNo,
    /// Its name; empty where whoever asks may not know.
    pub name: String,
    /// Who sent it; empty where whoever asks may not know.
    pub user: String,
    /// GPUs it asks for.
    pub gpus: u32,
    /// Its state.
    pub state: String,
}

/// A place in the line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueEntry {
    /// The job.
    pub id: JobNo,
    /// Its name.
    pub name: String,
    /// Who sent it.
    pub user: String,
    /// Its virtual cluster.
    pub tenant: String,
    /// GPUs it asks for.
    pub gpus: u32,
    /// Larger is more urgent.
    pub priority: i32,
    /// Since when it stands there.
    #[schemars(with = "i64")]
    pub since: Time,
    /// Jobs before it.
    pub ahead: u32,
    /// What stands in its way first.
    pub reason: String,
}

/// Another priority for a job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPriority {
    /// Larger is more urgent.
    pub priority: i32,
}

/// Something to be done to several jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Actions {
    /// `stop`, `hold` or `release`.
    pub action: String,
    /// The jobs.
    pub ids: Vec<JobNo>,
}

/// What became of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActionDone {
    /// The job.
    pub id: JobNo,
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    pub detail: String,
}

/// How far a job was at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgressPoint {
    /// When.
    #[schemars(with = "i64")]
    pub at: Time,
    /// Steps done.
    pub step: u64,
    /// Of how many; zero if not known.
    pub total: u64,
    /// Time of a step, in microseconds.
    pub step_time_us: i64,
    /// The last step whose checkpoint is whole.
    pub checkpoint: u64,
}

/// What a job file says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileCheck {
    /// `native` or `openpai`.
    pub kind: String,
    /// The job, if it can be read.
    pub job: Option<JobRequest>,
    /// An array of it.
    pub array: Option<ArrayRequest>,
    /// What was left out or is not quite the same.
    pub ignored: Vec<String>,
    /// What is wrong.
    pub errors: Vec<String>,
}

/// A policy there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    /// Its name.
    pub name: String,
    /// One sentence.
    pub what: String,
    /// Where it is from.
    pub paper: String,
    /// What the line is sorted by.
    pub key: String,
}

/// The cluster at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterView {
    /// The time there.
    #[schemars(with = "i64")]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// What.
    pub operate: Operate,
}

/// Why a node is to take no more jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Because {
    /// Why.
    pub why: String,
}

/// An event, in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Counts up without a gap.
    pub number: u64,
    /// When.
    #[schemars(with = "i64")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// A line of a log with what was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// The node.
    pub node: String,
    /// Where in the log it begins.
    pub offset: u64,
    /// The line, or the part of it around the words.
    pub line: String,
}

/// A template: a job file with parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateView {
    /// By which it is asked for.
    pub name: String,
    /// What people see.
    pub title: String,
    /// What it is good for.
    pub description: String,
    /// What is filled in.
    pub parameters: Vec<Parameter>,
    /// The job file, with `<% name %>` where parameters go.
    pub text: String,
}

/// Something that is filled in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parameter {
    /// Letters, digits and `_`.
    pub name: String,
    /// Of which kind.
    #[serde(rename = "type")]
    pub kind: ParameterKind,
    /// What it is where nobody says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
    /// What a choice is among.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<String>>,
    /// What it does.
    pub help: String,
    /// The least a number may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The most a number may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// The kind of a parameter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// Anything in one line.
    #[default]
    Text,
    /// A number.
    Number,
    /// One of some words.
    Choice,
    /// Yes or no.
    Flag,
}

/// What is filled into a template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filling {
    /// By the names of its parameters; those that are left out are as the template has them.
    pub values: BTreeMap<String, serde_json::Value>,
}

/// A template that was filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Filled {
    /// A job file.
    pub text: String,
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
        remarks: attempt.remarks.clone(),
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
        let own = user.may_touch(book, job);
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
            hint: String::new(),
            request: (whole && own).then(|| job.request.without_secrets()),
            roles: if whole {
                crate::roles::roles(book, job)
            } else {
                Vec::new()
            },
        };
        if whole && own {
            let words = view.attempts.last().map(|a| a.last_words.as_str());
            view.hint = crate::hints::hint(ended, words.unwrap_or_default());
        }
        if !own {
            // What a process printed may hold anything.
            view.attempts.iter_mut().for_each(|a| a.last_words.clear());
        }
        view
    }
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
        Operate::VirtualClusters(clusters) => format!("virtual clusters {}", clusters.names().join(", ")),
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
