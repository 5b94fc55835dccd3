//! The compiled configuration: chains of regular trees whose cells are indices, and the slots of virtual clusters.
//!
//! All cells of one level of a chain have the same number of children, so the tree needs no pointers: the parent of
//! cell `i` is cell `i / children` of the level above, and its leaves are a range. Level 0 is the leaves.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::request::Target;

/// A level of a chain; 0 is the leaves. (HiveD counts from 1.)
pub type Level = usize;

macro_rules! small_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the index into its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

small_id!(
    /// A chain: all top cells of one type and everything below them.
    ChainId
);
small_id!(
    /// A virtual cluster.
    VcId
);
small_id!(
    /// A cell that a virtual cluster owns: some physical cell of its type, or one pinned cell.
    SlotId
);
small_id!(
    /// A machine, which can appear in several chains.
    MachineId
);
small_id!(
    /// A leaf type: a GPU model or a share of CPU.
    LeafType
);
small_id!(
    /// The part of a virtual cluster in which a request is placed: its cells of one chain, or one pinned cell.
    ViewId
);

/// A physical cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Its chain.
    pub chain: ChainId,
    /// Its level.
    pub level: u8,
    /// Its index among the cells of its level.
    pub index: u32,
}

/// The last part of a cell's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressPart {
    Number(u32),
    Name(Box<str>),
}

impl fmt::Display for AddressPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// All top cells of one type and everything below them. Lists by level start at the leaves.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Type of the top cells.
    pub name: String,
    /// Type of the cells of each level.
    pub types: Vec<String>,
    /// Type of the leaves.
    pub leaf_type: LeafType,
    /// Level of machines.
    pub node_level: Level,
    /// Children of a cell, by level; 0 for leaves.
    pub fanout: Vec<u32>,
    /// Leaves of a cell, by level.
    pub leaves: Vec<u32>,
    /// Number of cells, by level.
    pub cells: Vec<u32>,
    /// Machine of each node.
    pub machines: Vec<MachineId>,
    /// Index of each leaf on its machine.
    pub leaf_indices: Vec<i32>,
    /// Last part of the address of each cell, by level.
    pub(crate) addresses: Vec<Vec<AddressPart>>,
}

impl Chain {
    /// Returns the top level.
    pub fn top(&self) -> Level {
        self.types.len() - 1
    }

    /// Returns the number of cells of level `of` in one cell of level `level`.
    pub fn cells_in(&self, level: Level, of: Level) -> u32 {
        self.leaves[level] / self.leaves[of]
    }

    /// Returns the ancestor of a cell of level `from` at level `to`.
    pub fn ancestor(&self, index: u32, from: Level, to: Level) -> u32 {
        index / self.cells_in(to, from)
    }

    /// Returns the cells of the lower level `of` inside a cell.
    pub fn inside(&self, index: u32, level: Level, of: Level) -> Range<u32> {
        let each = self.cells_in(level, of);
        index * each..(index + 1) * each
    }

    /// Returns the number of leaves of one machine.
    pub fn node_leaves(&self) -> u32 {
        self.leaves[self.node_level]
    }

    /// Returns the address of a cell: all parts from the top, joined by slashes.
    pub fn address(&self, level: Level, index: u32) -> String {
        let parts = (level..=self.top()).rev().map(|above| {
            let at = self.ancestor(index, level, above);
            self.addresses[above][at as usize].to_string()
        });
        parts.collect::<Vec<_>>().join("/")
    }
}

/// A cell that a virtual cluster owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSpec {
    /// The owner.
    pub vc: VcId,
    /// Its number among the cells of the owner.
    pub number: u32,
    /// Chain of the cell.
    pub chain: ChainId,
    /// Level of the cell.
    pub level: Level,
    /// The view it belongs to.
    pub view: ViewId,
    /// The physical cell, for a pinned one.
    pub pinned: Option<u32>,
}

/// The part of a virtual cluster in which a request is placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewSpec {
    /// The owner.
    pub vc: VcId,
    /// The chain.
    pub chain: ChainId,
    /// Name of the pinned cell, if this is one.
    pub pinned: Option<String>,
    /// Its slots, in order.
    pub slots: Vec<SlotId>,
    /// Leaves of all its slots.
    pub leaves: u32,
}

/// A virtual cluster.
#[derive(Debug, Clone, Default)]
pub struct VcSpec {
    /// Its name.
    pub name: String,
    /// Its slots, in the order of the configuration.
    pub slots: Vec<SlotId>,
    /// Its views without the pinned cells, by chain.
    pub views: BTreeMap<ChainId, ViewId>,
    /// Its pinned cells, by name.
    pub pinned: BTreeMap<String, ViewId>,
    /// Most leaves one user may hold at guaranteed priorities.
    pub leaves_per_user: Option<u32>,
    /// Limits of single users, which replace `leaves_per_user`.
    pub user_limits: BTreeMap<String, u32>,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its node in each chain it appears in.
    pub nodes: SmallVec<[(ChainId, u32); 1]>,
}

/// The compiled configuration.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Chains, by name.
    pub chains: Vec<Chain>,
    /// Names of the leaf types, in order.
    pub leaf_types: Vec<String>,
    /// Chains of each leaf type in the order in which they are searched: by descending name.
    pub chains_of: Vec<Vec<ChainId>>,
    /// Virtual clusters, by name.
    pub vcs: Vec<VcSpec>,
    /// Slots of all virtual clusters.
    pub slots: Vec<SlotSpec>,
    /// Views of all virtual clusters.
    pub views: Vec<ViewSpec>,
    /// Machines, in the order of the configuration.
    pub machines: Vec<Machine>,
    pub(crate) machine_by_name: BTreeMap<String, MachineId>,
}

impl Layout {
    /// Returns a chain.
    pub fn chain(&self, id: ChainId) -> &Chain {
        &self.chains[id.index()]
    }

    /// Finds a chain by name.
    pub fn chain_named(&self, name: &str) -> Option<ChainId> {
        let at = self.chains.binary_search_by(|c| c.name.as_str().cmp(name)).ok()?;
        Some(ChainId(at as u32))
    }

    /// Finds a virtual cluster by name.
    pub fn vc_named(&self, name: &str) -> Option<VcId> {
        let at = self.vcs.binary_search_by(|v| v.name.as_str().cmp(name)).ok()?;
        Some(VcId(at as u32))
    }

    /// Finds a leaf type by name.
    pub fn leaf_type_named(&self, name: &str) -> Option<LeafType> {
        let at = self.leaf_types.binary_search_by(|t| t.as_str().cmp(name)).ok()?;
        Some(LeafType(at as u32))
    }

    /// Returns the name of the leaf type of a chain.
    pub(crate) fn leaf_name(&self, chain: ChainId) -> &str {
        &self.leaf_types[self.chain(chain).leaf_type.index()]
    }

    /// Finds a machine by name.
    pub fn machine_named(&self, name: &str) -> Option<MachineId> {
        self.machine_by_name.get(name).copied()
    }

    /// Returns the machine of a leaf.
    pub fn machine_of(&self, chain: ChainId, leaf: u32) -> MachineId {
        let c = self.chain(chain);
        c.machines[(leaf / c.node_leaves()) as usize]
    }

    /// Finds the leaf with this index on a machine, in one chain.
    pub fn leaf_at(&self, chain: ChainId, machine: MachineId, index: i32) -> Option<u32> {
        let nodes = &self.machines[machine.index()].nodes;
        let (_, node) = nodes.iter().find(|(c, _)| *c == chain)?;
        let c = self.chain(chain);
        c.inside(*node, c.node_level, 0)
            .find(|leaf| c.leaf_indices[*leaf as usize] == index)
    }

    /// Returns HiveD's name of a slot: the virtual cluster and a running number.
    pub fn slot_address(&self, slot: SlotId) -> String {
        let s = &self.slots[slot.index()];
        format!("{}/{}", self.vcs[s.vc.index()].name, s.number)
    }

    /// Returns the cell type of a slot.
    pub fn slot_type(&self, slot: SlotId) -> &str {
        let s = &self.slots[slot.index()];
        &self.chain(s.chain).types[s.level]
    }

    /// Returns the number of leaves that a virtual cluster owns.
    pub fn leaves_of(&self, vc: VcId) -> u32 {
        let slots = self.vcs[vc.index()].slots.iter();
        slots
            .map(|s| &self.slots[s.index()])
            .map(|s| self.chain(s.chain).leaves[s.level])
            .sum()
    }

    /// Returns the views of a virtual cluster that a target may use, in the order in which they are tried.
    pub(crate) fn views_for(&self, vc: VcId, target: Target) -> Vec<ViewId> {
        let vc = &self.vcs[vc.index()];
        match target {
            Target::Pinned(view) => vec![view],
            Target::Leaf(_) | Target::Any => {
                let chains = self.chains_for(target);
                chains.iter().filter_map(|c| vc.views.get(c).copied()).collect()
            }
        }
    }

    /// Returns the chains that a target may use, in the order in which they are tried.
    pub(crate) fn chains_for(&self, target: Target) -> Vec<ChainId> {
        match target {
            Target::Leaf(leaf) => self.chains_of[leaf.index()].clone(),
            Target::Any => self.chains_of.iter().flatten().copied().collect(),
            Target::Pinned(view) => vec![self.views[view.index()].chain],
        }
    }
}
