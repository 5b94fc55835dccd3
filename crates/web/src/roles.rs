//! Roles of a job and their instances, as the API shows them.

use dovetail_control::book::{Attempt, Book, JobRecord, JobState, TaskState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A role of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleView {
    /// Its name.
    pub name: String,
    /// Its instances.
    pub instances: Vec<InstanceView>,
}

/// An instance of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceView {
    /// Which.
    pub index: u32,
    /// Where it is; empty where it is nowhere yet.
    pub node: String,
    /// Its GPUs there.
    pub gpus: Vec<u32>,
    /// `waiting`, `starting`, `running`, `succeeded`, `failed` or `stopped`.
    pub state: String,
    /// Its exit code, or 128 and the signal that ended it; none while it is not over.
    pub exit_code: Option<i32>,
}

/// The roles of a job at its last launch; none for a job without.
pub(crate) fn roles(book: &Book, job: &JobRecord) -> Vec<RoleView> {
    roles_at(book, job, job.attempt())
}

/// The roles of a job at one of its launches.
pub(crate) fn roles_at(book: &Book, job: &JobRecord, attempt: Option<&Attempt>) -> Vec<RoleView> {
    let request = &job.request;
    let seats = attempt.and_then(|a| Some((a, request.seat(&a.allocation)?)));
    let mut shown: Vec<RoleView> = Vec::new();
    for (i, role) in request.roles.iter().enumerate() {
        let mine = |index: &u32| {
            request.gang
                || request
                    .array
                    .is_some_and(|p| request.instance(p.index) == Some((i, *index)))
        };
        let instances = (0..role.instances).filter(mine).map(|index| match &seats {
            None => InstanceView {
                index,
                node: String::new(),
                gpus: Vec::new(),
                state: if job.state.is_over() { "stopped" } else { "waiting" }.to_owned(),
                exit_code: None,
            },
            Some((attempt, seats)) => {
                let seat = seats.iter().find(|s| (s.role, s.index) == (i, index));
                let place = seat.map_or(0, |s| s.place);
                let node = attempt
                    .allocation
                    .shares
                    .get(place)
                    .and_then(|s| book.node(s.node));
                let (state, exit_code) = state(job, attempt, &role.name, index, place);
                InstanceView {
                    index,
                    node: node.map(|n| n.spec.name.clone()).unwrap_or_default(),
                    gpus: seat.map(|s| s.gpus.clone()).unwrap_or_default(),
                    state: state.to_owned(),
                    exit_code,
                }
            }
        });
        let instances: Vec<InstanceView> = instances.collect();
        if !instances.is_empty() {
            shown.push(RoleView {
                name: role.name.clone(),
                instances,
            });
        }
    }
    shown
}

fn state(
    job: &JobRecord,
    attempt: &Attempt,
    role: &str,
    index: u32,
    place: usize,
) -> (&'static str, Option<i32>) {
    let over = attempt
        .ends
        .iter()
        .position(|e| e.role == role && e.index == index);
    if let Some(at) = over {
        let end = &attempt.ends[at];
        let code = if end.signal == 0 {
            end.exit_code
        } else {
            128 + end.signal
        };
        let word = match (end.exit_code, end.signal) {
            (0, 0) => "succeeded",
            // What ends by a signal after the job was told to stop was stopped.
            (_, 9 | 15) if attempt.cause.is_some() || attempt.verdict.is_some() => "stopped",
            _ => "failed",
        };
        return (word, Some(code));
    }
    match attempt.tasks.get(place) {
        Some(TaskState::Ended(_)) | None => ("stopped", None),
        Some(TaskState::Starting) => ("starting", None),
        Some(TaskState::Running) if job.state == JobState::Starting => ("starting", None),
        Some(TaskState::Running) => ("running", None),
    }
}
