//! Who has which leaf, and the indexes that follow from it.

use crate::layout::{ChainId, Level, SlotId};
use crate::state::{Cells, NONE, Step};

/// What a leaf becomes: the group that uses it and the group that claims it.
pub(crate) type Write = (u32, u32, u32);

impl Cells {
    /// Changes leaves of one chain; the log knows how to undo it. Leaves of one machine should stand together.
    pub(crate) fn write(&mut self, chain: ChainId, writes: &[Write]) {
        let size = self.layout.chain(chain).node_leaves();
        let mut rest = writes;
        while let Some(first) = rest.first() {
            let node = first.0 / size;
            let same = rest.iter().take_while(|w| w.0 / size == node).count();
            let (batch, later) = rest.split_at(same);
            self.file_node(chain, node, false);
            self.write_on_node(chain, node, batch);
            self.file_node(chain, node, true);
            rest = later;
        }
    }

    fn write_on_node(&mut self, chain: ChainId, node: u32, batch: &[Write]) {
        let node_level = self.layout.chain(chain).node_level;
        let cover = self.slot_over(chain, node_level, node);
        let mut lent = 0i32;
        for &(leaf, using, holding) in batch {
            let before = self.owner(chain, leaf).map(|(_, p)| p);
            let c = &mut self.chains[chain.index()];
            let at = leaf as usize;
            self.log.push(Step::Leaf {
                chain,
                leaf,
                using: c.using[at],
                holding: c.holding[at],
            });
            c.using[at] = using;
            c.holding[at] = holding;
            let after = self.owner(chain, leaf).map(|(_, p)| p);
            if before == after {
                continue;
            }
            let was_lent = before.is_some_and(|p| p < 0);
            let is_lent = after.is_some_and(|p| p < 0);
            if was_lent != is_lent {
                let step = if is_lent { 1 } else { -1 };
                lent += step;
                self.lend_below(chain, leaf, step);
            }
            self.count_guaranteed(chain, leaf, cover, before, false);
            self.count_guaranteed(chain, leaf, cover, after, true);
        }
        if lent != 0 {
            self.chains[chain.index()].nodes[node as usize].lent = self.chains[chain.index()].nodes
                [node as usize]
                .lent
                .wrapping_add_signed(lent);
            self.lend_above(chain, node, lent);
        }
    }

    /// Counts a guaranteed leaf in or out of its node, slot and view.
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
                self.loosened.insert(slot.0);
            }
        }
    }

    /// Borrowed leaves, from the leaf up to below its machine.
    fn lend_below(&mut self, chain: ChainId, leaf: u32, step: i32) {
        for level in 0..self.layout.chain(chain).node_level {
            let index = leaf / self.layout.chain(chain).leaves[level];
            self.lend(chain, level, index, step);
        }
    }

    /// Borrowed leaves, from the machine up.
    fn lend_above(&mut self, chain: ChainId, node: u32, step: i32) {
        let layout = self.layout.chain(chain);
        let (from, top) = (layout.node_level, layout.top());
        for level in from..=top {
            let index = self.layout.chain(chain).ancestor(node, from, level);
            self.lend(chain, level, index, step);
        }
    }

    fn lend(&mut self, chain: ChainId, level: Level, index: u32, step: i32) {
        self.unfile_cell(chain, level, index);
        let lent = &mut self.chains[chain.index()].levels[level].lent[index as usize];
        *lent = lent.wrapping_add_signed(step);
        self.file_cell(chain, level, index);
    }

    /// Puts a machine into the indexes it belongs to, or takes it out; both are done around every change.
    pub(crate) fn file_node(&mut self, chain: ChainId, node: u32, add: bool) {
        let layout = self.layout.chain(chain);
        let (node_level, size) = (layout.node_level, layout.node_leaves());
        let c = &mut self.chains[chain.index()];
        let n = c.nodes[node as usize];
        let idle = add && !n.bad && n.guaranteed == 0;
        c.idle.set(node, idle);
        c.fresh.set(node, idle && n.lent == 0);
        if n.bad {
            return;
        }
        if n.guaranteed + n.lent < size {
            let key = (size - n.lent, n.guaranteed, node);
            if add {
                c.roaming.insert(key);
            } else {
                c.roaming.remove(&key);
            }
        }
        if let Some(slot) = self.slot_over(chain, node_level, node) {
            if n.guaranteed == 0 {
                self.count_idle(slot, add);
            } else if n.guaranteed < size {
                self.file_bin(slot, (size - n.guaranteed, node_level as u8, node), add);
            }
            return;
        }
        for (slot, level, index) in self.small_slots(chain, node) {
            let free = self.layout.chain(chain).leaves[level] - self.slots[slot.index()].used;
            if free > 0 {
                self.file_bin(slot, (free, level as u8, index), add);
            }
        }
    }

    fn file_bin(&mut self, slot: SlotId, bin: (u32, u8, u32), add: bool) {
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
        let roomy = &mut self.views[view.index()].roomy;
        if add {
            state.idle += 1;
            if state.idle == 1 {
                roomy.insert(slot.0);
            }
        } else {
            state.idle -= 1;
            if state.idle == 0 {
                roomy.remove(&slot.0);
            }
        }
    }

    /// Whether nothing of a cell can be used because all of its machines are bad.
    pub(crate) fn wholly_bad(&self, chain: ChainId, level: Level, index: u32) -> bool {
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

    /// Whether a cell is in the free list: nothing bound in it, and no larger such cell around it.
    pub(crate) fn is_listed(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.layout.chain(chain);
        let levels = &self.chains[chain.index()].levels;
        let whole = levels[level].bound[index as usize] == NONE && levels[level].split_of(index) == 0;
        whole && (level == layout.top() || levels[level + 1].split_of(index / layout.fanout[level + 1]) > 0)
    }

    pub(crate) fn unfile_cell(&mut self, chain: ChainId, level: Level, index: u32) {
        let state = &mut self.chains[chain.index()].levels[level];
        state.clean.set(index, false);
        state.crowded.set(index, false);
        state.offer.set(index, false);
        state.sick.set(index, false);
        state.sick_listed.set(index, false);
        let lent = state.lent[index as usize];
        if lent > 0 {
            state.occupied.remove(&(lent, index));
        }
    }

    pub(crate) fn file_cell(&mut self, chain: ChainId, level: Level, index: u32) {
        let state = &self.chains[chain.index()].levels[level];
        if state.bound[index as usize] != NONE || state.split_of(index) > 0 {
            return;
        }
        let listed = self.is_listed(chain, level, index);
        let (sick, lost) = (
            self.is_bad(chain, level, index),
            self.wholly_bad(chain, level, index),
        );
        let state = &mut self.chains[chain.index()].levels[level];
        if sick {
            state.sick.set(index, true);
            state.sick_listed.set(index, listed);
        }
        if lost {
            return;
        }
        let lent = state.lent[index as usize];
        if lent == 0 {
            state.clean.set(index, true);
            state.offer.set(index, listed);
        } else {
            state.crowded.set(index, true);
            if listed {
                state.occupied.insert((lent, index));
            }
        }
    }
}
