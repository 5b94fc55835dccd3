//! Room in a virtual cluster without disturbing anybody in it.

use smallvec::SmallVec;

use super::pack::pack;
use super::{Bin, Use};
use crate::layout::{Level, SlotId, ViewId};
use crate::request::Terms;
use crate::state::Cells;

/// A pod: its size and its number in the request.
pub(crate) type Sized = (u32, u32);

impl Cells {
    /// Bins for all pods, smallest first, or nothing. Partly used machines come first, the fullest that fits; then idle
    /// machines of cells that are in use; then cells that are not.
    pub(crate) fn fit(&self, view: ViewId, pods: &[Sized], terms: &Terms<'_>) -> Option<Vec<Use>> {
        let uses = self.sweep(view, pods, terms);
        let placed: usize = uses.iter().map(|u| u.pods.len()).sum();
        if placed == pods.len() {
            return Some(uses);
        }
        let mixed = pods.first().map(|p| p.0) != pods.last().map(|p| p.0);
        if mixed {
            self.fit_exactly(view, pods, terms)
        } else {
            None
        }
    }

    /// One pass over all bins, placing as many pods as fit in order.
    pub(crate) fn sweep(&self, view: ViewId, pods: &[Sized], terms: &Terms<'_>) -> Vec<Use> {
        let mut uses = Vec::new();
        let mut next = 0;
        let chain = self.layout.views[view.index()].chain;
        self.each_bin(view, pods[0].0, terms, &mut |bin, room| {
            let mut room = room;
            let mut taken = SmallVec::new();
            while next < pods.len() && pods[next].0 <= room {
                room -= pods[next].0;
                taken.push(pods[next].1);
                next += 1;
            }
            if !taken.is_empty() {
                uses.push(Use {
                    view: Some(view),
                    chain,
                    bin,
                    pods: taken,
                });
            }
            // What the smallest pod left cannot take, no later one can.
            (next < pods.len()).then(|| pods[next].0)
        });
        uses
    }

    /// Bins for pods of several sizes, by search.
    fn fit_exactly(&self, view: ViewId, pods: &[Sized], terms: &Terms<'_>) -> Option<Vec<Use>> {
        let mut bins: Vec<(Bin, u32)> = Vec::new();
        let mut seen: Vec<usize> = Vec::new();
        let number = pods.len();
        self.each_bin(view, pods[0].0, terms, &mut |bin, room| {
            // As many equal bins as there are pods are enough.
            if seen.len() <= room as usize {
                seen.resize(room as usize + 1, 0);
            }
            if seen[room as usize] < number {
                seen[room as usize] += 1;
                bins.push((bin, room));
            }
            Some(pods[0].0)
        });
        let chain = self.layout.views[view.index()].chain;
        let rooms: Vec<u32> = bins.iter().map(|(_, room)| *room).collect();
        let descending: Vec<Sized> = pods.iter().rev().copied().collect();
        let sizes: Vec<u32> = descending.iter().map(|p| p.0).collect();
        let chosen = pack(&rooms, &sizes)?;
        let mut uses: Vec<Use> = bins
            .iter()
            .map(|(bin, _)| Use {
                view: Some(view),
                chain,
                bin: *bin,
                pods: SmallVec::new(),
            })
            .collect();
        for (bin, pod) in chosen.into_iter().zip(descending) {
            uses[bin].pods.push(pod.1);
        }
        uses.retain(|u| !u.pods.is_empty());
        Some(uses)
    }

    /// Shows every bin with room for `least` leaves, in order. The visitor answers what has to fit from then on, or that
    /// it has seen enough.
    fn each_bin(
        &self,
        view: ViewId,
        least: u32,
        terms: &Terms<'_>,
        visit: &mut dyn FnMut(Bin, u32) -> Option<u32>,
    ) {
        let spec = &self.layout.views[view.index()];
        let (state, chain) = (&self.views[view.index()], spec.chain);
        let layout = self.layout.chain(chain);
        let mut least = least;
        for (at, slot) in terms.slots.iter().enumerate() {
            let again = terms.slots[..at].contains(slot);
            if !again && self.layout.slots[slot.index()].view == view {
                match self.bins_of(*slot, least, terms, visit) {
                    Some(more) => least = more,
                    None => return,
                }
            }
        }
        let later = |slot: u32| !terms.slots.contains(&SlotId(slot));
        for &(room, slot, level, index) in state.partial.range((least, 0, 0, 0)..) {
            let node = layout.ancestor(index, level as Level, layout.node_level);
            if room < least || !later(slot) || !self.allowed(chain, node, terms) {
                continue;
            }
            match visit(Bin::Cell(level as Level, index), room) {
                Some(more) => least = more,
                None => return,
            }
        }
        for level in 0..layout.node_level {
            for slot in state.unbound[level].iter().filter(|s| later(**s)) {
                if layout.leaves[level] < least {
                    break;
                }
                match visit(Bin::Fresh(SlotId(*slot)), layout.leaves[level]) {
                    Some(more) => least = more,
                    None => return,
                }
            }
        }
        let room = layout.node_leaves();
        if room < least {
            return;
        }
        for slot in state.roomy.iter().filter(|s| later(**s)) {
            for _ in 0..self.idle_nodes(SlotId(*slot), terms) {
                if room < least {
                    return;
                }
                match visit(Bin::Idle(SlotId(*slot)), room) {
                    Some(more) => least = more,
                    None => return,
                }
            }
        }
        for level in layout.node_level..=layout.top() {
            for slot in state.unbound[level].iter().filter(|s| later(**s)) {
                for _ in 0..layout.cells_in(level, layout.node_level) {
                    if room < least {
                        return;
                    }
                    match visit(Bin::Fresh(SlotId(*slot)), room) {
                        Some(more) => least = more,
                        None => return,
                    }
                }
            }
        }
    }

    /// Shows the bins of one slot, partly used ones first.
    fn bins_of(
        &self,
        slot: SlotId,
        least: u32,
        terms: &Terms<'_>,
        visit: &mut dyn FnMut(Bin, u32) -> Option<u32>,
    ) -> Option<u32> {
        let spec = &self.layout.slots[slot.index()];
        let (state, layout) = (&self.views[spec.view.index()], self.layout.chain(spec.chain));
        let (whole, machines) = match spec.level < layout.node_level {
            true => (layout.leaves[spec.level], 1),
            false => (
                layout.node_leaves(),
                layout.cells_in(spec.level, layout.node_level),
            ),
        };
        let mut least = least;
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
            if owner == slot.0 && room >= least && self.allowed(spec.chain, node, terms) {
                least = visit(Bin::Cell(level as Level, index), room)?;
            }
        }
        if state.roomy.contains(&slot.0) {
            for _ in 0..self.idle_nodes(slot, terms) {
                if whole >= least {
                    least = visit(Bin::Idle(slot), whole)?;
                }
            }
        }
        Some(least)
    }

    /// Idle machines of a bound slot that may be used.
    fn idle_nodes(&self, slot: SlotId, terms: &Terms<'_>) -> u32 {
        if terms.machines.is_none() {
            return self.slots[slot.index()].idle;
        }
        let spec = &self.layout.slots[slot.index()];
        let layout = self.layout.chain(spec.chain);
        let nodes = layout.inside(self.slots[slot.index()].cell, spec.level, layout.node_level);
        let idle = self.chains[spec.chain.index()]
            .idle
            .iter_in(nodes.start, nodes.end);
        idle.filter(|n| self.allowed(spec.chain, *n, terms)).count() as u32
    }
}
