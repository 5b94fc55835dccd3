//! Slots bound to cells, groups on leaves, and the indexes that follow from them.
//!
//! Every index is a function of the state, never of how it came about, so a change that is reverted leaves no trace.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::NONE;
use crate::chain::ChainState;
use crate::group_table::GroupTable;
use crate::layout::{ChainId, Layout, Level, SlotId, ViewId};
use crate::request::PlacementOptions;
use crate::view::{SlotState, ViewState};

/// A leaf with its new occupant and its new claimant.
pub(crate) type LeafWrite = (u32, u32, u32);

/// The physical cells, and the slots of all virtual clusters.
#[derive(Debug, Clone)]
pub(crate) struct Occupancy {
    pub(crate) layout: Layout,
    pub(crate) chains: Vec<ChainState>,
    pub(crate) slots: Vec<SlotState>,
    pub(crate) views: Vec<ViewState>,
    /// Slots that lost their last guaranteed leaf and may be unbound.
    pub(crate) emptied_slots: BTreeSet<u32>,
}

impl Occupancy {
    /// Returns the cells of a layout, with pinned cells bound, all others free, and all machines healthy.
    pub(crate) fn new(layout: Layout) -> Self {
        let views = layout.views.iter();
        let views = views.map(|view| ViewState::new(layout.chain(view.chain).types.len()));
        let mut occupancy = Self {
            chains: layout.chains.iter().map(ChainState::new).collect(),
            slots: vec![SlotState::UNBOUND; layout.slots.len()],
            views: views.collect(),
            emptied_slots: BTreeSet::new(),
            layout,
        };
        for at in 0..occupancy.slots.len() {
            occupancy.count_unbound(SlotId(at as u32), true);
        }
        for at in 0..occupancy.slots.len() {
            if let Some(cell) = occupancy.layout.slots[at].pinned {
                occupancy.bind(SlotId(at as u32), cell);
            }
        }
        occupancy
    }

    /// Whether all cells, slots and indexes are equal.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.chains == other.chains && self.slots == other.slots && self.views == other.views
    }

    pub(crate) fn view_of(&self, slot: SlotId) -> ViewId {
        self.layout.slots[slot.index()].view
    }

    /// Returns the slot that a cell or one of its ancestors is bound to.
    pub(crate) fn slot_over(&self, chain: ChainId, level: Level, index: u32) -> Option<SlotId> {
        let layout = self.layout.chain(chain);
        self.chains[chain.index()].buddy.slot_over(layout, level, index)
    }

    /// Whether a cell is in or below the free list.
    pub(crate) fn is_free(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.layout.chain(chain);
        self.chains[chain.index()].buddy.is_free(layout, level, index)
    }

    /// Whether a cell has a bad machine.
    pub(crate) fn is_bad(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.layout.chain(chain);
        self.chains[chain.index()].buddy.is_bad(layout, level, index)
    }

    /// Returns for each level of a chain the free cells beyond those that virtual clusters own and do not use.
    pub(crate) fn slack(&self, chain: ChainId) -> SmallVec<[i64; 8]> {
        self.chains[chain.index()].buddy.slack(self.layout.chain(chain))
    }

    /// Whether a node is healthy and the options allow its machine.
    pub(crate) fn is_node_allowed(&self, chain: ChainId, node: u32, options: &PlacementOptions<'_>) -> bool {
        if self.chains[chain.index()].nodes[node as usize].bad {
            return false;
        }
        options
            .machines
            .is_none_or(|set| set.contains(self.layout.chain(chain).machines[node as usize]))
    }

    /// Binds a slot to a free physical cell.
    pub(crate) fn bind(&mut self, slot: SlotId, cell: u32) {
        let spec = &self.layout.slots[slot.index()];
        let (chain, level, view) = (spec.chain, spec.level, spec.view);
        self.change_cell(chain, level, cell, |occupancy| {
            occupancy.count_unbound(slot, false);
            let layout = occupancy.layout.chain(chain);
            let buddy = &mut occupancy.chains[chain.index()].buddy;
            buddy.bind(layout, level, cell, slot);
            occupancy.slots[slot.index()].cell = cell;
        });
        let layout = self.layout.chain(chain);
        if level >= layout.node_level {
            let nodes = layout.cells_in(level, layout.node_level);
            let bad = &self.chains[chain.index()].buddy.levels[level].bad;
            let idle = nodes - bad[cell as usize];
            self.slots[slot.index()].idle = idle;
            if idle > 0 {
                self.views[view.index()].slots_with_idle_nodes.insert(slot.0);
            }
        }
    }

    /// Returns the physical cell of an unused slot to the free list.
    pub(crate) fn unbind(&mut self, slot: SlotId) {
        let SlotState { cell, used, .. } = self.slots[slot.index()];
        debug_assert!(used == 0, "only unused slots are unbound");
        let spec = &self.layout.slots[slot.index()];
        let (chain, level, view) = (spec.chain, spec.level, spec.view);
        self.slots[slot.index()].idle = 0;
        self.views[view.index()].slots_with_idle_nodes.remove(&slot.0);
        self.change_cell(chain, level, cell, |occupancy| {
            occupancy.slots[slot.index()].cell = NONE;
            let layout = occupancy.layout.chain(chain);
            let buddy = &mut occupancy.chains[chain.index()].buddy;
            buddy.unbind(layout, level, cell);
            occupancy.count_unbound(slot, true);
        });
    }

    /// Changes a cell. A cell below the machine level is a bin of its own, so the indexes of its machine are updated too.
    fn change_cell(&mut self, chain: ChainId, level: Level, cell: u32, change: impl FnOnce(&mut Self)) {
        let layout = self.layout.chain(chain);
        if level >= layout.node_level {
            return change(self);
        }
        let node = layout.ancestor(cell, level, layout.node_level);
        self.index_node(chain, node, false);
        change(self);
        self.index_node(chain, node, true);
    }

    /// Adds a slot to those that are not bound, or removes it.
    fn count_unbound(&mut self, slot: SlotId, add: bool) {
        let spec = &self.layout.slots[slot.index()];
        let unbound = &mut self.views[spec.view.index()].unbound[spec.level];
        let promised = &mut self.chains[spec.chain.index()].buddy.levels[spec.level].promised;
        if add {
            unbound.insert(slot.0);
            *promised += 1;
        } else {
            unbound.remove(&slot.0);
            *promised -= 1;
        }
    }

    /// Sets whether a slot is doomed. Returns whether it was.
    pub(crate) fn set_doomed(&mut self, slot: SlotId, is_doomed: bool) -> bool {
        let spec = &self.layout.slots[slot.index()];
        let state = &mut self.slots[slot.index()];
        let was_doomed = std::mem::replace(&mut state.doomed, is_doomed);
        if was_doomed == is_doomed {
            return was_doomed;
        }
        let at = &mut self.views[spec.view.index()].doomed_at[spec.level];
        let count = &mut self.chains[spec.chain.index()].doomed;
        if is_doomed {
            at.insert(slot.0);
            *count += 1;
        } else {
            at.remove(&slot.0);
            *count -= 1;
        }
        was_doomed
    }

    /// Sets the health of a node that has changed.
    pub(crate) fn set_health(&mut self, chain: ChainId, node: u32, is_healthy: bool) {
        self.index_node(chain, node, false);
        let layout = self.layout.chain(chain);
        self.chains[chain.index()].set_health(layout, node, is_healthy);
        self.index_node(chain, node, true);
    }

    /// Changes leaves of one chain. Leaves of one machine should be adjacent in `writes`.
    pub(crate) fn write_leaves(&mut self, groups: &GroupTable, chain: ChainId, writes: &[LeafWrite]) {
        let size = self.layout.chain(chain).node_leaves();
        let mut rest = writes;
        while let Some(first) = rest.first() {
            let node = first.0 / size;
            let same = rest.iter().take_while(|w| w.0 / size == node).count();
            let (batch, later) = rest.split_at(same);
            self.index_node(chain, node, false);
            self.write_on_node(groups, chain, node, batch);
            self.index_node(chain, node, true);
            rest = later;
        }
    }

    fn write_on_node(&mut self, groups: &GroupTable, chain: ChainId, node: u32, batch: &[LeafWrite]) {
        let cover = self.slot_over(chain, self.layout.chain(chain).node_level, node);
        let mut borrowed = 0i32;
        for &(leaf, occupant, claimant) in batch {
            let layout = self.layout.chain(chain);
            let c = &mut self.chains[chain.index()];
            let before = groups.priority_of(c.owner(leaf));
            c.occupant[leaf as usize] = occupant;
            c.claimant[leaf as usize] = claimant;
            let after = groups.priority_of(c.owner(leaf));
            if before == after {
                continue;
            }
            let was_borrowed = before.is_some_and(|p| p < 0);
            let is_borrowed = after.is_some_and(|p| p < 0);
            if was_borrowed != is_borrowed {
                let step = if is_borrowed { 1 } else { -1 };
                borrowed += step;
                c.count_borrowed_leaf(layout, leaf, step);
            }
            self.count_guaranteed(chain, leaf, cover, before, false);
            self.count_guaranteed(chain, leaf, cover, after, true);
        }
        if borrowed != 0 {
            let layout = self.layout.chain(chain);
            self.chains[chain.index()].count_borrowed_on_node(layout, node, borrowed);
        }
    }

    /// Adds a guaranteed leaf to the counts of its node, slot and view, or subtracts it.
    fn count_guaranteed(
        &mut self,
        chain: ChainId,
        leaf: u32,
        cover: Option<SlotId>,
        priority: Option<i16>,
        add: bool,
    ) {
        let Some(priority) = priority.filter(|p| *p >= 0) else {
            return;
        };
        let slot = cover
            .or_else(|| self.slot_over(chain, 0, leaf))
            .expect("a guaranteed leaf is in a bound cell");
        let size = self.layout.chain(chain).node_leaves();
        let node = &mut self.chains[chain.index()].nodes[(leaf / size) as usize];
        let state = &mut self.slots[slot.index()];
        if add {
            node.guaranteed += 1;
            state.used += 1;
        } else {
            node.guaranteed -= 1;
            state.used -= 1;
            if state.used == 0 {
                self.emptied_slots.insert(slot.0);
            }
        }
        let view = self.layout.slots[slot.index()].view;
        self.views[view.index()].count_used(priority, add);
    }

    /// Adds a machine to the indexes it belongs to, or removes it. Every change does the latter before and the former after.
    fn index_node(&mut self, chain: ChainId, node: u32, add: bool) {
        let layout = self.layout.chain(chain);
        let size = layout.node_leaves();
        let c = &mut self.chains[chain.index()];
        c.index_node(size, node, add);
        let n = c.nodes[node as usize];
        if n.bad {
            return;
        }
        if let Some(slot) = c.buddy.slot_over(layout, layout.node_level, node) {
            let view = &mut self.views[self.layout.slots[slot.index()].view.index()];
            if n.guaranteed == 0 {
                view.count_idle(slot, &mut self.slots[slot.index()], add);
            } else if n.guaranteed < size {
                view.index_bin(slot, size - n.guaranteed, (layout.node_level, node), add);
            }
            return;
        }
        for (slot, level, index) in c.buddy.small_slots(layout, node) {
            let free = layout.leaves[level] - self.slots[slot.index()].used;
            if free > 0 {
                let view = &mut self.views[self.layout.slots[slot.index()].view.index()];
                view.index_bin(slot, free, (level, index), add);
            }
        }
    }
}
