//! What an administrator writes down: cell types, the physical cells, and what each virtual cluster owns of them. It
//! is HiveD's configuration as plain data; the YAML reader is elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// How cells are made of smaller cells, by name. A name that is not here is a leaf: one GPU or one CPU share.
    pub cell_types: BTreeMap<String, CellType>,
    /// What one leaf of a type brings along, by leaf type. Not needed for scheduling.
    pub sku_types: BTreeMap<String, Sku>,
    /// The top cells of the cluster, in order.
    pub physical_cells: Vec<PhysicalCell>,
    /// The tenants, by name.
    pub virtual_clusters: BTreeMap<String, VirtualCluster>,
}

/// A kind of cell that has children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellType {
    /// The kind of its children.
    pub child: String,
    /// How many children it has.
    pub children: u32,
    /// Whether it is one machine.
    pub is_node: bool,
}

/// What one leaf brings along.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sku {
    /// GPUs; none for a share of CPU alone.
    pub gpu: u32,
    /// CPU in milli-cores.
    pub cpu_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// A physical cell as it is written: what is left out is filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhysicalCell {
    /// Its type; below the top it follows from the type of its parent.
    pub cell_type: Option<String>,
    /// The last part of its address: for a node its name, for a leaf its index in the node.
    pub address: Option<String>,
    /// A name by which a virtual cluster can own exactly this cell.
    pub pinned: Option<String>,
    /// Its children, if they are written out.
    pub children: Vec<PhysicalCell>,
}

/// What one tenant owns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualCluster {
    /// Cells of a kind, wherever they are.
    pub cells: Vec<VirtualCells>,
    /// Cells by name.
    pub pinned: Vec<String>,
    /// Leaves one user may hold at guaranteed priorities; none is no limit.
    pub leaves_per_user: Option<u32>,
    /// The same for users who have a limit of their own.
    pub user_limits: BTreeMap<String, u32>,
}

/// So many cells of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualCells {
    /// The way from the top cell down to the kind, joined by dots.
    pub path: String,
    /// How many.
    pub number: u32,
}
