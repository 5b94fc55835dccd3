//! Bodies of the roles of a job and their instances.

use dovetail_cluster::state::{Attempt, ClusterState, JobRecord, JobState, TaskState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A role of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleView {
    /// Name of the role.
    pub name: String,
    /// Instances of the role.
    pub instances: Vec<InstanceView>,
}

/// An instance of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceView {
    /// Index of the instance in the role.
    pub index: u32,
    /// Node that it runs on; empty if it has not been placed.
    pub node: String,
    /// GPU slots on that node.
    pub gpus: Vec<u32>,
    /// `waiting`, `starting`, `running`, `succeeded`, `failed` or `stopped`.
    pub state: String,
    /// Exit code, or 128 plus the signal that ended it; none if it has not ended.
    pub exit_code: Option<i32>,
}

/// Returns the roles of a job in its last attempt; empty for a job without roles.
pub(crate) fn role_views(state: &ClusterState, job: &JobRecord) -> Vec<RoleView> {
    role_views_at(state, job, job.attempt())
}

/// Returns the roles of a job in one of its attempts.
pub(crate) fn role_views_at(
    state: &ClusterState,
    job: &JobRecord,
    attempt: Option<&Attempt>,
) -> Vec<RoleView> {
    let request = &job.request;
    let placed = attempt.and_then(|a| Some((a, request.place_instances(&a.allocation)?)));
    let mut views: Vec<RoleView> = Vec::new();
    for (i, role) in request.roles.iter().enumerate() {
        // A job of an array has one of the instances.
        let belongs_to_job = |index: &u32| {
            request.gang
                || request
                    .array
                    .is_some_and(|p| request.instance(p.index) == Some((i, *index)))
        };
        let instances = (0..role.instances)
            .filter(belongs_to_job)
            .map(|index| match &placed {
                None => InstanceView {
                    index,
                    node: String::new(),
                    gpus: Vec::new(),
                    state: if job.state.has_ended() {
                        "stopped"
                    } else {
                        "waiting"
                    }
                    .to_owned(),
                    exit_code: None,
                },
                Some((attempt, instances)) => {
                    let instance = instances.iter().find(|s| (s.role, s.index) == (i, index));
                    let share = instance.map_or(0, |s| s.place);
                    let node = attempt
                        .allocation
                        .shares
                        .get(share)
                        .and_then(|s| state.node(s.node));
                    let (word, exit_code) = instance_state(job, attempt, &role.name, index, share);
                    InstanceView {
                        index,
                        node: node.map(|n| n.spec.name.clone()).unwrap_or_default(),
                        gpus: instance.map(|s| s.gpus.clone()).unwrap_or_default(),
                        state: word.to_owned(),
                        exit_code,
                    }
                }
            });
        let instances: Vec<InstanceView> = instances.collect();
        if !instances.is_empty() {
            views.push(RoleView {
                name: role.name.clone(),
                instances,
            });
        }
    }
    views
}

/// Returns the state of an instance in a word, and its exit code. `share` is its share of the allocation.
fn instance_state(
    job: &JobRecord,
    attempt: &Attempt,
    role: &str,
    index: u32,
    share: usize,
) -> (&'static str, Option<i32>) {
    let end = attempt.ends.iter().find(|e| e.role == role && e.index == index);
    if let Some(end) = end {
        let code = if end.signal == 0 {
            end.exit_code
        } else {
            128 + end.signal
        };
        let word = match (end.exit_code, end.signal) {
            (0, 0) => "succeeded",
            // A signal after the attempt began to stop.
            (_, 9 | 15) if attempt.cause.is_some() || attempt.verdict.is_some() => "stopped",
            _ => "failed",
        };
        return (word, Some(code));
    }
    match attempt.tasks.get(share) {
        Some(TaskState::Ended(_)) | None => ("stopped", None),
        Some(TaskState::Starting) => ("starting", None),
        Some(TaskState::Running) if job.state == JobState::Starting => ("starting", None),
        Some(TaskState::Running) => ("running", None),
    }
}
