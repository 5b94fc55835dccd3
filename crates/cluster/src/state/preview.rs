//! Previews of submissions: the job is tried on a copy of the engine.

use dovetail_model::{Allocation, Command, Event, NodeShare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterState;
use super::explain::{JobExplanation, explain_in_engine};
use super::nodes::NodeTable;
use crate::JobId;
use crate::request::JobRequest;

/// GPU slots on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSlots {
    /// Name of the node.
    pub node: String,
    /// GPU slots on it.
    pub gpus: Vec<u32>,
}

/// What would happen if a job were submitted now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmissionPreview {
    /// Whether it would start at once.
    pub starts_now: bool,
    /// Where it would start, now or after the jobs it preempts have stopped.
    pub placement: Vec<NodeSlots>,
    /// Jobs it would preempt.
    pub preempts: Vec<JobId>,
    /// Why it would wait.
    pub explanation: JobExplanation,
}

/// Returns the GPU slots of an allocation by the names of its nodes.
pub(super) fn node_slots(nodes: &NodeTable, allocation: &Allocation) -> Vec<NodeSlots> {
    let slots = |share: &NodeShare| NodeSlots {
        node: nodes
            .get(share.node)
            .map(|n| n.spec.name.clone())
            .unwrap_or_default(),
        gpus: share.gpus.iter().collect(),
    };
    allocation.shares.iter().map(slots).collect()
}

/// Previews the submission of a job.
pub(super) fn preview_submission(
    state: &ClusterState,
    user: &str,
    request: &JobRequest,
) -> SubmissionPreview {
    let spec = state.scheduler.preview_spec(user, request, state.now);
    let job_key = spec.id;
    let mut engine = state.engine().clone();
    engine.handle(state.now, Event::Submitted(spec));
    let mut preview = SubmissionPreview {
        starts_now: false,
        placement: Vec::new(),
        preempts: Vec::new(),
        explanation: JobExplanation::default(),
    };
    let mut rejected = None;
    while let Some(command) = engine.poll() {
        match command {
            Command::Launch { job, allocation, .. } if job == job_key => {
                preview.placement = state.node_slots(&allocation);
                preview.starts_now = true;
            }
            Command::Stop { job, .. } => preview.preempts.push(state.scheduler.job_id(job)),
            Command::Reject { job, reason } if job == job_key => rejected = Some(state.reason(&reason)),
            Command::Launch { .. } | Command::Resize { .. } | Command::Reject { .. } => {}
        }
    }
    if !preview.starts_now {
        let allocation = engine.job(job_key).and_then(|job| job.allocation.as_ref());
        preview.placement = allocation.map_or(Vec::new(), |a| state.node_slots(a));
        preview.explanation = explain_in_engine(state, &engine, engine.explain(job_key));
    }
    preview.explanation.reasons.extend(rejected);
    preview
}
