//! Bodies of nodes.

use dovetail_cluster::JobId;
use dovetail_cluster::state::NodeState;
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Name of the node.
    pub name: String,
    /// State: `up`, `draining` or `lost`.
    pub state: String,
    /// Explanation of the state.
    pub detail: String,
    /// Start of the state.
    #[schemars(with = "i64")]
    pub since: Time,
    /// Whether the agent is connected.
    pub connected: bool,
    /// GPU type.
    pub gpu_type: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of GPUs that jobs hold.
    pub used_gpus: u32,
    /// CPUs, in thousandths.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Rack.
    pub rack: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Jobs on the node.
    pub jobs: Vec<JobId>,
    /// GPUs of the node.
    #[serde(default)]
    pub slots: Vec<SlotView>,
}

/// A GPU of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlotView {
    /// Index of the GPU on the node.
    pub index: u32,
    /// Jobs on the GPU.
    pub jobs: Vec<JobId>,
    /// Virtual cluster of those jobs.
    pub vc: Option<String>,
    /// `ok`, or `bad` if the node is lost.
    pub health: String,
}

/// A request to drain or resume a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainRequest {
    /// Reason for draining the node.
    #[serde(alias = "why")]
    pub reason: String,
}

/// Returns the state of a node in a word, and its explanation.
pub(crate) fn node_state(state: &NodeState) -> (&'static str, String) {
    match state {
        NodeState::Up => ("up", String::new()),
        NodeState::Draining { by, reason } if reason.is_empty() => ("draining", format!("by {by}")),
        NodeState::Draining { by, reason } => ("draining", format!("{reason} (by {by})")),
        NodeState::Lost => ("lost", "not heard from for longer than its lease".to_owned()),
    }
}
