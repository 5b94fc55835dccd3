//! The state of one chain: its cells, the groups on its leaves, and its machines.

use std::collections::BTreeSet;

use crate::NONE;
use crate::bits::Bits;
use crate::buddy::BuddyAllocator;
use crate::layout::Chain;

/// A machine in one chain.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct NodeState {
    /// Leaves at guaranteed priorities.
    pub(crate) guaranteed: u32,
    /// Leaves that borrowers hold.
    pub(crate) borrowed: u32,
    pub(crate) bad: bool,
}

/// A chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChainState {
    pub(crate) buddy: BuddyAllocator,
    /// Group on each leaf.
    pub(crate) occupant: Vec<u32>,
    /// Preempting group that claims each leaf.
    pub(crate) claimant: Vec<u32>,
    pub(crate) nodes: Vec<NodeState>,
    /// Healthy nodes without guaranteed leaves.
    pub(crate) idle: Bits,
    /// Healthy nodes without any group.
    pub(crate) fresh: Bits,
    /// Healthy nodes with free leaves as (leaves not borrowed, guaranteed leaves, node).
    pub(crate) borrowable: BTreeSet<(u32, u32, u32)>,
    /// Number of doomed slots.
    pub(crate) doomed: u32,
}

impl ChainState {
    /// Returns a chain without groups and with all machines healthy.
    pub(crate) fn new(chain: &Chain) -> Self {
        let nodes = chain.cells[chain.node_level] as usize;
        let size = chain.node_leaves();
        let leaves = chain.cells[0] as usize;
        Self {
            buddy: BuddyAllocator::new(chain),
            occupant: vec![NONE; leaves],
            claimant: vec![NONE; leaves],
            nodes: vec![NodeState::default(); nodes],
            idle: Bits::full(nodes),
            fresh: Bits::full(nodes),
            borrowable: (0..nodes as u32).map(|n| (size, 0, n)).collect(),
            doomed: 0,
        }
    }

    /// Returns the group that owns a leaf: the claimant if there is one, else the occupant, else [`NONE`].
    pub(crate) fn owner(&self, leaf: u32) -> u32 {
        match self.claimant[leaf as usize] {
            NONE => self.occupant[leaf as usize],
            claimant => claimant,
        }
    }

    /// Adds a node with `size` leaves to the indexes of nodes, or removes it.
    pub(crate) fn index_node(&mut self, size: u32, node: u32, add: bool) {
        let n = self.nodes[node as usize];
        let idle = add && !n.bad && n.guaranteed == 0;
        self.idle.set(node, idle);
        self.fresh.set(node, idle && n.borrowed == 0);
        if !n.bad && n.guaranteed + n.borrowed < size {
            let key = (size - n.borrowed, n.guaranteed, node);
            if add {
                self.borrowable.insert(key);
            } else {
                self.borrowable.remove(&key);
            }
        }
    }

    /// Counts a leaf of a node that a borrower takes or gives up, in the cells below the machine level.
    pub(crate) fn count_borrowed_leaf(&mut self, chain: &Chain, leaf: u32, step: i32) {
        for level in 0..chain.node_level {
            self.buddy
                .count_borrowed(chain, level, leaf / chain.leaves[level], step);
        }
    }

    /// Counts borrowed leaves of a node, and of all cells around it.
    pub(crate) fn count_borrowed_on_node(&mut self, chain: &Chain, node: u32, step: i32) {
        let borrowed = &mut self.nodes[node as usize].borrowed;
        *borrowed = borrowed.wrapping_add_signed(step);
        for level in chain.node_level..=chain.top() {
            let index = chain.ancestor(node, chain.node_level, level);
            self.buddy.count_borrowed(chain, level, index, step);
        }
    }

    /// Sets the health of a node that has changed.
    pub(crate) fn set_health(&mut self, chain: &Chain, node: u32, is_healthy: bool) {
        self.nodes[node as usize].bad = !is_healthy;
        self.buddy.set_health(chain, node, is_healthy);
    }
}
