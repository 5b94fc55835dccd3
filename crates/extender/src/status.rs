//! The objects of HiveD's inspect API, which OpenPAI reads.

use std::collections::BTreeMap;

use serde::Serialize;

/// A group of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AffinityGroup {
    /// Its name.
    pub metadata: GroupMeta,
    /// Its status.
    pub status: GroupStatus,
}

/// The name of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupMeta {
    /// The name.
    pub name: String,
}

/// Status of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Its virtual cluster.
    pub vc: String,
    /// The requested priority.
    pub priority: i32,
    /// `Preempting`, `Allocated` or `BeingPreempted`.
    pub state: &'static str,
    /// Indices of its leaf cells, by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub physical_placement: BTreeMap<String, Vec<i32>>,
    /// Addresses of its leaf cells, by cell of its virtual cluster.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub virtual_placement: BTreeMap<String, Vec<String>>,
    /// Pods that have started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocated_pods: Vec<String>,
    /// Pods that wait for their victims to be deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preempting_pods: Vec<String>,
    /// Set while a guaranteed group runs as a borrower.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazy_preemption_status: Option<LazyPreemption>,
}

/// The downgrade of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LazyPreemption {
    /// The group it was downgraded for.
    pub preemptor: String,
    /// The time, in RFC 3339.
    pub preemption_time: String,
}

/// Status of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellStatus {
    /// Type of its leaf cells; set for top cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_cell_type: Option<String>,
    /// Its type.
    pub cell_type: String,
    /// Whether it is a machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_node_level: bool,
    /// Its address.
    pub cell_address: String,
    /// `Free`, `Used`, `Reserving` or `Reserved`.
    pub cell_state: CellState,
    /// `Healthy` or `Bad`.
    pub cell_healthiness: Healthiness,
    /// Highest priority in it; −2 if it is free.
    pub cell_priority: i32,
}

/// State of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum CellState {
    /// No group holds or claims it.
    #[default]
    Free,
    /// A group occupies it.
    Used,
    /// A group occupies it, and another one claims it.
    Reserving,
    /// A group claims it.
    Reserved,
}

/// Health of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Healthiness {
    /// All its machines are healthy.
    #[default]
    Healthy,
    /// Some machine is bad.
    Bad,
}

/// A physical cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhysicalCell {
    /// Its status.
    #[serde(flatten)]
    pub status: CellStatus,
    /// Its children.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cell_children: Vec<PhysicalCell>,
    /// The virtual cluster that uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vc: Option<String>,
    /// The cell of that virtual cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_cell: Option<Box<VirtualCell>>,
}

/// A cell of a virtual cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualCell {
    /// Its status.
    #[serde(flatten)]
    pub status: CellStatus,
    /// Its children.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cell_children: Vec<VirtualCell>,
    /// The physical cell that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical_cell: Option<Box<PhysicalCell>>,
}

/// Physical and virtual cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Top cells.
    pub physical_cluster: Vec<PhysicalCell>,
    /// Cells of each virtual cluster.
    pub virtual_clusters: BTreeMap<String, Vec<VirtualCell>>,
}
