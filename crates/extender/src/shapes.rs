//! The shapes of what can be looked at, which OpenPAI reads.

use std::collections::BTreeMap;

use serde::Serialize;

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AffinityGroup {
    /// Its name.
    pub metadata: GroupMeta,
    /// How it is.
    pub status: GroupStatus,
}

/// The name of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupMeta {
    /// The name.
    pub name: String,
}

/// How a group is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Its virtual cluster.
    pub vc: String,
    /// The priority it asks with.
    pub priority: i32,
    /// `Preempting`, `Allocated` or `BeingPreempted`.
    pub state: &'static str,
    /// Its leaves by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub physical_placement: BTreeMap<String, Vec<i32>>,
    /// Its leaves by cell of its virtual cluster.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub virtual_placement: BTreeMap<String, Vec<String>>,
    /// Pods that have started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocated_pods: Vec<String>,
    /// Pods that wait for others to go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preempting_pods: Vec<String>,
    /// Set while it runs as a borrower although it was guaranteed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazy_preemption_status: Option<LazyPreemption>,
}

/// That a group was downgraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LazyPreemption {
    /// For which group.
    pub preemptor: String,
    /// When.
    pub preemption_time: String,
}

/// What all cells have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellStatus {
    /// The kind of its leaves, for top cells.
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
    /// The highest priority in it; -2 if nobody is.
    pub cell_priority: i32,
}

/// What becomes of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum CellState {
    /// Nobody has it.
    #[default]
    Free,
    /// Somebody is on it.
    Used,
    /// Somebody is on it, and somebody else claims it.
    Reserving,
    /// Somebody claims it.
    Reserved,
}

/// Whether a cell can be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Healthiness {
    /// All its machines can.
    #[default]
    Healthy,
    /// Some machine cannot.
    Bad,
}

/// A physical cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhysicalCell {
    /// What all cells have.
    #[serde(flatten)]
    pub status: CellStatus,
    /// What is in it.
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
    /// What all cells have.
    #[serde(flatten)]
    pub status: CellStatus,
    /// What is in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cell_children: Vec<VirtualCell>,
    /// The physical cell, while it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical_cell: Option<Box<PhysicalCell>>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The top cells.
    pub physical_cluster: Vec<PhysicalCell>,
    /// The cells of each virtual cluster.
    pub virtual_clusters: BTreeMap<String, Vec<VirtualCell>>,
}
