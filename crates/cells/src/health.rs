//! Health of machines, and slots that are doomed because too few healthy cells are left.

use smallvec::SmallVec;

use crate::NONE;
use crate::layout::{ChainId, Level, MachineId, SlotId, ViewId};
use crate::ledger::Ledger;

/// Sets whether a machine is healthy. Groups on it keep their cells.
pub(crate) fn set_health(ledger: &mut Ledger, machine: MachineId, is_healthy: bool) {
    let nodes = ledger.layout().machines[machine.index()].nodes.clone();
    for (chain, node) in nodes {
        if ledger.occupancy.chains[chain.index()].nodes[node as usize].bad == is_healthy {
            ledger.occupancy.set_health(chain, node, is_healthy);
            let mut doomed = DoomedSlots { ledger, chain };
            doomed.free_recovered(node);
            doomed.update();
        }
    }
}

/// Unbinds the slots that lost their last guaranteed leaf.
pub(crate) fn release_empty_slots(ledger: &mut Ledger) {
    let mut chains = SmallVec::<[ChainId; 4]>::new();
    for slot in std::mem::take(&mut ledger.occupancy.emptied_slots) {
        let state = ledger.occupancy.slots[slot as usize];
        let spec = &ledger.layout().slots[slot as usize];
        let stays_bound = spec.pinned.is_some() || state.doomed;
        let chain = spec.chain;
        if state.used == 0 && state.cell != NONE && !stays_bound {
            ledger.unbind(SlotId(slot));
        }
        if !chains.contains(&chain) {
            chains.push(chain);
        }
    }
    for chain in chains {
        DoomedSlots { ledger, chain }.update();
    }
}

/// The doomed slots of one chain. They change when machines fail or recover, and when cells are bound or unbound.
pub(crate) struct DoomedSlots<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) chain: ChainId,
}

impl DoomedSlots<'_> {
    /// Dooms slots that cannot get a healthy cell, and frees doomed slots that can get one again.
    pub(crate) fn update(&mut self) {
        let c = &self.ledger.occupancy.chains[self.chain.index()];
        if c.buddy.bad_nodes == 0 && c.doomed == 0 {
            return;
        }
        let vcs = self.ledger.layout().vcs.iter();
        let views: Vec<ViewId> = vcs.filter_map(|vc| vc.views.get(&self.chain).copied()).collect();
        let top = self.ledger.layout().chain(self.chain).top();
        for level in (0..=top).rev() {
            for view in &views {
                self.free_excess(level, *view);
            }
        }
        for level in (0..=top).rev() {
            for view in &views {
                while self.unbound_at(*view, level) > self.healthy_cells_left(level)
                    && self.doom_one(level, *view)
                {}
            }
        }
    }

    /// Frees doomed slots on a machine whose cells have no bad machine any more.
    fn free_recovered(&mut self, node: u32) {
        let occupancy = &self.ledger.occupancy;
        let layout = occupancy.layout.chain(self.chain);
        let buddy = &occupancy.chains[self.chain.index()].buddy;
        let over = buddy.slot_over(layout, layout.node_level, node);
        let mut slots: SmallVec<[SlotId; 4]> = over.into_iter().collect();
        slots.extend(
            buddy
                .small_slots(layout, node)
                .into_iter()
                .map(|(slot, _, _)| slot),
        );
        for slot in slots {
            let occupancy = &self.ledger.occupancy;
            let level = occupancy.layout.slots[slot.index()].level;
            let state = occupancy.slots[slot.index()];
            if state.doomed && !occupancy.is_bad(self.chain, level, state.cell) {
                self.free(slot);
            }
        }
    }

    /// Frees all doomed slots without guaranteed leaves.
    pub(crate) fn free_unused(&mut self) {
        let occupancy = &self.ledger.occupancy;
        if occupancy.chains[self.chain.index()].doomed == 0 {
            return;
        }
        let vcs = occupancy.layout.vcs.iter();
        let doomed: Vec<u32> = vcs
            .filter_map(|vc| vc.views.get(&self.chain))
            .flat_map(|view| occupancy.views[view.index()].doomed_at.iter().flatten().copied())
            .filter(|slot| occupancy.slots[*slot as usize].used == 0)
            .collect();
        doomed.into_iter().for_each(|slot| self.free(SlotId(slot)));
    }

    fn unbound_at(&self, view: ViewId, level: Level) -> u32 {
        self.ledger.occupancy.views[view.index()].unbound[level].len() as u32
    }

    fn healthy_cells_left(&self, level: Level) -> u32 {
        let occupancy = &self.ledger.occupancy;
        let buddy = &occupancy.chains[self.chain.index()].buddy;
        buddy.healthy_cells_left(occupancy.layout.chain(self.chain), level)
    }

    /// Frees doomed slots of a view that can get a healthy cell.
    fn free_excess(&mut self, level: Level, view: ViewId) {
        while let Some(&slot) = self.ledger.occupancy.views[view.index()].doomed_at[level].first() {
            if self.unbound_at(view, level) >= self.healthy_cells_left(level) {
                break;
            }
            self.free(SlotId(slot));
        }
    }

    /// Frees a doomed slot, and unbinds it if it has no guaranteed leaves.
    fn free(&mut self, slot: SlotId) {
        self.ledger.set_doomed(slot, false);
        if self.ledger.occupancy.slots[slot.index()].used == 0 {
            self.ledger.unbind(slot);
        }
    }

    /// Binds one slot of a view to a bad cell, if all virtual clusters can still get the cells they own.
    fn doom_one(&mut self, level: Level, view: ViewId) -> bool {
        let occupancy = &self.ledger.occupancy;
        let unbound = &occupancy.views[view.index()].unbound[level];
        let Some(slot) = unbound.first().copied().map(SlotId) else {
            return false;
        };
        let slack = occupancy.slack(self.chain);
        let layout = occupancy.layout.chain(self.chain);
        let levels = &occupancy.chains[self.chain.index()].buddy.levels;
        let mut found = None;
        for from in level..=layout.top() {
            if from > level && slack[from] < 1 {
                break;
            }
            if let Some(whole) = levels[from].listed_degraded.first_in(0, layout.cells[from]) {
                let inside = layout.inside(whole, from, level);
                found = levels[level].degraded.first_in(inside.start, inside.end);
                break;
            }
        }
        let Some(cell) = found else { return false };
        self.ledger.bind(slot, cell);
        self.ledger.set_doomed(slot, true);
        true
    }
}
