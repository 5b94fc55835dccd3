//! Alternatives that would start at once: each one is tried on a copy of the engine.

use dovetail_model::{Command, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterState;
use super::explain::count;
use super::jobs::{JobRecord, JobState};
use super::preview::NodeSlots;
use crate::JobId;
use crate::request::JobRequest;
use crate::virtual_clusters::GuaranteeMode;

/// A change with which a queued job would start at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alternative {
    /// What changes: `gpus`, `gpu_type`, `tenant` or `priority`.
    pub change: String,
    /// The new value.
    pub to: String,
    /// Description of the change and the placement.
    pub sentence: String,
    /// Where the job would run.
    pub placement: Vec<NodeSlots>,
    /// Whether the job would start at once; always true.
    pub starts_now: bool,
}

/// Returns changes with which a queued job would start at once if it were resubmitted with one of them.
pub(super) fn alternatives(state: &ClusterState, id: JobId, virtual_clusters: &[String]) -> Vec<Alternative> {
    let Some(record) = state.job(id).filter(|job| job.state == JobState::Queued) else {
        return Vec::new();
    };
    let request = &*record.request;
    // When this job is cancelled, jobs that wait for its end could take the place.
    if state.jobs.has_dependents(id) || state.jobs.has_capped() || request.array.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if request.gpu_type.is_some() {
        let any = JobRequest {
            gpu_type: None,
            ..request.clone()
        };
        found.extend(try_alternative(state, record, &any, "gpu_type", "any"));
    }
    // Also for rigid jobs: their owner may still run them with fewer GPUs.
    let halves = std::iter::successors(Some(request.gpus / 2), |g| Some(g / 2)).take_while(|g| *g > 0);
    for gpus in halves {
        let fewer = JobRequest {
            gpus,
            min_gpus: request.min_gpus.map(|min| min.min(gpus)),
            ..request.clone()
        };
        let alternative = try_alternative(state, record, &fewer, "gpus", &gpus.to_string());
        if alternative.is_some() {
            found.extend(alternative);
            break;
        }
    }
    for tenant in virtual_clusters.iter().filter(|name| **name != request.tenant) {
        let elsewhere = JobRequest {
            tenant: tenant.clone(),
            ..request.clone()
        };
        found.extend(try_alternative(state, record, &elsewhere, "tenant", tenant));
    }
    if state.virtual_clusters.mode != GuaranteeMode::Open && request.priority >= 0 {
        let opportunistic = JobRequest {
            priority: -1,
            ..request.clone()
        };
        found.extend(try_alternative(state, record, &opportunistic, "priority", "-1"));
    }
    found
}

/// Returns the alternative if the job would start at once with this request.
fn try_alternative(
    state: &ClusterState,
    record: &JobRecord,
    request: &JobRequest,
    change: &str,
    to: &str,
) -> Option<Alternative> {
    request.validate().ok()?;
    let cluster = state.virtual_clusters.get(&request.tenant)?;
    let exceeds_limit = cluster.max_priority.is_some_and(|max| request.priority > max);
    if exceeds_limit || cluster.user_cap_gpus.is_some() || state.could_ever_run(request).is_err() {
        return None;
    }
    let spec = state.scheduler.preview_spec(&record.user, request, state.now);
    let job_key = spec.id;
    let mut engine = state.engine().clone();
    engine.handle(state.now, Event::Cancelled { job: record.job_key? });
    while engine.poll().is_some() {}
    engine.handle(state.now, Event::Submitted(spec));
    while let Some(command) = engine.poll() {
        if let Command::Launch { job, allocation, .. } = command
            && job == job_key
        {
            let placement = state.node_slots(&allocation);
            return Some(Alternative {
                change: change.to_owned(),
                to: to.to_owned(),
                sentence: describe(request, change, &placement),
                placement,
                starts_now: true,
            });
        }
    }
    None
}

fn describe(request: &JobRequest, change: &str, placement: &[NodeSlots]) -> String {
    let place = match placement {
        [node] => format!("on {}", node.node),
        nodes => format!("on {} nodes", nodes.len()),
    };
    match change {
        "gpus" => format!("would start now with {} {place}", count(request.gpus, "GPU")),
        "gpu_type" => format!("would start now with any type of GPU, {place}"),
        "tenant" => format!("would start now in virtual cluster {}, {place}", request.tenant),
        _ => format!(
            "would start now as an opportunistic job (priority {}), {place}; it may then be preempted",
            request.priority
        ),
    }
}
