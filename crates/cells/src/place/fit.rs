//! Finds room in a view of a virtual cluster without preempting any guaranteed group.

use smallvec::SmallVec;

use super::pack::pack;
use super::{Bin, BinAssignment, SizedPod};
use crate::layout::{ChainId, Level, SlotId, ViewId};
use crate::occupancy::Occupancy;
use crate::request::PlacementOptions;

/// Gets each bin with its free leaves. Returns the leaves that a later bin must have, or `None` to stop.
type BinVisitor<'v> = &'v mut dyn FnMut(Bin, u32) -> Option<u32>;

/// Searches the bins of one view.
pub(super) struct BinFinder<'a> {
    pub(super) cells: &'a Occupancy,
    pub(super) view: ViewId,
    pub(super) options: &'a PlacementOptions<'a>,
}

impl BinFinder<'_> {
    fn chain(&self) -> ChainId {
        self.cells.layout.views[self.view.index()].chain
    }

    fn assignment(&self, bin: Bin, pods: SmallVec<[u32; 8]>) -> BinAssignment {
        BinAssignment {
            view: self.view,
            chain: self.chain(),
            bin,
            pods,
        }
    }

    /// Assigns all pods, given smallest first, to bins. Partly used machines come first, the fullest that fits; then idle
    /// machines of bound slots; then slots that are not bound. Returns `None` if not all pods fit.
    pub(super) fn fit(&self, pods: &[SizedPod]) -> Option<Vec<BinAssignment>> {
        let assignments = self.sweep(pods);
        let placed: usize = assignments.iter().map(|a| a.pods.len()).sum();
        if placed == pods.len() {
            return Some(assignments);
        }
        let has_many_sizes = pods.first().map(|p| p.0) != pods.last().map(|p| p.0);
        if has_many_sizes {
            self.fit_exactly(pods)
        } else {
            None
        }
    }

    /// Assigns as many pods as fit, in order, in one pass over all bins.
    pub(super) fn sweep(&self, pods: &[SizedPod]) -> Vec<BinAssignment> {
        let mut assignments = Vec::new();
        let mut next = 0;
        self.visit_bins(pods[0].0, &mut |bin, room| {
            let mut room = room;
            let mut taken = SmallVec::new();
            while next < pods.len() && pods[next].0 <= room {
                room -= pods[next].0;
                taken.push(pods[next].1);
                next += 1;
            }
            if !taken.is_empty() {
                assignments.push(self.assignment(bin, taken));
            }
            // A bin too small for the next pod is too small for all later ones.
            (next < pods.len()).then(|| pods[next].0)
        });
        assignments
    }

    /// Assigns pods of several sizes by search.
    fn fit_exactly(&self, pods: &[SizedPod]) -> Option<Vec<BinAssignment>> {
        let mut bins: Vec<(Bin, u32)> = Vec::new();
        let mut seen: Vec<usize> = Vec::new();
        let number = pods.len();
        self.visit_bins(pods[0].0, &mut |bin, room| {
            // More bins of equal room than there are pods do not help.
            if seen.len() <= room as usize {
                seen.resize(room as usize + 1, 0);
            }
            if seen[room as usize] < number {
                seen[room as usize] += 1;
                bins.push((bin, room));
            }
            Some(pods[0].0)
        });
        let rooms: Vec<u32> = bins.iter().map(|(_, room)| *room).collect();
        let descending: Vec<SizedPod> = pods.iter().rev().copied().collect();
        let sizes: Vec<u32> = descending.iter().map(|p| p.0).collect();
        let chosen = pack(&rooms, &sizes)?;
        let mut assignments: Vec<BinAssignment> = bins
            .iter()
            .map(|(bin, _)| self.assignment(*bin, SmallVec::new()))
            .collect();
        for (bin, pod) in chosen.into_iter().zip(descending) {
            assignments[bin].pods.push(pod.1);
        }
        assignments.retain(|a| !a.pods.is_empty());
        Some(assignments)
    }

    /// Visits every bin with room for `least` leaves, in order of preference.
    fn visit_bins(&self, least: u32, visit: BinVisitor<'_>) {
        // Whether the visitor stopped early does not matter here.
        let _ = self.visit_until_stopped(least, visit);
    }

    fn visit_until_stopped(&self, least: u32, visit: BinVisitor<'_>) -> Option<u32> {
        let least = self.visit_preferred_slots(least, visit)?;
        let least = self.visit_partly_used(least, visit)?;
        let least = self.visit_small_unbound(least, visit)?;
        self.visit_machines(least, visit)
    }

    fn visit_preferred_slots(&self, mut least: u32, visit: BinVisitor<'_>) -> Option<u32> {
        let slots = self.options.slots;
        for (at, slot) in slots.iter().enumerate() {
            let is_repeated = slots[..at].contains(slot);
            if !is_repeated && self.cells.view_of(*slot) == self.view {
                least = self.visit_slot(*slot, least, visit)?;
            }
        }
        Some(least)
    }

    /// Whether a slot was not visited with the preferred ones.
    fn is_left(&self, slot: u32) -> bool {
        !self.options.slots.contains(&SlotId(slot))
    }

    fn visit_partly_used(&self, mut least: u32, visit: BinVisitor<'_>) -> Option<u32> {
        let chain = self.chain();
        let layout = self.cells.layout.chain(chain);
        let partial = &self.cells.views[self.view.index()].partial;
        for &(room, slot, level, index) in partial.range((least, 0, 0, 0)..) {
            let node = layout.ancestor(index, level as Level, layout.node_level);
            if room >= least && self.is_left(slot) && self.cells.is_node_allowed(chain, node, self.options) {
                least = visit(Bin::Cell(level as Level, index), room)?;
            }
        }
        Some(least)
    }

    /// Visits slots below the machine level that are not bound.
    fn visit_small_unbound(&self, mut least: u32, visit: BinVisitor<'_>) -> Option<u32> {
        let layout = self.cells.layout.chain(self.chain());
        let unbound = &self.cells.views[self.view.index()].unbound;
        for (level, unbound) in unbound.iter().enumerate().take(layout.node_level) {
            for slot in unbound.iter().filter(|s| self.is_left(**s)) {
                if layout.leaves[level] < least {
                    break;
                }
                least = visit(Bin::Fresh(SlotId(*slot)), layout.leaves[level])?;
            }
        }
        Some(least)
    }

    /// Visits idle machines of bound slots, then the machines of slots that are not bound.
    fn visit_machines(&self, mut least: u32, visit: BinVisitor<'_>) -> Option<u32> {
        let layout = self.cells.layout.chain(self.chain());
        let state = &self.cells.views[self.view.index()];
        let room = layout.node_leaves();
        let idle = state.slots_with_idle_nodes.iter();
        for slot in idle.copied().filter(|s| self.is_left(*s)).map(SlotId) {
            for _ in 0..self.idle_nodes(slot) {
                if room < least {
                    return None;
                }
                least = visit(Bin::Idle(slot), room)?;
            }
        }
        for level in layout.node_level..=layout.top() {
            let unbound = state.unbound[level].iter();
            for slot in unbound.copied().filter(|s| self.is_left(*s)).map(SlotId) {
                for _ in 0..layout.cells_in(level, layout.node_level) {
                    if room < least {
                        return None;
                    }
                    least = visit(Bin::Fresh(slot), room)?;
                }
            }
        }
        Some(least)
    }

    /// Visits the bins of one slot, partly used ones first.
    fn visit_slot(&self, slot: SlotId, mut least: u32, visit: BinVisitor<'_>) -> Option<u32> {
        let spec = &self.cells.layout.slots[slot.index()];
        let layout = self.cells.layout.chain(spec.chain);
        let state = &self.cells.views[spec.view.index()];
        let (whole, machines) = match spec.level < layout.node_level {
            true => (layout.leaves[spec.level], 1),
            false => (
                layout.node_leaves(),
                layout.cells_in(spec.level, layout.node_level),
            ),
        };
        if state.unbound[spec.level].contains(&slot.0) {
            for _ in 0..machines {
                if whole >= least {
                    least = visit(Bin::Fresh(slot), whole)?;
                }
            }
            return Some(least);
        }
        for &(room, owner, level, index) in state.partial.range((least, 0, 0, 0)..) {
            let node = layout.ancestor(index, level as Level, layout.node_level);
            if owner == slot.0 && room >= least && self.cells.is_node_allowed(spec.chain, node, self.options)
            {
                least = visit(Bin::Cell(level as Level, index), room)?;
            }
        }
        if state.slots_with_idle_nodes.contains(&slot.0) {
            for _ in 0..self.idle_nodes(slot) {
                if whole >= least {
                    least = visit(Bin::Idle(slot), whole)?;
                }
            }
        }
        Some(least)
    }

    /// Returns the number of idle machines of a bound slot that may be used.
    fn idle_nodes(&self, slot: SlotId) -> u32 {
        let state = &self.cells.slots[slot.index()];
        if self.options.machines.is_none() {
            return state.idle;
        }
        let spec = &self.cells.layout.slots[slot.index()];
        let layout = self.cells.layout.chain(spec.chain);
        let nodes = layout.inside(state.cell, spec.level, layout.node_level);
        let idle = &self.cells.chains[spec.chain.index()].idle;
        idle.iter_in(nodes.start, nodes.end)
            .filter(|n| self.cells.is_node_allowed(spec.chain, *n, self.options))
            .count() as u32
    }
}
