//! Bodies of the cluster as a whole.

use std::collections::BTreeMap;

use dovetail_cluster::OperatorAction;
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An overview of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterView {
    /// Time of the server.
    #[schemars(with = "i64")]
    pub now: Time,
    /// Policy, as a name with parameters.
    pub policy: String,
    /// Parts that replace those of the preset, by kind.
    pub parts: BTreeMap<String, String>,
    /// When decisions are made: `events`, or the length of a round.
    pub clock: String,
    /// Whether scheduling is paused.
    pub paused: bool,
    /// Number of nodes that are not lost.
    pub nodes: u32,
    /// Number of GPUs on nodes that are not lost.
    pub gpus: u32,
    /// Number of GPUs that jobs hold.
    pub used_gpus: u32,
    /// Number of unfinished jobs, by state.
    pub jobs: BTreeMap<String, u64>,
    /// Error of writing the journal; none if it can be written.
    pub journal_error: Option<String>,
    /// Number of the last event.
    pub last_event: u64,
    /// Release of the server.
    pub version: String,
}

/// A known policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    /// Name of the policy.
    pub name: String,
    /// Description in one sentence.
    pub what: String,
    /// Paper that it is from.
    pub paper: String,
    /// Key that sorts the queue.
    pub key: String,
}

/// A change by an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The change.
    pub operate: OperatorAction,
}
