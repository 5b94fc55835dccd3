//! Buddy allocation: binding a cell splits the cells above it, unbinding merges them again.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::NONE;
use crate::layout::{Chain, Level, SlotId};
use crate::level::LevelState;

/// The buddy allocator of one chain: its free lists, with the borrowers and bad machines in each cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BuddyAllocator {
    pub(crate) levels: Vec<LevelState>,
    /// Number of bad machines.
    pub(crate) bad_nodes: u32,
}

impl BuddyAllocator {
    /// Returns an allocator with all cells free.
    pub(crate) fn new(chain: &Chain) -> Self {
        let top = chain.top();
        let levels = (0..=top).map(|l| LevelState::new(chain.cells[l] as usize, l == top, l > 0));
        Self {
            levels: levels.collect(),
            bad_nodes: 0,
        }
    }

    /// Binds a free cell to a slot.
    pub(crate) fn bind(&mut self, chain: &Chain, level: Level, cell: u32, slot: SlotId) {
        debug_assert!(self.is_free(chain, level, cell), "only free cells are bound");
        self.count_bad_inside(chain, level, cell, false);
        self.split_down_to(chain, level, cell);
        self.levels[level].unindex(cell);
        self.levels[level].bound[cell as usize] = slot.0;
    }

    /// Returns a bound cell to the free list, and merges it with its siblings if all are free.
    pub(crate) fn unbind(&mut self, chain: &Chain, level: Level, cell: u32) {
        self.levels[level].bound[cell as usize] = NONE;
        self.merge_up_from(chain, level, cell);
        self.count_bad_inside(chain, level, cell, true);
    }

    /// Returns the slot that a cell or one of its ancestors is bound to.
    pub(crate) fn slot_over(&self, chain: &Chain, level: Level, index: u32) -> Option<SlotId> {
        let mut at = index;
        for (l, state) in self.levels.iter().enumerate().skip(level) {
            let slot = state.bound[at as usize];
            if slot != NONE {
                return Some(SlotId(slot));
            }
            if l < chain.top() {
                at /= chain.fanout[l + 1];
            }
        }
        None
    }

    /// Returns the bound cells below the machine level on one node, as (slot, level, index).
    pub(crate) fn small_slots(&self, chain: &Chain, node: u32) -> SmallVec<[(SlotId, Level, u32); 4]> {
        let mut found = SmallVec::new();
        if self.levels[chain.node_level].split_of(node) == 0 {
            return found;
        }
        for (level, state) in self.levels.iter().enumerate().take(chain.node_level) {
            for cell in chain.inside(node, chain.node_level, level) {
                let slot = state.bound[cell as usize];
                if slot != NONE {
                    found.push((SlotId(slot), level, cell));
                }
            }
        }
        found
    }

    /// Whether a cell is in or below the free list.
    pub(crate) fn is_free(&self, chain: &Chain, level: Level, index: u32) -> bool {
        let mut at = index;
        for (l, state) in self.levels.iter().enumerate().skip(level) {
            if state.bound[at as usize] != NONE {
                return false;
            }
            if state.split_of(at) > 0 {
                return l > level;
            }
            if l < chain.top() {
                at /= chain.fanout[l + 1];
            }
        }
        true
    }

    /// Whether a cell is in the free list: nothing is bound in it, and it is the largest such cell.
    pub(crate) fn is_listed(&self, chain: &Chain, level: Level, index: u32) -> bool {
        let is_whole = self.levels[level].is_whole(index);
        let is_parent_split = || self.levels[level + 1].split_of(index / chain.fanout[level + 1]) > 0;
        is_whole && (level == chain.top() || is_parent_split())
    }

    /// Splits all whole cells around this one, and removes this one from the free list.
    fn split_down_to(&mut self, chain: &Chain, level: Level, cell: u32) {
        let top = chain.top();
        let above = |l| chain.ancestor(cell, level, l);
        let from = (level..=top).find(|l| self.is_listed(chain, *l, above(*l)));
        let from = from.expect("a free cell is in or below the free list");
        self.levels[from].unindex(above(from));
        self.levels[from].free -= 1;
        if from < top {
            self.levels[from + 1].split[above(from + 1) as usize] += 1;
        }
        for l in (level + 1..=from).rev() {
            let (parent, child) = (above(l), above(l - 1));
            let fanout = chain.fanout[l];
            if self.is_bad(chain, l, parent) {
                self.levels[l].bad_free -= 1;
            }
            self.levels[l].split[parent as usize] = 1;
            let below = &mut self.levels[l - 1];
            below.list_range(parent * fanout, (parent + 1) * fanout);
            below.free += fanout - 1;
            below.unindex(child);
        }
    }

    /// Puts a cell back into the free list, merging it with its siblings as long as all of them are free.
    fn merge_up_from(&mut self, chain: &Chain, level: Level, cell: u32) {
        let (mut at, mut l) = (cell, level);
        while l < chain.top() {
            let fanout = chain.fanout[l + 1];
            let parent = at / fanout;
            let split = &mut self.levels[l + 1].split[parent as usize];
            *split -= 1;
            if *split > 0 {
                break;
            }
            self.levels[l].unlist_range(parent * fanout, (parent + 1) * fanout);
            self.levels[l].free -= fanout - 1;
            if self.is_bad(chain, l + 1, parent) {
                self.levels[l + 1].bad_free += 1;
            }
            self.index(chain, l, at);
            (at, l) = (parent, l + 1);
        }
        self.levels[l].free += 1;
        self.index(chain, l, at);
    }

    /// Adds a cell to the indexes of its level that it belongs to.
    fn index(&mut self, chain: &Chain, level: Level, index: u32) {
        if !self.levels[level].is_whole(index) {
            return;
        }
        let is_listed = self.is_listed(chain, level, index);
        let is_usable = !self.is_wholly_bad(chain, level, index);
        if self.is_bad(chain, level, index) {
            self.levels[level].index_degraded(index, is_listed);
        }
        if is_usable {
            self.levels[level].index_usable(index, is_listed);
        }
    }

    /// Counts borrowed leaves of a cell; `step` is the difference.
    pub(crate) fn count_borrowed(&mut self, chain: &Chain, level: Level, index: u32, step: i32) {
        let state = &mut self.levels[level];
        state.unindex(index);
        let borrowed = &mut state.borrowed[index as usize];
        *borrowed = borrowed.wrapping_add_signed(step);
        self.index(chain, level, index);
    }

    /// Whether the machine of a cell at or below the machine level is bad.
    fn is_machine_bad(&self, chain: &Chain, level: Level, index: u32) -> bool {
        let node = chain.ancestor(index, level, chain.node_level);
        self.levels[chain.node_level].bad[node as usize] > 0
    }

    /// Whether a cell has a bad machine.
    pub(crate) fn is_bad(&self, chain: &Chain, level: Level, index: u32) -> bool {
        if self.bad_nodes == 0 {
            false
        } else if level >= chain.node_level {
            self.levels[level].bad[index as usize] > 0
        } else {
            self.is_machine_bad(chain, level, index)
        }
    }

    /// Whether all machines of a cell are bad.
    fn is_wholly_bad(&self, chain: &Chain, level: Level, index: u32) -> bool {
        if self.bad_nodes == 0 {
            false
        } else if level <= chain.node_level {
            self.is_machine_bad(chain, level, index)
        } else {
            self.levels[level].bad[index as usize] == chain.cells_in(level, chain.node_level)
        }
    }

    /// Adds the bad cells inside a cell to the counts of free bad cells, or subtracts them.
    fn count_bad_inside(&mut self, chain: &Chain, level: Level, cell: u32, add: bool) {
        if !self.is_bad(chain, level, cell) {
            return;
        }
        let node_level = chain.node_level;
        let bad_nodes = if level >= node_level {
            self.levels[level].bad[cell as usize]
        } else {
            1
        };
        for (l, state) in self.levels.iter_mut().enumerate().take(level + 1) {
            let number = if l >= node_level {
                state.bad_cells.range(chain.inside(cell, level, l)).count() as u32
            } else {
                bad_nodes * chain.cells_in(level.min(node_level), l)
            };
            if add {
                state.bad_free += number;
            } else {
                state.bad_free -= number;
            }
        }
    }

    /// Sets the health of a machine that has changed.
    pub(crate) fn set_health(&mut self, chain: &Chain, node: u32, is_healthy: bool) {
        let is_bad = !is_healthy;
        let step = |count: u32| if is_bad { count + 1 } else { count - 1 };
        for level in 0..=chain.top() {
            for cell in cells_touching(chain, level, node) {
                self.levels[level].unindex(cell);
            }
        }
        self.bad_nodes = step(self.bad_nodes);
        for level in 0..=chain.top() {
            for cell in cells_touching(chain, level, node) {
                let is_free = self.is_free(chain, level, cell);
                let state = &mut self.levels[level];
                let mut has_changed = true;
                if level >= chain.node_level {
                    let bad_machines = &mut state.bad[cell as usize];
                    *bad_machines = step(*bad_machines);
                    has_changed = *bad_machines == u32::from(is_bad);
                    if has_changed && is_bad {
                        state.bad_cells.insert(cell);
                    } else if has_changed {
                        state.bad_cells.remove(&cell);
                    }
                }
                if has_changed && is_free {
                    state.bad_free = step(state.bad_free);
                }
            }
        }
        for level in 0..=chain.top() {
            for cell in cells_touching(chain, level, node) {
                self.index(chain, level, cell);
            }
        }
    }

    /// Returns the number of cells of a level that can be obtained by splitting free cells.
    pub(crate) fn cells_left(&self, chain: &Chain, level: Level) -> u32 {
        (level..=chain.top())
            .map(|l| self.levels[l].free * chain.cells_in(l, level))
            .sum()
    }

    /// Returns the number of cells of a level without bad machines that can be obtained by splitting free cells.
    pub(crate) fn healthy_cells_left(&self, chain: &Chain, level: Level) -> u32 {
        self.cells_left(chain, level)
            .saturating_sub(self.levels[level].bad_free)
    }

    /// Returns for each level the free cells beyond those that virtual clusters own and do not use, including cells that
    /// splitting larger ones would give. If it is negative, some virtual cluster cannot get a cell that it owns.
    pub(crate) fn slack(&self, chain: &Chain) -> SmallVec<[i64; 8]> {
        let mut slack = smallvec![0i64; self.levels.len()];
        let mut above = 0;
        for l in (0..=chain.top()).rev() {
            let state = &self.levels[l];
            slack[l] = i64::from(state.free) - i64::from(state.promised) + above;
            above = slack[l] * i64::from(chain.fanout[l]);
        }
        slack
    }
}

/// Returns the cells of a level that are in a machine, or the one that contains it.
fn cells_touching(chain: &Chain, level: Level, node: u32) -> Range<u32> {
    if level <= chain.node_level {
        chain.inside(node, chain.node_level, level)
    } else {
        let at = chain.ancestor(node, chain.node_level, level);
        at..at + 1
    }
}
