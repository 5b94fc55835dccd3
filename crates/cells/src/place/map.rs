//! From room in a virtual cluster to physical cells and leaves.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::leaves::pick;
use super::{Bin, Picked, Use};
use crate::layout::{ChainId, Level, SlotId};
use crate::request::{Terms, Wait};
use crate::state::{Cells, Mark, NONE};

/// Candidates that are compared before one with borrowers on it is chosen.
const COMPARED: usize = 32;

/// Cells that are tried in the search for a way to bind several slots.
const TRIED: usize = 256;

/// Cells that are looked at for one slot of that search.
const LOOKED_AT: usize = 1024;

impl Cells {
    /// Binds the slots that are needed, and picks machines and leaves. Leaves of `victims` count as available.
    pub(crate) fn realise(
        &mut self,
        uses: &[Use],
        sizes: &[u32],
        victims: &[u32],
        terms: &Terms<'_>,
    ) -> Result<Vec<Picked>, Wait> {
        let mut fresh: BTreeMap<SlotId, u32> = BTreeMap::new();
        let mut machines: BTreeMap<SlotId, (usize, SmallVec<[u32; 4]>)> = BTreeMap::new();
        for one in uses {
            if let Bin::Fresh(slot) = one.bin {
                *fresh.entry(slot).or_default() += 1;
            }
            if let Some(slot) = self.big_slot(one.bin) {
                machines.entry(slot).or_default().0 += 1;
            }
        }
        self.bind_all(&fresh, terms)?;
        let mut picked = Vec::with_capacity(sizes.len());
        for (slot, (number, nodes)) in &mut machines {
            *nodes = self.pick_nodes(*slot, *number, terms);
            nodes.reverse();
        }
        for one in uses {
            let layout = self.layout.chain(one.chain);
            let (level, index) = match one.bin {
                Bin::Cell(level, index) => (level, index),
                Bin::Idle(slot) | Bin::Fresh(slot) => match machines.get_mut(&slot) {
                    Some((_, nodes)) => (layout.node_level, nodes.pop().expect("counted before")),
                    None => (
                        self.layout.slots[slot.index()].level,
                        self.slots[slot.index()].cell,
                    ),
                },
            };
            self.pick_pods(one, (level, index), sizes, victims, &mut picked);
        }
        Ok(picked)
    }

    /// The slot of a bin that is some machine in a slot.
    fn big_slot(&self, bin: Bin) -> Option<SlotId> {
        let (Bin::Idle(slot) | Bin::Fresh(slot)) = bin else {
            return None;
        };
        let spec = &self.layout.slots[slot.index()];
        (spec.level >= self.layout.chain(spec.chain).node_level).then_some(slot)
    }

    fn pick_pods(
        &self,
        one: &Use,
        bin: (Level, u32),
        sizes: &[u32],
        victims: &[u32],
        picked: &mut Vec<Picked>,
    ) {
        let chain = one.chain;
        let slot = self
            .slot_over(chain, bin.0, bin.1)
            .expect("a bin is in a bound cell");
        let home = one.view.map(|v| (v, self.layout.slots[slot.index()].level));
        let mut taken: SmallVec<[u32; 16]> = SmallVec::new();
        for &pod in &one.pods {
            let rank = |leaf: u32| {
                if taken.contains(&leaf) {
                    return None;
                }
                match self.owner(chain, leaf) {
                    None => Some(0),
                    Some((owner, p)) if p < 0 || victims.contains(&owner) => Some(1),
                    Some(_) => None,
                }
            };
            let size = sizes[pod as usize];
            let leaves = pick(self, chain, bin, size, rank).expect("the bin has room");
            taken.extend_from_slice(&leaves);
            picked.push(Picked {
                pod,
                chain,
                home,
                leaves,
            });
        }
    }

    /// Binds each slot to a cell with enough machines that may be used.
    fn bind_all(&mut self, fresh: &BTreeMap<SlotId, u32>, terms: &Terms<'_>) -> Result<(), Wait> {
        let mut order: SmallVec<[(SlotId, u32); 8]> = fresh.iter().map(|(s, n)| (*s, *n)).collect();
        order.sort_by_key(|(slot, number)| {
            let level = self.layout.slots[slot.index()].level;
            (std::cmp::Reverse((level, *number)), *slot)
        });
        let mark = Mark(self.log.len());
        let mut failed = None;
        // First the cells that disturb fewest borrowers. If somebody is left without, the tightest ones.
        for tight in [false, true] {
            failed = order.iter().find_map(|(slot, number)| {
                let cell = self.find_cell(*slot, *number, tight, terms);
                match cell {
                    Some(cell) => {
                        self.bind(*slot, cell);
                        None
                    }
                    None => Some(*slot),
                }
            });
            if failed.is_none() {
                return Ok(());
            }
            self.rollback(mark);
            if order.len() == 1 {
                break;
            }
        }
        // One by one, a slot may have taken the only healthy part of a cell that had to be split for the next one.
        if order.len() > 1 && self.bind_by_search(&order, &mut { TRIED }, terms) {
            return Ok(());
        }
        let spec = &self.layout.slots[failed.unwrap_or_default().index()];
        let state = &self.chains[spec.chain.index()].levels[spec.level];
        Err(Wait::NoHealthyCell {
            level: spec.level,
            free: state.free,
            bad: state.bad_free,
        })
    }

    /// Binds all these slots, in order, stepping back where the next one is left without a cell.
    fn bind_by_search(&mut self, order: &[(SlotId, u32)], left: &mut usize, terms: &Terms<'_>) -> bool {
        let Some(((slot, machines), rest)) = order.split_first() else {
            return true;
        };
        for cell in self.choices(*slot, *machines, terms) {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            let mark = Mark(self.log.len());
            self.bind(*slot, cell);
            if self.bind_by_search(rest, left, terms) {
                return true;
            }
            self.rollback(mark);
        }
        false
    }

    /// Free physical cells for a slot, one of each kind: cells are of a kind if the cells around them, as far as these
    /// would be split, have as many machines that may be used. Those where fewest are lent come first.
    fn choices(&self, slot: SlotId, machines: u32, terms: &Terms<'_>) -> Vec<u32> {
        let spec = &self.layout.slots[slot.index()];
        let (chain, level) = (spec.chain, spec.level);
        let layout = self.layout.chain(chain);
        let slack = self.slack(chain);
        let mut kinds: BTreeMap<SmallVec<[u32; 8]>, (u32, u32)> = BTreeMap::new();
        let free = (0..layout.cells[level]).filter(|cell| self.in_free_area(chain, level, *cell));
        for cell in free.take(LOOKED_AT) {
            let above = |l| layout.ancestor(cell, level, l);
            let whole = (level..=layout.top()).find(|l| self.is_listed(chain, *l, above(*l)));
            let whole = whole.expect("a free cell is in or below the free list");
            let may_split = (level + 1..=whole).all(|l| slack[l] > 0);
            if !may_split || self.usable(chain, level, cell, terms) < machines {
                continue;
            }
            let around = (level..=whole).map(|l| self.usable(chain, l, above(l), terms));
            let kind = std::iter::once(whole as u32).chain(around).collect();
            let choice = (self.chains[chain.index()].levels[level].lent[cell as usize], cell);
            let best = kinds.entry(kind).or_insert(choice);
            *best = choice.min(*best);
        }
        let mut choices: Vec<(u32, u32)> = kinds.into_values().collect();
        choices.sort_unstable();
        choices.into_iter().map(|(_, cell)| cell).collect()
    }

    /// A free physical cell for a slot: from the lowest level that has one, splitting no cell somebody else may need.
    fn find_cell(&self, slot: SlotId, machines: u32, tight: bool, terms: &Terms<'_>) -> Option<u32> {
        let spec = &self.layout.slots[slot.index()];
        let (chain, level) = (spec.chain, spec.level);
        let layout = self.layout.chain(chain);
        let slack = self.slack(chain);
        let mut look = Look {
            cells: self,
            chain,
            level,
            machines,
            tight,
            terms,
            best: None,
            compared: 0,
        };
        for from in level..=layout.top() {
            if from > level && slack[from] < 1 {
                return None;
            }
            let state = &self.chains[chain.index()].levels[from];
            let whole = layout.cells[from];
            for cell in state.offer.iter_in(0, whole) {
                if look.inside(from, cell) {
                    return look.best.map(|(_, cell)| cell);
                }
            }
            for &(_, cell) in &state.occupied {
                if look.inside(from, cell) {
                    break;
                }
            }
            if let Some((_, cell)) = look.best {
                return Some(cell);
            }
        }
        None
    }

    /// Machines of a cell that may be used, counted up to a number.
    fn usable(&self, chain: ChainId, level: Level, cell: u32, terms: &Terms<'_>) -> u32 {
        let layout = self.layout.chain(chain);
        if level < layout.node_level {
            let node = layout.ancestor(cell, level, layout.node_level);
            return u32::from(self.allowed(chain, node, terms));
        }
        if terms.machines.is_none() {
            let bad = self.chains[chain.index()].levels[level].bad[cell as usize];
            return layout.cells_in(level, layout.node_level) - bad;
        }
        let nodes = layout.inside(cell, level, layout.node_level);
        nodes.filter(|n| self.allowed(chain, *n, terms)).count() as u32
    }

    /// Idle machines in a bound slot: those without borrowers first, then those where least is lost.
    fn pick_nodes(&self, slot: SlotId, number: usize, terms: &Terms<'_>) -> SmallVec<[u32; 4]> {
        let spec = &self.layout.slots[slot.index()];
        let layout = self.layout.chain(spec.chain);
        let nodes = layout.inside(self.slots[slot.index()].cell, spec.level, layout.node_level);
        let c = &self.chains[spec.chain.index()];
        let fresh = c.fresh.iter_in(nodes.start, nodes.end);
        let mut found: SmallVec<[u32; 4]> = fresh
            .filter(|n| self.allowed(spec.chain, *n, terms))
            .take(number)
            .collect();
        if found.len() < number {
            let idle = c.idle.iter_in(nodes.start, nodes.end);
            let lent = idle.filter(|n| c.nodes[*n as usize].lent > 0 && self.allowed(spec.chain, *n, terms));
            let mut lent: Vec<(u64, u32, u32)> = lent
                .map(|n| {
                    let lost = self.lost_on(spec.chain, layout.inside(n, layout.node_level, 0), terms);
                    (lost, c.nodes[n as usize].lent, n)
                })
                .collect();
            lent.sort_unstable();
            found.extend(lent.into_iter().map(|(_, _, n)| n).take(number - found.len()));
        }
        found
    }

    /// The work that would be lost if all borrowers on some leaves had to go.
    fn lost_on(&self, chain: ChainId, leaves: std::ops::Range<u32>, terms: &Terms<'_>) -> u64 {
        if terms.lost.is_none() {
            return 0;
        }
        let using = &self.chains[chain.index()].using[leaves.start as usize..leaves.end as usize];
        let mut groups: SmallVec<[u32; 8]> = using.iter().copied().filter(|u| *u != NONE).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.iter().map(|g| self.lost(*g, terms)).sum()
    }
}

/// The search for one physical cell.
struct Look<'a> {
    cells: &'a Cells,
    chain: ChainId,
    level: Level,
    machines: u32,
    tight: bool,
    terms: &'a Terms<'a>,
    best: Option<((u64, u64, u32), u32)>,
    compared: usize,
}

impl Look<'_> {
    /// Looks at the cells of the wanted level inside a whole cell; true when there is no need to look further.
    fn inside(&mut self, level: Level, whole: u32) -> bool {
        let layout = self.cells.layout.chain(self.chain);
        let range = layout.inside(whole, level, self.level);
        if level == self.level {
            return self.consider(whole);
        }
        let state = &self.cells.chains[self.chain.index()].levels[self.level];
        for cell in state.clean.iter_in(range.start, range.end) {
            if self.consider(cell) {
                return true;
            }
        }
        let mut crowded: Vec<(u32, u32)> = state
            .crowded
            .iter_in(range.start, range.end)
            .map(|c| (state.lent[c as usize], c))
            .collect();
        crowded.sort_unstable();
        crowded.into_iter().any(|(_, cell)| self.consider(cell))
    }

    fn consider(&mut self, cell: u32) -> bool {
        let usable = self.cells.usable(self.chain, self.level, cell, self.terms);
        if usable < self.machines {
            return false;
        }
        let lent = self.cells.chains[self.chain.index()].levels[self.level].lent[cell as usize];
        let tightness = if self.tight {
            u64::from(usable - self.machines)
        } else {
            0
        };
        let lost = if lent > 0 {
            let leaves = self.cells.layout.chain(self.chain).inside(cell, self.level, 0);
            self.cells.lost_on(self.chain, leaves, self.terms)
        } else {
            0
        };
        let key = ((tightness, lost, lent), cell);
        if self.best.is_none_or(|best| key < best) {
            self.best = Some(key);
        }
        self.compared += 1;
        let perfect = lent == 0 && tightness == 0;
        perfect || self.compared >= COMPARED
    }
}
