//! Turns bins of a view into physical cells and leaves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::cell_search::CellSearch;
use super::pick_leaves::pick_leaves;
use super::{Bin, BinAssignment, PlacedPod};
use crate::layout::{Level, SlotId};
use crate::ledger::Ledger;
use crate::request::{PlacementOptions, WaitReason};

/// Most cells that the search for a way to bind several slots tries.
const MAX_TRIED: usize = 256;

/// Binds slots for the pods of one set and picks their leaves.
pub(super) struct Binder<'a> {
    pub(super) ledger: &'a mut Ledger,
    /// Leaves of each pod of the set.
    pub(super) sizes: &'a [u32],
    /// Groups whose leaves count as available.
    pub(super) victims: &'a [u32],
    pub(super) options: &'a PlacementOptions<'a>,
}

impl Binder<'_> {
    /// Binds the slots that are needed, and picks machines and leaves.
    pub(super) fn bind_and_pick(
        &mut self,
        assignments: &[BinAssignment],
    ) -> Result<Vec<PlacedPod>, WaitReason> {
        let mut unbound: BTreeMap<SlotId, u32> = BTreeMap::new();
        let mut machines: BTreeMap<SlotId, (usize, SmallVec<[u32; 4]>)> = BTreeMap::new();
        for assignment in assignments {
            if let Bin::Fresh(slot) = assignment.bin {
                *unbound.entry(slot).or_default() += 1;
            }
            if let Some(slot) = self.slot_of_machines(assignment.bin) {
                machines.entry(slot).or_default().0 += 1;
            }
        }
        self.bind_all(&unbound)?;
        for (slot, (number, nodes)) in &mut machines {
            *nodes = self.pick_nodes(*slot, *number);
            nodes.reverse();
        }
        let mut placed = Vec::with_capacity(self.sizes.len());
        for assignment in assignments {
            let cell = match assignment.bin {
                Bin::Cell(level, index) => (level, index),
                Bin::Idle(slot) | Bin::Fresh(slot) => match machines.get_mut(&slot) {
                    Some((_, nodes)) => (
                        self.ledger.layout().chain(assignment.chain).node_level,
                        nodes.pop().expect("counted before"),
                    ),
                    None => (
                        self.ledger.layout().slots[slot.index()].level,
                        self.ledger.occupancy.slots[slot.index()].cell,
                    ),
                },
            };
            self.pick_pods(assignment, cell, &mut placed);
        }
        Ok(placed)
    }

    /// Returns the slot of a bin that is some machine of the slot.
    fn slot_of_machines(&self, bin: Bin) -> Option<SlotId> {
        let (Bin::Idle(slot) | Bin::Fresh(slot)) = bin else {
            return None;
        };
        let spec = &self.ledger.layout().slots[slot.index()];
        (spec.level >= self.ledger.layout().chain(spec.chain).node_level).then_some(slot)
    }

    /// Picks the leaves of all pods of a bin.
    fn pick_pods(&self, assignment: &BinAssignment, cell: (Level, u32), placed: &mut Vec<PlacedPod>) {
        let chain = assignment.chain;
        let occupancy = &self.ledger.occupancy;
        let slot = occupancy
            .slot_over(chain, cell.0, cell.1)
            .expect("a bin is in a bound cell");
        let home = (assignment.view, occupancy.layout.slots[slot.index()].level);
        let layout = occupancy.layout.chain(chain);
        let mut taken: SmallVec<[u32; 16]> = SmallVec::new();
        for &index in &assignment.pods {
            let rank = |leaf: u32| {
                if taken.contains(&leaf) {
                    return None;
                }
                match self.ledger.owner(chain, leaf) {
                    None => Some(0),
                    Some((owner, p)) if p < 0 || self.victims.contains(&owner) => Some(1),
                    Some(_) => None,
                }
            };
            let size = self.sizes[index as usize];
            let leaves = pick_leaves(layout, cell, size, rank).expect("the bin has room");
            taken.extend_from_slice(&leaves);
            placed.push(PlacedPod {
                index,
                chain,
                home: Some(home),
                leaves,
            });
        }
    }

    /// Binds each slot to a cell with enough usable machines.
    fn bind_all(&mut self, unbound: &BTreeMap<SlotId, u32>) -> Result<(), WaitReason> {
        let mut order: SmallVec<[(SlotId, u32); 8]> = unbound.iter().map(|(s, n)| (*s, *n)).collect();
        order.sort_by_key(|(slot, number)| {
            let level = self.ledger.layout().slots[slot.index()].level;
            (Reverse((level, *number)), *slot)
        });
        let start = self.ledger.log.position();
        let mut failed = None;
        // First the cells with fewest borrowed leaves. If a slot is left without a cell, the tightest ones.
        for tight in [false, true] {
            failed = order.iter().find_map(|(slot, number)| {
                let cell = CellSearch::new(self.ledger, *slot, *number, self.options).best_cell(tight);
                match cell {
                    Some(cell) => {
                        self.ledger.bind(*slot, cell);
                        None
                    }
                    None => Some(*slot),
                }
            });
            if failed.is_none() {
                return Ok(());
            }
            self.ledger.rollback(start);
            if order.len() == 1 {
                break;
            }
        }
        // A slot may have taken the only healthy part of a cell that had to be split for a later slot.
        if order.len() > 1 && self.bind_by_search(&order, &mut { MAX_TRIED }) {
            return Ok(());
        }
        let spec = &self.ledger.layout().slots[failed.unwrap_or_default().index()];
        let state = &self.ledger.occupancy.chains[spec.chain.index()].buddy.levels[spec.level];
        Err(WaitReason::NoHealthyCell {
            level: spec.level,
            free: state.free,
            bad: state.bad_free,
        })
    }

    /// Binds all slots in order, with backtracking. `budget` is the number of cells that may still be tried.
    fn bind_by_search(&mut self, order: &[(SlotId, u32)], budget: &mut usize) -> bool {
        let Some(((slot, machines), rest)) = order.split_first() else {
            return true;
        };
        let cells = CellSearch::new(self.ledger, *slot, *machines, self.options).distinct_cells();
        for cell in cells {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let start = self.ledger.log.position();
            self.ledger.bind(*slot, cell);
            if self.bind_by_search(rest, budget) {
                return true;
            }
            self.ledger.rollback(start);
        }
        false
    }

    /// Picks idle machines in a bound slot: those without borrowers first, then those where least work is lost.
    fn pick_nodes(&self, slot: SlotId, number: usize) -> SmallVec<[u32; 4]> {
        let spec = &self.ledger.layout().slots[slot.index()];
        let layout = self.ledger.layout().chain(spec.chain);
        let cell = self.ledger.occupancy.slots[slot.index()].cell;
        let nodes = layout.inside(cell, spec.level, layout.node_level);
        let c = &self.ledger.occupancy.chains[spec.chain.index()];
        let is_allowed = |n: &u32| {
            self.ledger
                .occupancy
                .is_node_allowed(spec.chain, *n, self.options)
        };
        let fresh = c.fresh.iter_in(nodes.start, nodes.end);
        let mut found: SmallVec<[u32; 4]> = fresh.filter(is_allowed).take(number).collect();
        if found.len() < number {
            let idle = c.idle.iter_in(nodes.start, nodes.end);
            let mut borrowed: Vec<(u64, u32, u32)> = idle
                .filter(|n| c.nodes[*n as usize].borrowed > 0 && is_allowed(n))
                .map(|n| {
                    let leaves = layout.inside(n, layout.node_level, 0);
                    let lost = self.ledger.preemption_cost_on(spec.chain, leaves, self.options);
                    (lost, c.nodes[n as usize].borrowed, n)
                })
                .collect();
            borrowed.sort_unstable();
            let missing = number - found.len();
            found.extend(borrowed.into_iter().map(|(_, _, n)| n).take(missing));
        }
        found
    }
}
