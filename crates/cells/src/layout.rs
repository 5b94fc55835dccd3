//! The configuration, compiled: chains of regular trees, whose cells are numbers, and the slots virtual clusters own.
//!
//! All cells of one level of a chain have the same number of children, so the tree needs no pointers: the parent of
//! cell `i` is cell `i / children` of the level above, and its leaves are a range. Level 0 is the leaves.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A level of a chain; 0 is the leaves. (HiveD counts from 1.)
pub type Level = usize;

macro_rules! small_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Its place in its table.
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
    /// A cell a virtual cluster owns: a promise of one physical cell of its kind, or of one pinned cell.
    SlotId
);
small_id!(
    /// A machine, which can appear in several chains.
    MachineId
);
small_id!(
    /// A kind of leaf: a GPU model or a CPU share.
    LeafType
);
small_id!(
    /// Where a request can be placed inside a virtual cluster: its cells of one chain, or one pinned cell.
    ViewId
);

/// A physical cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Its chain.
    pub chain: ChainId,
    /// Its level.
    pub level: u8,
    /// Its number among the cells of its level.
    pub index: u32,
}

/// The own part of a cell's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Number(u32),
    Name(Box<str>),
}

/// A chain: what is below all top cells of one type.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The type of its top cells.
    pub name: String,
    /// The type of the cells of each level.
    pub types: Vec<String>,
    /// The kind of its leaves.
    pub leaf_type: LeafType,
    /// The level of machines.
    pub node_level: Level,
    /// Children of a cell, by level; none for leaves.
    pub fanout: Vec<u32>,
    /// Leaves of a cell, by level.
    pub leaves: Vec<u32>,
    /// Cells, by level.
    pub cells: Vec<u32>,
    /// The machine of each node.
    pub machines: Vec<MachineId>,
    /// The index of each leaf on its machine.
    pub leaf_indices: Vec<i32>,
    pub(crate) parts: Vec<Vec<Part>>,
}

impl Chain {
    /// The top level.
    pub fn top(&self) -> Level {
        self.types.len() - 1
    }

    /// How many cells of level `of` are in one cell of level `level`.
    pub fn cells_in(&self, level: Level, of: Level) -> u32 {
        self.leaves[level] / self.leaves[of]
    }

    /// The ancestor at a level.
    pub fn ancestor(&self, index: u32, from: Level, to: Level) -> u32 {
        index / self.cells_in(to, from)
    }

    /// The cells of a lower level inside a cell.
    pub fn inside(&self, index: u32, level: Level, of: Level) -> Range<u32> {
        let each = self.cells_in(level, of);
        index * each..(index + 1) * each
    }

    /// Leaves of one machine.
    pub fn node_leaves(&self) -> u32 {
        self.leaves[self.node_level]
    }

    /// The address of a cell: the parts from the top, joined.
    pub fn address(&self, level: Level, index: u32) -> String {
        let parts = (level..=self.top()).rev().map(|above| {
            let at = self.ancestor(index, level, above);
            match &self.parts[above][at as usize] {
                Part::Number(number) => number.to_string(),
                Part::Name(name) => name.to_string(),
            }
        });
        parts.collect::<Vec<_>>().join("/")
    }
}

/// A cell a virtual cluster owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSpec {
    /// The owner.
    pub vc: VcId,
    /// Its number among the cells of the owner.
    pub number: u32,
    /// The chain it is of.
    pub chain: ChainId,
    /// The level it is of.
    pub level: Level,
    /// Where it can be used.
    pub view: ViewId,
    /// The physical cell, if it is a pinned one.
    pub pinned: Option<u32>,
}

/// Where a request can be placed inside a virtual cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewSpec {
    /// The owner.
    pub vc: VcId,
    /// The chain.
    pub chain: ChainId,
    /// The name of the pinned cell, if it is one.
    pub pinned: Option<String>,
    /// Its slots, in order.
    pub slots: Vec<SlotId>,
    /// Leaves of all of them.
    pub leaves: u32,
}

/// A virtual cluster.
#[derive(Debug, Clone, Default)]
pub struct VcSpec {
    /// Its name.
    pub name: String,
    /// Its cells, in the order of the configuration.
    pub slots: Vec<SlotId>,
    /// Its cells by chain, without the pinned ones.
    pub views: BTreeMap<ChainId, ViewId>,
    /// Its pinned cells by name.
    pub pinned: BTreeMap<String, ViewId>,
    /// Leaves one user may hold at guaranteed priorities.
    pub leaves_per_user: Option<u32>,
    /// Users with a limit of their own.
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

/// A whole configuration, compiled.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The chains, by name.
    pub chains: Vec<Chain>,
    /// The names of the kinds of leaves, in order.
    pub leaf_types: Vec<String>,
    /// The chains of each kind of leaf, in the order they are searched: names descending.
    pub chains_of: Vec<Vec<ChainId>>,
    /// The virtual clusters, by name.
    pub vcs: Vec<VcSpec>,
    /// All cells they own.
    pub slots: Vec<SlotSpec>,
    /// Where requests can be placed.
    pub views: Vec<ViewSpec>,
    /// The machines, in the order they appear.
    pub machines: Vec<Machine>,
    pub(crate) machine_by_name: BTreeMap<String, MachineId>,
}

impl Layout {
    /// A chain.
    pub fn chain(&self, id: ChainId) -> &Chain {
        &self.chains[id.index()]
    }

    /// The chain of a name.
    pub fn chain_named(&self, name: &str) -> Option<ChainId> {
        let at = self.chains.binary_search_by(|c| c.name.as_str().cmp(name)).ok()?;
        Some(ChainId(at as u32))
    }

    /// The virtual cluster of a name.
    pub fn vc_named(&self, name: &str) -> Option<VcId> {
        let at = self.vcs.binary_search_by(|v| v.name.as_str().cmp(name)).ok()?;
        Some(VcId(at as u32))
    }

    /// The kind of leaf of a name.
    pub fn leaf_type_named(&self, name: &str) -> Option<LeafType> {
        let at = self.leaf_types.binary_search_by(|t| t.as_str().cmp(name)).ok()?;
        Some(LeafType(at as u32))
    }

    /// The machine of a name.
    pub fn machine_named(&self, name: &str) -> Option<MachineId> {
        self.machine_by_name.get(name).copied()
    }

    /// The machine a leaf is on.
    pub fn machine_of(&self, chain: ChainId, leaf: u32) -> MachineId {
        let c = self.chain(chain);
        c.machines[(leaf / c.node_leaves()) as usize]
    }

    /// The leaf with this index on a machine, in one chain.
    pub fn leaf_at(&self, chain: ChainId, machine: MachineId, index: i32) -> Option<u32> {
        let nodes = &self.machines[machine.index()].nodes;
        let (_, node) = nodes.iter().find(|(c, _)| *c == chain)?;
        let c = self.chain(chain);
        c.inside(*node, c.node_level, 0)
            .find(|leaf| c.leaf_indices[*leaf as usize] == index)
    }

    /// The name of a slot as HiveD writes it: the virtual cluster and a running number.
    pub fn slot_address(&self, slot: SlotId) -> String {
        let s = &self.slots[slot.index()];
        format!("{}/{}", self.vcs[s.vc.index()].name, s.number)
    }

    /// The type of the cell a slot promises.
    pub fn slot_type(&self, slot: SlotId) -> &str {
        let s = &self.slots[slot.index()];
        &self.chain(s.chain).types[s.level]
    }

    /// Leaves a virtual cluster owns.
    pub fn leaves_of(&self, vc: VcId) -> u32 {
        let slots = self.vcs[vc.index()].slots.iter();
        slots
            .map(|s| &self.slots[s.index()])
            .map(|s| self.chain(s.chain).leaves[s.level])
            .sum()
    }
}
