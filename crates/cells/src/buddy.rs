//! Buddy allocation: binding a slot to a physical cell splits the cells above it, unbinding merges them again.

use crate::layout::{ChainId, Level, SlotId};
use crate::state::{Cells, LevelState, NONE};
use crate::undo::UndoRecord;

impl Cells {
    /// Binds a slot to a physical cell that is in or below the free list.
    pub(crate) fn bind(&mut self, slot: SlotId, cell: u32) {
        self.log.push(UndoRecord::Bound(slot));
        let spec = &self.layout.slots[slot.index()];
        let (chain, level) = (spec.chain, spec.level);
        debug_assert!(self.in_free_area(chain, level, cell), "only free cells are bound");
        self.with_small_node(chain, level, cell, |cells| {
            cells.count_unbound(slot, false);
            cells.count_bad_inside(chain, level, cell, false);
            cells.split_down_to(chain, level, cell);
            cells.unindex_cell(chain, level, cell);
            cells.chains[chain.index()].levels[level].bound[cell as usize] = slot.0;
            cells.slots[slot.index()].cell = cell;
        });
        let layout = self.layout.chain(chain);
        if level >= layout.node_level {
            let nodes = layout.cells_in(level, layout.node_level);
            let idle = nodes - self.chains[chain.index()].levels[level].bad[cell as usize];
            self.slots[slot.index()].idle = idle;
            if idle > 0 {
                let view = self.view_of(slot);
                self.views[view.index()].slots_with_idle_nodes.insert(slot.0);
            }
        }
    }

    /// Returns the physical cell of an unused slot to the free list, and merges it with its siblings if all are free.
    pub(crate) fn unbind(&mut self, slot: SlotId) {
        let cell = self.slots[slot.index()].cell;
        debug_assert!(
            self.slots[slot.index()].used == 0,
            "only unused slots are unbound"
        );
        self.log.push(UndoRecord::Unbound(slot, cell));
        let spec = &self.layout.slots[slot.index()];
        let (chain, level, view) = (spec.chain, spec.level, spec.view);
        self.slots[slot.index()].idle = 0;
        self.views[view.index()].slots_with_idle_nodes.remove(&slot.0);
        self.with_small_node(chain, level, cell, |cells| {
            cells.chains[chain.index()].levels[level].bound[cell as usize] = NONE;
            cells.slots[slot.index()].cell = NONE;
            cells.merge_up_from(chain, level, cell);
            cells.count_bad_inside(chain, level, cell, true);
            cells.count_unbound(slot, true);
        });
    }

    /// Changes a cell. A cell below the machine level is a bin of its own, so the indexes of its machine are updated too.
    fn with_small_node(&mut self, chain: ChainId, level: Level, cell: u32, change: impl FnOnce(&mut Self)) {
        let layout = self.layout.chain(chain);
        if level >= layout.node_level {
            return change(self);
        }
        let node = layout.ancestor(cell, level, layout.node_level);
        self.index_node(chain, node, false);
        change(self);
        self.index_node(chain, node, true);
    }

    /// Whether a cell is in or below the free list.
    pub(crate) fn in_free_area(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let levels = &self.chains[chain.index()].levels;
        let layout = self.layout.chain(chain);
        let mut at = index;
        for (l, state) in levels.iter().enumerate().skip(level) {
            if state.bound[at as usize] != NONE {
                return false;
            }
            if state.split_of(at) > 0 {
                return l > level;
            }
            if l < layout.top() {
                at /= layout.fanout[l + 1];
            }
        }
        true
    }

    /// Splits all whole cells around this one, and removes this one from the free list.
    fn split_down_to(&mut self, chain: ChainId, level: Level, cell: u32) {
        let top = self.layout.chain(chain).top();
        let above = |cells: &Self, l| cells.layout.chain(chain).ancestor(cell, level, l);
        let from = (level..=top).find(|l| self.is_listed(chain, *l, above(self, *l)));
        let from = from.expect("a free cell is in or below the free list");
        let whole = above(self, from);
        self.unindex_cell(chain, from, whole);
        self.chains[chain.index()].levels[from].free -= 1;
        if from < top {
            let parent = above(self, from + 1);
            self.chains[chain.index()].levels[from + 1].split[parent as usize] += 1;
        }
        for l in (level + 1..=from).rev() {
            let (parent, child) = (above(self, l), above(self, l - 1));
            let fanout = self.layout.chain(chain).fanout[l];
            if self.is_bad(chain, l, parent) {
                self.chains[chain.index()].levels[l].bad_free -= 1;
            }
            let levels = &mut self.chains[chain.index()].levels;
            levels[l].split[parent as usize] = 1;
            levels[l - 1].list_range(parent * fanout, (parent + 1) * fanout);
            levels[l - 1].free += fanout - 1;
            self.unindex_cell(chain, l - 1, child);
        }
    }

    /// Puts a cell back into the free list, merging it with its siblings as long as all of them are free.
    fn merge_up_from(&mut self, chain: ChainId, level: Level, cell: u32) {
        let top = self.layout.chain(chain).top();
        let (mut at, mut l) = (cell, level);
        while l < top {
            let fanout = self.layout.chain(chain).fanout[l + 1];
            let parent = at / fanout;
            let levels = &mut self.chains[chain.index()].levels;
            levels[l + 1].split[parent as usize] -= 1;
            if levels[l + 1].split[parent as usize] > 0 {
                break;
            }
            levels[l].unlist_range(parent * fanout, (parent + 1) * fanout);
            levels[l].free -= fanout - 1;
            if self.is_bad(chain, l + 1, parent) {
                self.chains[chain.index()].levels[l + 1].bad_free += 1;
            }
            self.index_cell(chain, l, at);
            (at, l) = (parent, l + 1);
        }
        self.chains[chain.index()].levels[l].free += 1;
        self.index_cell(chain, l, at);
    }

    /// Whether a cell has a bad machine.
    pub(crate) fn is_bad(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.layout.chain(chain);
        let c = &self.chains[chain.index()];
        if c.bad_nodes == 0 {
            false
        } else if level >= layout.node_level {
            c.levels[level].bad[index as usize] > 0
        } else {
            c.nodes[layout.ancestor(index, level, layout.node_level) as usize].bad
        }
    }

    /// Adds the bad cells inside a cell to the counts of free bad cells, or subtracts them.
    fn count_bad_inside(&mut self, chain: ChainId, level: Level, cell: u32, add: bool) {
        if !self.is_bad(chain, level, cell) {
            return;
        }
        let layout = self.layout.chain(chain);
        let node_level = layout.node_level;
        let levels = &mut self.chains[chain.index()].levels;
        let bad_nodes = if level >= node_level {
            levels[level].bad[cell as usize]
        } else {
            1
        };
        for (l, state) in levels.iter_mut().enumerate().take(level + 1) {
            let number = if l >= node_level {
                state.bad_cells.range(layout.inside(cell, level, l)).count() as u32
            } else {
                bad_nodes * layout.cells_in(level.min(node_level), l)
            };
            if add {
                state.bad_free += number;
            } else {
                state.bad_free -= number;
            }
        }
    }

    /// Adds a slot to those that are not bound, or removes it.
    pub(crate) fn count_unbound(&mut self, slot: SlotId, add: bool) {
        let spec = &self.layout.slots[slot.index()];
        let view = &mut self.views[spec.view.index()];
        let promised = &mut self.chains[spec.chain.index()].levels[spec.level].promised;
        if add {
            view.unbound[spec.level].insert(slot.0);
            *promised += 1;
        } else {
            view.unbound[spec.level].remove(&slot.0);
            *promised -= 1;
        }
    }

    /// Returns the number of cells of a level that can be obtained by splitting free cells.
    pub(crate) fn cells_left(&self, chain: ChainId, level: Level) -> u32 {
        let layout = self.layout.chain(chain);
        let levels = &self.chains[chain.index()].levels;
        (level..=layout.top())
            .map(|l| levels[l].free * layout.cells_in(l, level))
            .sum()
    }

    /// Returns for each level the free cells beyond those that virtual clusters own and do not use, including cells that
    /// splitting larger ones would give. If it is negative, some virtual cluster cannot get a cell that it owns.
    pub(crate) fn slack(&self, chain: ChainId) -> smallvec::SmallVec<[i64; 8]> {
        let layout = self.layout.chain(chain);
        let levels = &self.chains[chain.index()].levels;
        let mut slack = smallvec::smallvec![0i64; levels.len()];
        let mut above = 0;
        for l in (0..=layout.top()).rev() {
            slack[l] = i64::from(levels[l].free) - i64::from(levels[l].promised) + above;
            above = slack[l] * i64::from(layout.fanout[l]);
        }
        slack
    }
}

impl LevelState {
    /// Adds the cells of a range to the free list.
    fn list_range(&mut self, from: u32, to: u32) {
        self.listed_clean.copy_range(&self.clean, from, to);
        self.listed_degraded.copy_range(&self.degraded, from, to);
        for cell in self.crowded.iter_in(from, to) {
            self.listed_crowded.insert((self.borrowed[cell as usize], cell));
        }
    }

    /// Removes the cells of a range from the free list.
    fn unlist_range(&mut self, from: u32, to: u32) {
        self.listed_clean.clear_range(from, to);
        self.listed_degraded.clear_range(from, to);
        for cell in self.crowded.iter_in(from, to) {
            self.listed_crowded.remove(&(self.borrowed[cell as usize], cell));
        }
    }
}
