//! HiveD's configuration as plain data: cell types, physical cells, and the cells each virtual cluster owns. The crate
//! `hived` parses it from YAML.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Cell types with children, by name. A name that is missing here is a leaf: one GPU or one share of CPU.
    pub cell_types: BTreeMap<String, CellType>,
    /// Resources of one leaf, by leaf type. Scheduling does not need them.
    pub sku_types: BTreeMap<String, Sku>,
    /// Top cells of the cluster, in order.
    pub physical_cells: Vec<PhysicalCell>,
    /// Virtual clusters, by name.
    pub virtual_clusters: BTreeMap<String, VirtualCluster>,
}

/// A cell type with children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellType {
    /// Type of its children.
    pub child: String,
    /// Number of children.
    pub children: u32,
    /// Whether a cell of this type is one machine.
    pub is_node: bool,
}

/// Resources of one leaf.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sku {
    /// GPUs; 0 for a share of CPU.
    pub gpu: u32,
    /// CPU, in milli-cores.
    pub cpu_milli: u64,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// A physical cell as written; [`Config::compile`] fills in what is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhysicalCell {
    /// Type of the cell; required for top cells only, since it follows from the parent's type.
    pub cell_type: Option<String>,
    /// Last part of the address: the name of a machine, or the index of a leaf on its machine.
    pub address: Option<String>,
    /// Name by which a virtual cluster can own exactly this cell.
    pub pinned: Option<String>,
    /// Children, if they are written out.
    pub children: Vec<PhysicalCell>,
}

/// Cells and limits of one virtual cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualCluster {
    /// Cells by type, at any place in the cluster.
    pub cells: Vec<VirtualCells>,
    /// Pinned cells, by name.
    pub pinned: Vec<String>,
    /// Most leaves one user may hold at guaranteed priorities; `None` for no limit.
    pub leaves_per_user: Option<u32>,
    /// Limits of single users, which replace `leaves_per_user`.
    pub user_limits: BTreeMap<String, u32>,
}

/// A number of cells of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualCells {
    /// Types from the top cell down to the owned type, joined by dots.
    pub path: String,
    /// Number of cells.
    pub number: u32,
}
