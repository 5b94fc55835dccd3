//! Machines that break and come back, and slots that are doomed because too few healthy cells are left.

use crate::layout::{ChainId, Level, MachineId, SlotId, ViewId};
use crate::state::{Cells, NONE};

impl Cells {
    /// Says whether a machine can be used. Groups on it keep what they have.
    pub fn set_health(&mut self, machine: MachineId, healthy: bool) {
        let nodes = self.layout.machines[machine.index()].nodes.clone();
        for (chain, node) in nodes {
            if self.chains[chain.index()].nodes[node as usize].bad == healthy {
                self.turn(chain, node, !healthy);
                self.undoom_healed(chain, node);
                self.settle(chain);
            }
        }
        self.promote();
        self.settled();
    }

    /// Whether a machine can be used.
    pub fn is_healthy(&self, machine: MachineId) -> bool {
        let nodes = &self.layout.machines[machine.index()].nodes;
        nodes
            .iter()
            .all(|(c, n)| !self.chains[c.index()].nodes[*n as usize].bad)
    }

    /// A slot that was doomed with a cell that is whole again is as any other.
    fn undoom_healed(&mut self, chain: ChainId, node: u32) {
        let layout = self.layout.chain(chain);
        let node_level = layout.node_level;
        let mut over: smallvec::SmallVec<[SlotId; 4]> =
            self.slot_over(chain, node_level, node).into_iter().collect();
        over.extend(self.small_slots(chain, node).into_iter().map(|(slot, _, _)| slot));
        for slot in over {
            let (level, cell) = (
                self.layout.slots[slot.index()].level,
                self.slots[slot.index()].cell,
            );
            if self.slots[slot.index()].doomed && !self.is_bad(chain, level, cell) {
                self.undoom(slot);
            }
        }
    }

    fn turn(&mut self, chain: ChainId, node: u32, bad: bool) {
        self.file_node(chain, node, false);
        let layout = self.layout.chain(chain);
        let (node_level, top) = (layout.node_level, layout.top());
        for level in 0..=top {
            for cell in self.touched_by(chain, level, node) {
                self.unfile_cell(chain, level, cell);
            }
        }
        let c = &mut self.chains[chain.index()];
        c.nodes[node as usize].bad = bad;
        c.bad_nodes = if bad { c.bad_nodes + 1 } else { c.bad_nodes - 1 };
        for level in 0..=top {
            for cell in self.touched_by(chain, level, node) {
                let free = self.in_free_area(chain, level, cell);
                let state = &mut self.chains[chain.index()].levels[level];
                let mut turned = true;
                if level >= node_level {
                    let number = &mut state.bad[cell as usize];
                    *number = if bad { *number + 1 } else { *number - 1 };
                    turned = *number == u32::from(bad);
                    if turned && bad {
                        state.bad_cells.insert(cell);
                    } else if turned {
                        state.bad_cells.remove(&cell);
                    }
                }
                if turned && free {
                    state.bad_free = if bad {
                        state.bad_free + 1
                    } else {
                        state.bad_free - 1
                    };
                }
                self.file_cell(chain, level, cell);
            }
        }
        self.file_node(chain, node, true);
    }

    /// The cells of a level that are in a machine, or the one it is in.
    fn touched_by(&self, chain: ChainId, level: Level, node: u32) -> std::ops::Range<u32> {
        let layout = self.layout.chain(chain);
        if level <= layout.node_level {
            layout.inside(node, layout.node_level, level)
        } else {
            let at = layout.ancestor(node, layout.node_level, level);
            at..at + 1
        }
    }

    /// Dooms slots that cannot get a healthy cell, and frees those that can again.
    pub(crate) fn settle(&mut self, chain: ChainId) {
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
                self.spare(chain, level, *view);
            }
        }
        for level in (0..=top).rev() {
            for view in &views {
                while self.unbound_at(*view, level) > self.healthy_left(chain, level)
                    && self.doom_one(chain, level, *view)
                {}
            }
        }
    }

    fn unbound_at(&self, view: ViewId, level: Level) -> u32 {
        self.views[view.index()].unbound[level].len() as u32
    }

    /// Cells that can be had at a level without a bad machine in them.
    pub(crate) fn healthy_left(&self, chain: ChainId, level: Level) -> u32 {
        let bad = self.chains[chain.index()].levels[level].bad_free;
        self.total_left(chain, level).saturating_sub(bad)
    }

    /// Frees doomed slots of a view that could get a healthy cell now.
    fn spare(&mut self, chain: ChainId, level: Level, view: ViewId) {
        while let Some(&slot) = self.views[view.index()].doomed_at[level].first() {
            if self.unbound_at(view, level) >= self.healthy_left(chain, level) {
                break;
            }
            self.undoom(SlotId(slot));
        }
    }

    fn undoom(&mut self, slot: SlotId) {
        self.doom(slot, false);
        if self.slots[slot.index()].used == 0 {
            self.unbind(slot);
        }
    }

    /// Frees all doomed slots of a chain that nobody uses.
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

    /// Binds one slot of a view to a bad cell, if that breaks no promise to anybody.
    fn doom_one(&mut self, chain: ChainId, level: Level, view: ViewId) -> bool {
        let Some(slot) = self.views[view.index()].unbound[level]
            .first()
            .copied()
            .map(SlotId)
        else {
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
            if let Some(whole) = levels[from].sick_listed.first_in(0, layout.cells[from]) {
                let inside = layout.inside(whole, from, level);
                found = levels[level].sick.first_in(inside.start, inside.end);
                break;
            }
        }
        let Some(cell) = found else { return false };
        self.bind(slot, cell);
        self.doom(slot, true);
        true
    }

    /// Gives back the cells of slots that nobody uses any more.
    pub(crate) fn tidy(&mut self) {
        let mut chains = smallvec::SmallVec::<[ChainId; 4]>::new();
        for slot in std::mem::take(&mut self.loosened) {
            let state = self.slots[slot as usize];
            let spec = &self.layout.slots[slot as usize];
            let kept = spec.pinned.is_some() || state.doomed;
            let chain = spec.chain;
            if state.used == 0 && state.cell != NONE && !kept {
                self.unbind(SlotId(slot));
            }
            if !chains.contains(&chain) {
                chains.push(chain);
            }
        }
        for chain in chains {
            self.settle(chain);
        }
    }
}
