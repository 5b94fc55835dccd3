//! The cells of one level of a chain.

use std::collections::BTreeSet;

use crate::NONE;
use crate::bits::Bits;

/// All cells of one level of a chain.
///
/// A cell is *whole* if it is neither bound nor split. A whole cell is *clean* without borrowers and *crowded* with
/// them, unless all its machines are bad; it is *degraded* if some machine is bad. `listed_*` are those in the free list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LevelState {
    /// Slot that each cell is bound to.
    pub(crate) bound: Vec<u32>,
    /// Children of each cell that are bound or split.
    pub(crate) split: Vec<u32>,
    /// Leaves of each cell that borrowers hold.
    pub(crate) borrowed: Vec<u32>,
    /// Bad machines in each cell, from the machine level up.
    pub(crate) bad: Vec<u32>,
    /// Cells with bad machines, from the machine level up.
    pub(crate) bad_cells: BTreeSet<u32>,
    /// Whole cells without borrowers.
    pub(crate) clean: Bits,
    /// Whole cells with borrowers.
    pub(crate) crowded: Bits,
    /// Clean cells in the free list.
    pub(crate) listed_clean: Bits,
    /// Crowded cells in the free list as (borrowed leaves, cell).
    pub(crate) listed_crowded: BTreeSet<(u32, u32)>,
    /// Whole cells with bad machines.
    pub(crate) degraded: Bits,
    /// Degraded cells in the free list.
    pub(crate) listed_degraded: Bits,
    /// Number of cells in the free list, including bad ones.
    pub(crate) free: u32,
    /// Number of slots of this level that are not bound.
    pub(crate) promised: u32,
    /// Number of cells in or below the free list with bad machines.
    pub(crate) bad_free: u32,
}

impl LevelState {
    pub(crate) fn new(cells: usize, is_top: bool, has_children: bool) -> Self {
        Self {
            bound: vec![NONE; cells],
            split: if has_children { vec![0; cells] } else { Vec::new() },
            borrowed: vec![0; cells],
            bad: vec![0; cells],
            bad_cells: BTreeSet::new(),
            clean: Bits::full(cells),
            crowded: Bits::new(cells),
            listed_clean: if is_top {
                Bits::full(cells)
            } else {
                Bits::new(cells)
            },
            listed_crowded: BTreeSet::new(),
            degraded: Bits::new(cells),
            listed_degraded: Bits::new(cells),
            free: if is_top { cells as u32 } else { 0 },
            promised: 0,
            bad_free: 0,
        }
    }

    /// Returns the number of children of a cell that are bound or split; 0 for a leaf.
    pub(crate) fn split_of(&self, index: u32) -> u32 {
        self.split.get(index as usize).copied().unwrap_or(0)
    }

    /// Whether a cell is neither bound nor split.
    pub(crate) fn is_whole(&self, index: u32) -> bool {
        self.bound[index as usize] == NONE && self.split_of(index) == 0
    }

    /// Adds the cells of a range to the free list.
    pub(crate) fn list_range(&mut self, from: u32, to: u32) {
        self.listed_clean.copy_range(&self.clean, from, to);
        self.listed_degraded.copy_range(&self.degraded, from, to);
        for cell in self.crowded.iter_in(from, to) {
            self.listed_crowded.insert((self.borrowed[cell as usize], cell));
        }
    }

    /// Removes the cells of a range from the free list.
    pub(crate) fn unlist_range(&mut self, from: u32, to: u32) {
        self.listed_clean.clear_range(from, to);
        self.listed_degraded.clear_range(from, to);
        for cell in self.crowded.iter_in(from, to) {
            self.listed_crowded.remove(&(self.borrowed[cell as usize], cell));
        }
    }

    /// Removes a cell from all indexes.
    pub(crate) fn unindex(&mut self, index: u32) {
        self.clean.set(index, false);
        self.crowded.set(index, false);
        self.listed_clean.set(index, false);
        self.degraded.set(index, false);
        self.listed_degraded.set(index, false);
        let borrowed = self.borrowed[index as usize];
        if borrowed > 0 {
            self.listed_crowded.remove(&(borrowed, index));
        }
    }

    /// Adds a whole cell that has a healthy machine to the indexes of usable cells.
    pub(crate) fn index_usable(&mut self, index: u32, is_listed: bool) {
        let borrowed = self.borrowed[index as usize];
        if borrowed == 0 {
            self.clean.set(index, true);
            self.listed_clean.set(index, is_listed);
        } else {
            self.crowded.set(index, true);
            if is_listed {
                self.listed_crowded.insert((borrowed, index));
            }
        }
    }

    /// Adds a whole cell that has a bad machine to the indexes of degraded cells.
    pub(crate) fn index_degraded(&mut self, index: u32, is_listed: bool) {
        self.degraded.set(index, true);
        self.listed_degraded.set(index, is_listed);
    }
}
