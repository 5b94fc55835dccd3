//! Bodies of virtual clusters and their cells.

use std::collections::BTreeMap;

use dovetail_cluster::{DefaultAccess, GuaranteeMode, JobId, VirtualCluster};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounts::Role;

/// All virtual clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VcList {
    /// How GPUs are guaranteed.
    pub mode: GuaranteeMode,
    /// Number of GPUs of the cluster.
    pub gpus: u32,
    /// Virtual clusters, by name.
    pub vcs: Vec<VcView>,
}

/// A virtual cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VcView {
    /// Name of the virtual cluster.
    pub name: String,
    /// Number of guaranteed GPUs.
    pub guaranteed_gpus: u32,
    /// Maximum number of GPUs it may borrow; none for no limit.
    pub most_borrowed: Option<u32>,
    /// Number of GPUs that its guaranteed jobs hold.
    pub used_gpus: u32,
    /// Number of GPUs that its opportunistic jobs (negative priority) hold.
    pub borrowed_gpus: u32,
    /// Number of GPUs of its cells that jobs of other virtual clusters hold.
    pub lent_gpus: u32,
    /// Number of jobs that hold GPUs.
    pub running_jobs: u64,
    /// Number of queued and held jobs.
    pub waiting_jobs: u64,
    /// Maximum number of GPUs that the running and queued jobs of one user may request.
    pub user_cap_gpus: Option<u32>,
    /// Maximum priority of a job.
    pub max_priority: Option<i32>,
    /// What users without a role may do.
    pub everyone: DefaultAccess,
    /// Queue order of its jobs; none for that of the policy.
    #[serde(default)]
    pub order: Option<String>,
    /// Role of the caller.
    pub role: Option<Role>,
    /// Cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellView>,
}

/// A cell, or a GPU of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellView {
    /// Address of the cell.
    pub id: String,
    /// Cell type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Level above that of a GPU.
    pub level: u32,
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of GPUs that jobs of its owner hold.
    pub used_gpus: u32,
    /// Number of GPUs that jobs of other virtual clusters hold.
    pub lent_gpus: u32,
    /// `ok` or `bad`.
    pub health: String,
    /// Node that it is bound to; none while it is not bound.
    pub node: Option<String>,
    /// Job on it, of a GPU.
    pub job: Option<JobId>,
    /// GPUs, while it is bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<CellView>,
}

/// A change of a virtual cluster; fields that are missing stay unchanged, and `null` removes a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VcEdit {
    /// Number of guaranteed GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus: Option<u32>,
    /// Maximum number of GPUs it may borrow.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub most_borrowed: Option<Option<u32>>,
    /// Maximum number of GPUs that the running and queued jobs of one user may request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub user_cap_gpus: Option<Option<u32>>,
    /// Maximum priority of a job.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_priority: Option<Option<i32>>,
    /// What users without a role may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub everyone: Option<DefaultAccess>,
    /// Queue order of its jobs, such as `las`; only if GPUs are guaranteed.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub order: Option<Option<String>>,
}

/// Distinguishes `null` from a missing field.
fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl VcEdit {
    /// Applies the change.
    pub(crate) fn apply(&self, to: &mut VirtualCluster) {
        to.guaranteed_gpus = self.guaranteed_gpus.unwrap_or(to.guaranteed_gpus);
        to.most_borrowed = self.most_borrowed.unwrap_or(to.most_borrowed);
        to.user_cap_gpus = self.user_cap_gpus.unwrap_or(to.user_cap_gpus);
        to.max_priority = self.max_priority.unwrap_or(to.max_priority);
        to.everyone = self.everyone.unwrap_or(to.everyone);
        to.order = self.order.clone().unwrap_or_else(|| to.order.clone());
    }
}

/// The configuration of all virtual clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VcFile {
    /// How GPUs are guaranteed.
    pub mode: GuaranteeMode,
    /// Virtual clusters, by name.
    pub vcs: BTreeMap<String, VirtualCluster>,
    /// HiveD configuration as YAML, for cells; without it the current cells stay.
    pub cells: Option<String>,
}

/// A changed field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldChange {
    /// Virtual cluster; empty for all.
    pub vc: String,
    /// Field; `exists` for a virtual cluster that is created or removed.
    pub field: String,
    /// Value before the change.
    pub before: serde_json::Value,
    /// Value after the change.
    pub after: serde_json::Value,
}

/// A change of virtual clusters, with its immediate effects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VcDiff {
    /// Changed fields.
    pub changes: Vec<FieldChange>,
    /// Effects, in sentences.
    pub effects: Vec<String>,
    /// Jobs that are preempted.
    pub stops: Vec<JobId>,
    /// Jobs that start.
    pub starts: Vec<JobId>,
    /// Reason for refusing the change; none if it is accepted.
    pub refused: Option<String>,
}
