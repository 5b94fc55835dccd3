//! Finds a free physical cell for a slot.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::buddy::BuddyAllocator;
use crate::layout::{Chain, ChainId, Level, SlotId};
use crate::ledger::Ledger;
use crate::level::LevelState;
use crate::request::PlacementOptions;

/// Cells that are compared before one with borrowers is accepted.
const MAX_COMPARED: usize = 32;

/// Most cells that [`CellSearch::distinct_cells`] looks at.
const MAX_SCANNED: usize = 1024;

/// The search for a physical cell of one slot.
pub(super) struct CellSearch<'a> {
    ledger: &'a Ledger,
    chain: ChainId,
    level: Level,
    /// Machines that must be usable in the cell.
    machines: u32,
    options: &'a PlacementOptions<'a>,
}

impl<'a> CellSearch<'a> {
    pub(super) fn new(
        ledger: &'a Ledger,
        slot: SlotId,
        machines: u32,
        options: &'a PlacementOptions<'a>,
    ) -> Self {
        let spec = &ledger.layout().slots[slot.index()];
        Self {
            ledger,
            chain: spec.chain,
            level: spec.level,
            machines,
            options,
        }
    }

    fn layout(&self) -> &'a Chain {
        self.ledger.layout().chain(self.chain)
    }

    fn buddy(&self) -> &'a BuddyAllocator {
        &self.ledger.occupancy.chains[self.chain.index()].buddy
    }

    fn state(&self, level: Level) -> &'a LevelState {
        &self.buddy().levels[level]
    }

    /// Returns the best free cell: from the lowest level that has one, splitting no cell that another virtual cluster may
    /// need. With `tight`, the cell with the fewest usable machines comes first.
    pub(super) fn best_cell(&self, tight: bool) -> Option<u32> {
        let layout = self.layout();
        let slack = self.buddy().slack(layout);
        let mut comparison = Comparison {
            search: self,
            tight,
            best: None,
            compared: 0,
        };
        for from in self.level..=layout.top() {
            if from > self.level && slack[from] < 1 {
                return None;
            }
            let state = self.state(from);
            for cell in state.listed_clean.iter_in(0, layout.cells[from]) {
                if comparison.consider_inside(from, cell) {
                    return comparison.best_cell();
                }
            }
            for &(_, cell) in &state.listed_crowded {
                if comparison.consider_inside(from, cell) {
                    break;
                }
            }
            if comparison.best.is_some() {
                return comparison.best_cell();
            }
        }
        None
    }

    /// Returns free cells, one of each kind, those with fewest borrowed leaves first. Cells are of one kind if the cells
    /// around them that would be split have equally many usable machines.
    pub(super) fn distinct_cells(&self) -> Vec<u32> {
        let (layout, buddy, level) = (self.layout(), self.buddy(), self.level);
        let slack = buddy.slack(layout);
        let mut kinds: BTreeMap<SmallVec<[u32; 8]>, (u32, u32)> = BTreeMap::new();
        let free = (0..layout.cells[level]).filter(|cell| buddy.is_free(layout, level, *cell));
        for cell in free.take(MAX_SCANNED) {
            let above = |l| layout.ancestor(cell, level, l);
            let whole = (level..=layout.top()).find(|l| buddy.is_listed(layout, *l, above(*l)));
            let whole = whole.expect("a free cell is in or below the free list");
            let may_split = (level + 1..=whole).all(|l| slack[l] > 0);
            if !may_split || self.usable_machines(level, cell) < self.machines {
                continue;
            }
            let around = (level..=whole).map(|l| self.usable_machines(l, above(l)));
            let kind = std::iter::once(whole as u32).chain(around).collect();
            let candidate = (self.state(level).borrowed[cell as usize], cell);
            let best = kinds.entry(kind).or_insert(candidate);
            *best = candidate.min(*best);
        }
        let mut candidates: Vec<(u32, u32)> = kinds.into_values().collect();
        candidates.sort_unstable();
        candidates.into_iter().map(|(_, cell)| cell).collect()
    }

    /// Returns the number of machines in a cell that may be used; for a cell below the machine level, that of its machine.
    fn usable_machines(&self, level: Level, cell: u32) -> u32 {
        let layout = self.layout();
        let is_allowed = |node: u32| {
            let occupancy = &self.ledger.occupancy;
            occupancy.is_node_allowed(self.chain, node, self.options)
        };
        if level < layout.node_level {
            return u32::from(is_allowed(layout.ancestor(cell, level, layout.node_level)));
        }
        if self.options.machines.is_none() {
            let bad = self.state(level).bad[cell as usize];
            return layout.cells_in(level, layout.node_level) - bad;
        }
        let nodes = layout.inside(cell, level, layout.node_level);
        nodes.filter(|n| is_allowed(*n)).count() as u32
    }
}

/// Sort key of a cell: spare machines if the search is tight, lost work, borrowed leaves.
type CellKey = (u64, u64, u32);

/// The best cell seen so far.
struct Comparison<'a> {
    search: &'a CellSearch<'a>,
    tight: bool,
    best: Option<(CellKey, u32)>,
    compared: usize,
}

impl Comparison<'_> {
    fn best_cell(&self) -> Option<u32> {
        self.best.map(|(_, cell)| cell)
    }

    /// Considers the cells of the searched level inside a free cell. Returns true if the search can stop.
    fn consider_inside(&mut self, level: Level, free: u32) -> bool {
        let search = self.search;
        if level == search.level {
            return self.consider(free);
        }
        let range = search.layout().inside(free, level, search.level);
        let state = search.state(search.level);
        for cell in state.clean.iter_in(range.start, range.end) {
            if self.consider(cell) {
                return true;
            }
        }
        let mut crowded: Vec<(u32, u32)> = state
            .crowded
            .iter_in(range.start, range.end)
            .map(|c| (state.borrowed[c as usize], c))
            .collect();
        crowded.sort_unstable();
        crowded.into_iter().any(|(_, cell)| self.consider(cell))
    }

    fn consider(&mut self, cell: u32) -> bool {
        let search = self.search;
        let usable = search.usable_machines(search.level, cell);
        if usable < search.machines {
            return false;
        }
        let borrowed = search.state(search.level).borrowed[cell as usize];
        let spare = match self.tight {
            true => u64::from(usable - search.machines),
            false => 0,
        };
        let lost = match borrowed {
            0 => 0,
            _ => {
                let leaves = search.layout().inside(cell, search.level, 0);
                search
                    .ledger
                    .preemption_cost_on(search.chain, leaves, search.options)
            }
        };
        let candidate = ((spare, lost, borrowed), cell);
        if self.best.is_none_or(|best| candidate < best) {
            self.best = Some(candidate);
        }
        self.compared += 1;
        let is_perfect = borrowed == 0 && spare == 0;
        is_perfect || self.compared >= MAX_COMPARED
    }
}
