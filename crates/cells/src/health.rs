//! Health of machines, and slots that are doomed because too few healthy cells are left.

use smallvec::SmallVec;

use crate::layout::{ChainId, Level, MachineId, SlotId, ViewId};
use crate::state::{Cells, NONE};

impl Cells {
    /// Sets whether a machine is healthy. Groups on it keep their cells.
    pub fn set_health(&mut self, machine: MachineId, healthy: bool) {
        let nodes = self.layout.machines[machine.index()].nodes.clone();
        for (chain, node) in nodes {
            if self.chains[chain.index()].nodes[node as usize].bad == healthy {
                self.set_node_health(chain, node, healthy);
                self.undoom_recovered(chain, node);
                self.update_doomed_slots(chain);
            }
        }
        self.promote();
        self.trim_undo_log();
    }

    /// Frees doomed slots on a machine whose cells have no bad machine any more.
    fn undoom_recovered(&mut self, chain: ChainId, node: u32) {
        let node_level = self.layout.chain(chain).node_level;
        let mut slots: SmallVec<[SlotId; 4]> = self.slot_over(chain, node_level, node).into_iter().collect();
        slots.extend(self.small_slots(chain, node).into_iter().map(|(slot, _, _)| slot));
        for slot in slots {
            let level = self.layout.slots[slot.index()].level;
            let state = self.slots[slot.index()];
            if state.doomed && !self.is_bad(chain, level, state.cell) {
                self.undoom(slot);
            }
        }
    }

    fn set_node_health(&mut self, chain: ChainId, node: u32, healthy: bool) {
        let bad = !healthy;
        let step = |count: u32| if bad { count + 1 } else { count - 1 };
        self.index_node(chain, node, false);
        let layout = self.layout.chain(chain);
        let (node_level, top) = (layout.node_level, layout.top());
        for level in 0..=top {
            for cell in self.cells_touching(chain, level, node) {
                self.unindex_cell(chain, level, cell);
            }
        }
        let c = &mut self.chains[chain.index()];
        c.nodes[node as usize].bad = bad;
        c.bad_nodes = step(c.bad_nodes);
        for level in 0..=top {
            for cell in self.cells_touching(chain, level, node) {
                let free = self.in_free_area(chain, level, cell);
                let state = &mut self.chains[chain.index()].levels[level];
                let mut has_turned = true;
                if level >= node_level {
                    let bad_machines = &mut state.bad[cell as usize];
                    *bad_machines = step(*bad_machines);
                    has_turned = *bad_machines == u32::from(bad);
                    if has_turned && bad {
                        state.bad_cells.insert(cell);
                    } else if has_turned {
                        state.bad_cells.remove(&cell);
                    }
                }
                if has_turned && free {
                    state.bad_free = step(state.bad_free);
                }
                self.index_cell(chain, level, cell);
            }
        }
        self.index_node(chain, node, true);
    }

    /// Returns the cells of a level that are in a machine, or the one that contains it.
    fn cells_touching(&self, chain: ChainId, level: Level, node: u32) -> std::ops::Range<u32> {
        let layout = self.layout.chain(chain);
        if level <= layout.node_level {
            layout.inside(node, layout.node_level, level)
        } else {
            let at = layout.ancestor(node, layout.node_level, level);
            at..at + 1
        }
    }

    /// Dooms slots that cannot get a healthy cell, and frees doomed slots that can get one again.
    pub(crate) fn update_doomed_slots(&mut self, chain: ChainId) {
        let c = &self.chains[chain.index()];
        if c.bad_nodes == 0 && c.doomed == 0 {
            return;
        }
        let views: Vec<ViewId> = self
            .layout
            .vcs
            .iter()
            .filter_map(|vc| vc.views.get(&chain).copied())
            .collect();
        let top = self.layout.chain(chain).top();
        for level in (0..=top).rev() {
            for view in &views {
                self.undoom_excess(chain, level, *view);
            }
        }
        for level in (0..=top).rev() {
            for view in &views {
                while self.unbound_at(*view, level) > self.healthy_cells_left(chain, level)
                    && self.doom_one(chain, level, *view)
                {}
            }
        }
    }

    fn unbound_at(&self, view: ViewId, level: Level) -> u32 {
        self.views[view.index()].unbound[level].len() as u32
    }

    /// Returns the number of cells of a level without bad machines that can be obtained by splitting free cells.
    fn healthy_cells_left(&self, chain: ChainId, level: Level) -> u32 {
        let bad = self.chains[chain.index()].levels[level].bad_free;
        self.cells_left(chain, level).saturating_sub(bad)
    }

    /// Frees doomed slots of a view that can get a healthy cell.
    fn undoom_excess(&mut self, chain: ChainId, level: Level, view: ViewId) {
        while let Some(&slot) = self.views[view.index()].doomed_at[level].first() {
            if self.unbound_at(view, level) >= self.healthy_cells_left(chain, level) {
                break;
            }
            self.undoom(SlotId(slot));
        }
    }

    fn undoom(&mut self, slot: SlotId) {
        self.set_doomed(slot, false);
        if self.slots[slot.index()].used == 0 {
            self.unbind(slot);
        }
    }

    /// Frees all doomed slots of a chain without guaranteed leaves.
    pub(crate) fn undoom_unused(&mut self, chain: ChainId) {
        if self.chains[chain.index()].doomed == 0 {
            return;
        }
        let views = self.layout.vcs.iter().filter_map(|vc| vc.views.get(&chain));
        let doomed: Vec<u32> = views
            .flat_map(|view| self.views[view.index()].doomed_at.iter().flatten().copied())
            .filter(|slot| self.slots[*slot as usize].used == 0)
            .collect();
        doomed.into_iter().for_each(|slot| self.undoom(SlotId(slot)));
    }

    /// Binds one slot of a view to a bad cell, if all virtual clusters can still get the cells they own.
    fn doom_one(&mut self, chain: ChainId, level: Level, view: ViewId) -> bool {
        let unbound = &self.views[view.index()].unbound[level];
        let Some(slot) = unbound.first().copied().map(SlotId) else {
            return false;
        };
        let slack = self.slack(chain);
        let layout = self.layout.chain(chain);
        let levels = &self.chains[chain.index()].levels;
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
        self.bind(slot, cell);
        self.set_doomed(slot, true);
        true
    }

    /// Unbinds the slots that lost their last guaranteed leaf.
    pub(crate) fn release_empty_slots(&mut self) {
        let mut chains = SmallVec::<[ChainId; 4]>::new();
        for slot in std::mem::take(&mut self.emptied_slots) {
            let state = self.slots[slot as usize];
            let spec = &self.layout.slots[slot as usize];
            let stays_bound = spec.pinned.is_some() || state.doomed;
            let chain = spec.chain;
            if state.used == 0 && state.cell != NONE && !stays_bound {
                self.unbind(SlotId(slot));
            }
            if !chains.contains(&chain) {
                chains.push(chain);
            }
        }
        for chain in chains {
            self.update_doomed_slots(chain);
        }
    }
}
