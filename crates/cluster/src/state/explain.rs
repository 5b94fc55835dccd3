//! Explains the state of a job: why it is pending, held or stopping.

use std::collections::BTreeMap;

use dovetail_engine::{Engine, Explanation, QueuePositions};
use dovetail_model::{JobKey, Reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterState;
use super::jobs::{End, Hold, JobRecord, JobState, gpus_in_use_beside};
use super::nodes::NodeState;
use crate::JobId;

/// Explanation of the state of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobExplanation {
    /// The state in one sentence.
    pub sentence: String,
    /// What the job waits for, most important first.
    pub reasons: Vec<String>,
    /// Number of jobs ahead of it in the queue.
    pub ahead: u32,
    /// Reasons that follow from the state of the cluster, for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
}

/// A reason why a job does not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocker {
    /// Stable code, such as `not-enough-free-gpus`.
    pub code: String,
    /// The reason as a sentence.
    pub text: String,
    /// The numbers in the reason.
    pub numbers: serde_json::Value,
}

impl From<String> for JobExplanation {
    fn from(sentence: String) -> Self {
        Self {
            sentence,
            ..Self::default()
        }
    }
}

/// Converts `NotEnoughFreeGpus` to `not-enough-free-gpus`.
fn kebab(name: &str) -> String {
    let mut code = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !code.is_empty() {
            code.push('-');
        }
        code.push(letter.to_ascii_lowercase());
    }
    code
}

/// Returns a number with its noun, in the plural unless it is one.
pub(super) fn count(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// What the explanations of all pending jobs at one moment have in common. It may be used for some time: what it says is as
/// old as it is.
#[derive(Debug, Clone)]
pub struct ExplainContext {
    positions: QueuePositions,
    /// GPUs of jobs that hold GPUs or are queued, by user and virtual cluster.
    in_use: BTreeMap<(String, String), u64>,
}

impl ExplainContext {
    pub(super) fn new(state: &ClusterState) -> Self {
        let mut in_use = BTreeMap::new();
        let has_caps = |record: &JobRecord| {
            let cluster = state.virtual_clusters.get(&record.request.tenant);
            cluster.is_some_and(|cluster| cluster.user_cap_gpus.is_some())
        };
        let in_engine = state.unfinished_jobs().filter(|job| job.state.is_in_engine());
        for job in in_engine.filter(|job| has_caps(job)) {
            let key = (job.user.clone(), job.request.tenant.clone());
            *in_use.entry(key).or_insert(0) += u64::from(job.request.gpus);
        }
        Self {
            positions: state.engine().queue_positions(),
            in_use,
        }
    }

    /// Returns the number of jobs that were queued, or held by admission, when the context was taken.
    pub fn queued_jobs(&self) -> usize {
        self.positions.len()
    }
}

/// Explains the state of a job.
pub(super) fn explain(state: &ClusterState, id: JobId) -> Option<JobExplanation> {
    let in_use = |record: &JobRecord| gpus_in_use_beside(&state.jobs, record);
    explain_with(state, id, in_use, |job| state.engine().explain(job))
}

/// Explains the state of a job with a context that was taken before.
pub(super) fn explain_at(
    state: &ClusterState,
    id: JobId,
    context: &ExplainContext,
) -> Option<JobExplanation> {
    // A job that the limit holds is not in the engine, and has no GPUs in use.
    let in_use = |record: &JobRecord| {
        let key = (record.user.clone(), record.request.tenant.clone());
        context.in_use.get(&key).copied().unwrap_or(0)
    };
    explain_with(state, id, in_use, |job| {
        state.engine().explain_at(job, &context.positions)
    })
}

fn explain_with(
    state: &ClusterState,
    id: JobId,
    in_use: impl FnOnce(&JobRecord) -> u64,
    explain: impl FnOnce(JobKey) -> Explanation,
) -> Option<JobExplanation> {
    let record = state.job(id)?;
    Some(match &record.state {
        JobState::Held(hold) => explain_hold(state, record, hold, in_use).into(),
        JobState::Ended(end) => explain_end(end),
        JobState::Stopping(cause) => format!("stopping: {}", cause.sentence(state, record.since)).into(),
        JobState::Queued | JobState::Starting | JobState::Running => {
            explain_in_engine(state, state.engine(), explain(record.job_key?))
        }
    })
}

/// Explains how a job ended.
pub fn explain_end(end: &End) -> JobExplanation {
    match end.sentence() {
        sentence if sentence.is_empty() => format!("ended: {}", end.word()).into(),
        sentence => format!("ended: {}: {sentence}", end.word()).into(),
    }
}

fn explain_hold(
    state: &ClusterState,
    record: &JobRecord,
    hold: &Hold,
    in_use: impl FnOnce(&JobRecord) -> u64,
) -> String {
    let request = &record.request;
    match hold {
        Hold::User(by) => format!(
            "held by {by}; release it with `dovetail job release {}`",
            record.id
        ),
        Hold::After(jobs) => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("waits for the end of job {}", jobs.join(", "))
        }
        Hold::Cap => {
            let in_use = in_use(record);
            let cluster = state.virtual_clusters.get(&request.tenant);
            let cap = cluster.and_then(|c| c.user_cap_gpus).unwrap_or_default();
            format!(
                "limit of virtual cluster {} reached: {} has {} running or queued, at most {cap} are allowed for one user",
                request.tenant,
                record.user,
                count(in_use, "GPU"),
            )
        }
        Hold::Workload => "waiting for its controller to recreate its pods".to_owned(),
        Hold::Array => {
            let part = request.array;
            let limit = part.and_then(|p| p.at_most).unwrap_or_default();
            let members = part.into_iter().flat_map(|p| state.jobs.of_array(p.array));
            let active = members.filter(|job| job.state.is_in_engine()).count();
            format!("array limit reached: {active} of {limit} running or queued")
        }
    }
}

/// Explains a job that is in an engine: that of the state, or a copy with a job that is not submitted.
pub(super) fn explain_in_engine(
    state: &ClusterState,
    engine: &Engine,
    explanation: Explanation,
) -> JobExplanation {
    match explanation {
        Explanation::Unknown => JobExplanation::default(),
        Explanation::Running { gpus, nodes, .. } => {
            format!("holds {} on {}", count(gpus, "GPU"), count(nodes as u64, "node")).into()
        }
        Explanation::Stopping => "stopping".to_owned().into(),
        Explanation::Waiting { reasons, ahead, .. } => {
            let blockers = reasons.iter().map(|r| blocker(state, r)).collect();
            let mut reasons: Vec<String> = reasons.iter().map(|r| state.reason(r)).collect();
            if engine.is_paused() {
                reasons.insert(0, "scheduling is paused; an operator has to resume it".to_owned());
            }
            if state.nodes().all(|(_, n)| n.state == NodeState::Lost) {
                reasons.insert(0, "no node is connected".to_owned());
            }
            JobExplanation {
                sentence: "queued".to_owned(),
                reasons,
                ahead,
                blockers,
            }
        }
    }
}

fn blocker(state: &ClusterState, reason: &Reason) -> Blocker {
    let (name, numbers) = match serde_json::to_value(reason) {
        Ok(serde_json::Value::Object(variant)) => variant.into_iter().next().unwrap_or_default(),
        Ok(serde_json::Value::String(name)) => (name, serde_json::Value::Null),
        _ => Default::default(),
    };
    Blocker {
        code: kebab(&name),
        text: state.reason(reason),
        numbers,
    }
}
