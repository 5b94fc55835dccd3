//! What a configuration contains: cells by chain and level, and the cells of each virtual cluster.

use std::collections::BTreeMap;

use dovetail_cells::{Cells, ChainId, CompiledConfig, Fault, Layout, SlotId, VcSpec};
use serde::Serialize;

/// The content of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigOverview {
    /// Names of all machines.
    pub machines: Vec<String>,
    /// Cells by chain and level.
    pub chains: Vec<LevelOverview>,
    /// The virtual clusters.
    pub virtual_clusters: Vec<VcOverview>,
    /// What the compiler noted.
    pub notes: Vec<FaultOverview>,
}

/// The cells of one level of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelOverview {
    /// The chain.
    pub chain: String,
    /// The level, from 1.
    pub level: usize,
    /// Type of the cells.
    pub cell_type: String,
    /// Number of cells.
    pub cells: u32,
    /// Cells that virtual clusters own, without pinned ones.
    #[serde(rename = "promised")]
    pub guaranteed: usize,
    /// Pinned cells.
    pub pinned: usize,
    /// Cells that no virtual cluster owns: how many more could be guaranteed.
    #[serde(rename = "left")]
    pub not_owned: i64,
    /// Whether cells of this level are machines or larger.
    #[serde(skip)]
    pub is_machine_or_larger: bool,
}

/// The cells of one virtual cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VcOverview {
    /// Name of the virtual cluster.
    pub name: String,
    /// Number of its leaf cells.
    pub leaf_cells: u32,
    /// Its cells.
    pub cells: Vec<OwnedCell>,
    /// Leaf cells that one user may hold.
    pub leaf_cells_per_user: Option<u32>,
    /// Leaf cells that certain users may hold.
    pub user_limits: BTreeMap<String, u32>,
}

/// One cell of a virtual cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnedCell {
    /// Address in the virtual cluster.
    pub address: String,
    /// The chain.
    pub chain: String,
    /// Type of the cell.
    pub cell_type: String,
    /// Number of its leaf cells.
    pub leaf_cells: u32,
    /// Name of the pin, if it is pinned.
    pub pinned: Option<String>,
}

/// A fault or note, with the path of its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultOverview {
    /// Path of the key.
    pub path: String,
    /// What is wrong or noteworthy.
    pub what: String,
}

impl From<&Fault> for FaultOverview {
    fn from(fault: &Fault) -> Self {
        Self {
            path: fault.path.clone(),
            what: fault.what.clone(),
        }
    }
}

impl ConfigOverview {
    /// Describes a compiled configuration.
    pub fn new(compiled: &CompiledConfig) -> Self {
        let layout = &compiled.layout;
        Self {
            machines: layout.machines.iter().map(|m| m.name.clone()).collect(),
            chains: level_overviews(layout),
            virtual_clusters: layout.vcs.iter().map(|vc| vc_overview(layout, vc)).collect(),
            notes: compiled.notes.iter().map(FaultOverview::from).collect(),
        }
    }
}

impl LevelOverview {
    /// Returns whether the level is worth showing: levels below the smallest owned cell add no information.
    pub fn is_relevant(&self) -> bool {
        self.is_machine_or_larger || self.guaranteed + self.pinned > 0
    }
}

/// Counts the cells of each chain, the highest level first.
pub fn level_overviews(layout: &Layout) -> Vec<LevelOverview> {
    let cells = Cells::new(layout.clone());
    let mut levels = Vec::new();
    for (at, chain) in layout.chains.iter().enumerate() {
        let id = ChainId(at as u32);
        let slack = cells.slack_of(id);
        for level in (0..=chain.top()).rev() {
            let owned = |pinned: bool| {
                let slots = layout.slots.iter().filter(|s| s.chain == id && s.level == level);
                slots.filter(|s| s.pinned.is_some() == pinned).count()
            };
            levels.push(LevelOverview {
                chain: chain.name.clone(),
                level: level + 1,
                cell_type: chain.types[level].clone(),
                cells: chain.cells[level],
                guaranteed: owned(false),
                pinned: owned(true),
                not_owned: slack[level],
                is_machine_or_larger: level >= chain.node_level,
            });
        }
    }
    levels
}

fn vc_overview(layout: &Layout, vc: &VcSpec) -> VcOverview {
    let id = layout.vc_named(&vc.name).unwrap_or_default();
    let cell = |slot: &SlotId| {
        let spec = &layout.slots[slot.index()];
        let chain = layout.chain(spec.chain);
        OwnedCell {
            address: layout.slot_address(*slot),
            chain: chain.name.clone(),
            cell_type: chain.types[spec.level].clone(),
            leaf_cells: chain.leaves[spec.level],
            pinned: layout.views[spec.view.index()].pinned.clone(),
        }
    };
    VcOverview {
        name: vc.name.clone(),
        leaf_cells: layout.leaves_of(id),
        cells: vc.slots.iter().map(cell).collect(),
        leaf_cells_per_user: vc.leaves_per_user,
        user_limits: vc.user_limits.clone(),
    }
}
