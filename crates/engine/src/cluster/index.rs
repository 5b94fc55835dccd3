//! An index of open nodes by free GPUs, which finds a node without a scan.

use dovetail_model::ids::IdVec;
use dovetail_model::{GpuTypeId, NodeId};

use super::node::NodeState;
use crate::node_set::NodeSet;

/// Open nodes with one type of GPU, by their number of free GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pool {
    by_free: Vec<NodeSet>,
    /// One bit for every level of `by_free` that is not empty.
    levels: Vec<u64>,
    pub(super) free: u32,
    pub(super) total: u32,
}

impl Pool {
    fn insert(&mut self, id: NodeId, node: &NodeState) {
        let level = node.free_gpus as usize;
        if self.by_free.len() <= node.spec.gpus as usize {
            self.by_free
                .resize_with(node.spec.gpus as usize + 1, NodeSet::default);
            self.levels.resize(node.spec.gpus as usize / 64 + 1, 0);
        }
        self.by_free[level].insert(id);
        self.levels[level / 64] |= 1 << (level % 64);
        self.free += node.free_gpus;
        self.total += node.spec.gpus;
    }

    fn remove(&mut self, id: NodeId, node: &NodeState) {
        let level = node.free_gpus as usize;
        self.by_free[level].remove(id);
        if self.by_free[level].is_empty() {
            self.levels[level / 64] &= !(1 << (level % 64));
        }
        self.free -= node.free_gpus;
        self.total -= node.spec.gpus;
    }

    /// Returns the nodes with exactly this many free GPUs.
    pub(super) fn with_free(&self, free: u32) -> Option<&NodeSet> {
        self.by_free.get(free as usize)
    }

    /// Returns the lowest level of at least `from` that has a node.
    pub(super) fn level_from(&self, from: u32) -> Option<u32> {
        let (word, bit) = (from as usize / 64, from % 64);
        let first = self.levels.get(word)? >> bit << bit;
        if first != 0 {
            return Some((word * 64) as u32 + first.trailing_zeros());
        }
        let rest = self
            .levels
            .iter()
            .enumerate()
            .skip(word + 1)
            .find(|(_, w)| **w != 0)?;
        Some((rest.0 * 64) as u32 + rest.1.trailing_zeros())
    }

    /// Returns the highest level below `below` that has a node.
    pub(super) fn level_below(&self, below: u32) -> Option<u32> {
        let (word, bit) = (below as usize / 64, below % 64);
        let last = self.levels.get(word).copied().unwrap_or(0) & ((1 << bit) - 1);
        if last != 0 {
            return Some((word * 64) as u32 + last.ilog2());
        }
        let rest = self
            .levels
            .iter()
            .enumerate()
            .take(word)
            .rev()
            .find(|(_, w)| **w != 0)?;
        Some((rest.0 * 64) as u32 + rest.1.ilog2())
    }
}

/// All open nodes, by type of GPU and number of free GPUs, with totals.
#[derive(Debug, Clone, Default)]
pub(super) struct FreeIndex {
    pub(super) pools: IdVec<GpuTypeId, Pool>,
    /// Nodes with at least one free GPU.
    pub(super) with_free: NodeSet,
    pub(super) free: u32,
    pub(super) total: u32,
    /// Free GPUs on partly used nodes.
    pub(super) fragments: u32,
}

impl FreeIndex {
    /// Adds a node, if it is open.
    pub(super) fn insert(&mut self, id: NodeId, node: &NodeState) {
        if node.is_open() {
            self.pools.entry(node.spec.gpu_type).insert(id, node);
            self.free += node.free_gpus;
            self.total += node.spec.gpus;
            self.fragments += node.fragment();
            if node.free_gpus > 0 {
                self.with_free.insert(id);
            }
        }
    }

    /// Removes a node that was inserted in the same state, if it is open.
    pub(super) fn remove(&mut self, id: NodeId, node: &NodeState) {
        if node.is_open() {
            self.pools[node.spec.gpu_type].remove(id, node);
            self.free -= node.free_gpus;
            self.total -= node.spec.gpus;
            self.fragments -= node.fragment();
            self.with_free.remove(id);
        }
    }
}
