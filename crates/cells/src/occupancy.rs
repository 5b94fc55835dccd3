//! Occupants and claimants of leaves, and the indexes that follow from them.

use crate::layout::{ChainId, Level, SlotId};
use crate::state::{Cells, NONE};
use crate::undo::UndoRecord;

/// A leaf with its new occupant and its new claimant.
pub(crate) type LeafWrite = (u32, u32, u32);

impl Cells {
    /// Changes leaves of one chain and logs how to undo it. Leaves of one machine should be adjacent in `writes`.
    pub(crate) fn write_leaves(&mut self, chain: ChainId, writes: &[LeafWrite]) {
        let size = self.layout.chain(chain).node_leaves();
        let mut rest = writes;
        while let Some(first) = rest.first() {
            let node = first.0 / size;
            let same = rest.iter().take_while(|w| w.0 / size == node).count();
            let (batch, later) = rest.split_at(same);
            self.index_node(chain, node, false);
            self.write_on_node(chain, node, batch);
            self.index_node(chain, node, true);
            rest = later;
        }
    }

    fn write_on_node(&mut self, chain: ChainId, node: u32, batch: &[LeafWrite]) {
        let node_level = self.layout.chain(chain).node_level;
        let cover = self.slot_over(chain, node_level, node);
        let mut borrowed = 0i32;
        for &(leaf, occupant, claimant) in batch {
            let before = self.owner(chain, leaf).map(|(_, p)| p);
            let c = &mut self.chains[chain.index()];
            let at = leaf as usize;
            self.log.push(UndoRecord::Leaf {
                chain,
                leaf,
                occupant: c.occupant[at],
                claimant: c.claimant[at],
            });
            c.occupant[at] = occupant;
            c.claimant[at] = claimant;
            let after = self.owner(chain, leaf).map(|(_, p)| p);
            if before == after {
                continue;
            }
            let was_borrowed = before.is_some_and(|p| p < 0);
            let is_borrowed = after.is_some_and(|p| p < 0);
            if was_borrowed != is_borrowed {
                let step = if is_borrowed { 1 } else { -1 };
                borrowed += step;
                self.count_borrowed_below_node(chain, leaf, step);
            }
            self.count_guaranteed(chain, leaf, cover, before, false);
            self.count_guaranteed(chain, leaf, cover, after, true);
        }
        if borrowed != 0 {
            self.chains[chain.index()].nodes[node as usize].borrowed = self.chains[chain.index()].nodes
                [node as usize]
                .borrowed
                .wrapping_add_signed(borrowed);
            self.count_borrowed_from_node_up(chain, node, borrowed);
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
        let view = self.layout.slots[slot.index()].view;
        let at = self.views[view.index()].used_at.entry(priority).or_insert(0);
        let state = &mut self.slots[slot.index()];
        if add {
            node.guaranteed += 1;
            state.used += 1;
            *at += 1;
        } else {
            node.guaranteed -= 1;
            state.used -= 1;
            *at -= 1;
            if *at == 0 {
                self.views[view.index()].used_at.remove(&priority);
            }
            if state.used == 0 {
                self.emptied_slots.insert(slot.0);
            }
        }
    }

    /// Counts a borrowed leaf in all cells around it below the machine level.
    fn count_borrowed_below_node(&mut self, chain: ChainId, leaf: u32, step: i32) {
        for level in 0..self.layout.chain(chain).node_level {
            let index = leaf / self.layout.chain(chain).leaves[level];
            self.count_borrowed(chain, level, index, step);
        }
    }

    /// Counts borrowed leaves in all cells around a machine, including its own.
    fn count_borrowed_from_node_up(&mut self, chain: ChainId, node: u32, step: i32) {
        let layout = self.layout.chain(chain);
        let (from, top) = (layout.node_level, layout.top());
        for level in from..=top {
            let index = self.layout.chain(chain).ancestor(node, from, level);
            self.count_borrowed(chain, level, index, step);
        }
    }

    fn count_borrowed(&mut self, chain: ChainId, level: Level, index: u32, step: i32) {
        self.unindex_cell(chain, level, index);
        let borrowed = &mut self.chains[chain.index()].levels[level].borrowed[index as usize];
        *borrowed = borrowed.wrapping_add_signed(step);
        self.index_cell(chain, level, index);
    }

    /// Adds a machine to the indexes it belongs to, or removes it. Every change does the latter before and the former after.
    pub(crate) fn index_node(&mut self, chain: ChainId, node: u32, add: bool) {
        let layout = self.layout.chain(chain);
        let (node_level, size) = (layout.node_level, layout.node_leaves());
        let c = &mut self.chains[chain.index()];
        let n = c.nodes[node as usize];
        let idle = add && !n.bad && n.guaranteed == 0;
        c.idle.set(node, idle);
        c.fresh.set(node, idle && n.borrowed == 0);
        if n.bad {
            return;
        }
        if n.guaranteed + n.borrowed < size {
            let key = (size - n.borrowed, n.guaranteed, node);
            if add {
                c.borrowable.insert(key);
            } else {
                c.borrowable.remove(&key);
            }
        }
        if let Some(slot) = self.slot_over(chain, node_level, node) {
            if n.guaranteed == 0 {
                self.count_idle(slot, add);
            } else if n.guaranteed < size {
                self.index_bin(slot, (size - n.guaranteed, node_level as u8, node), add);
            }
            return;
        }
        for (slot, level, index) in self.small_slots(chain, node) {
            let free = self.layout.chain(chain).leaves[level] - self.slots[slot.index()].used;
            if free > 0 {
                self.index_bin(slot, (free, level as u8, index), add);
            }
        }
    }

    fn index_bin(&mut self, slot: SlotId, bin: (u32, u8, u32), add: bool) {
        let view = self.view_of(slot);
        let (free, level, index) = bin;
        let bin = (free, slot.0, level, index);
        let partial = &mut self.views[view.index()].partial;
        if add {
            partial.insert(bin);
        } else {
            partial.remove(&bin);
        }
    }

    fn count_idle(&mut self, slot: SlotId, add: bool) {
        let view = self.view_of(slot);
        let state = &mut self.slots[slot.index()];
        let slots_with_idle_nodes = &mut self.views[view.index()].slots_with_idle_nodes;
        if add {
            state.idle += 1;
            if state.idle == 1 {
                slots_with_idle_nodes.insert(slot.0);
            }
        } else {
            state.idle -= 1;
            if state.idle == 0 {
                slots_with_idle_nodes.remove(&slot.0);
            }
        }
    }

    /// Whether all machines of a cell are bad.
    pub(crate) fn is_wholly_bad(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.layout.chain(chain);
        let c = &self.chains[chain.index()];
        if c.bad_nodes == 0 {
            return false;
        }
        if level <= layout.node_level {
            return c.nodes[layout.ancestor(index, level, layout.node_level) as usize].bad;
        }
        c.levels[level].bad[index as usize] == layout.cells_in(level, layout.node_level)
    }

    /// Whether a cell is in the free list: nothing is bound in it, and it is the largest such cell.
    pub fn is_listed(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.layout.chain(chain);
        let levels = &self.chains[chain.index()].levels;
        let whole = levels[level].bound[index as usize] == NONE && levels[level].split_of(index) == 0;
        whole && (level == layout.top() || levels[level + 1].split_of(index / layout.fanout[level + 1]) > 0)
    }

    /// Removes a cell from all indexes of its level.
    pub(crate) fn unindex_cell(&mut self, chain: ChainId, level: Level, index: u32) {
        let state = &mut self.chains[chain.index()].levels[level];
        state.clean.set(index, false);
        state.crowded.set(index, false);
        state.listed_clean.set(index, false);
        state.degraded.set(index, false);
        state.listed_degraded.set(index, false);
        let borrowed = state.borrowed[index as usize];
        if borrowed > 0 {
            state.listed_crowded.remove(&(borrowed, index));
        }
    }

    /// Adds a cell to the indexes of its level that it belongs to.
    pub(crate) fn index_cell(&mut self, chain: ChainId, level: Level, index: u32) {
        let state = &self.chains[chain.index()].levels[level];
        if state.bound[index as usize] != NONE || state.split_of(index) > 0 {
            return;
        }
        let listed = self.is_listed(chain, level, index);
        let (degraded, unusable) = (
            self.is_bad(chain, level, index),
            self.is_wholly_bad(chain, level, index),
        );
        let state = &mut self.chains[chain.index()].levels[level];
        if degraded {
            state.degraded.set(index, true);
            state.listed_degraded.set(index, listed);
        }
        if unusable {
            return;
        }
        let borrowed = state.borrowed[index as usize];
        if borrowed == 0 {
            state.clean.set(index, true);
            state.listed_clean.set(index, listed);
        } else {
            state.crowded.set(index, true);
            if listed {
                state.listed_crowded.insert((borrowed, index));
            }
        }
    }
}
