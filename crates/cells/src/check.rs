//! Everything that is kept up to date in passing, counted again from scratch: for tests and for `--check`.

use std::collections::{BTreeMap, BTreeSet};

use crate::group::GroupState;
use crate::layout::{ChainId, Level, SlotId};
use crate::state::{Cells, NONE, ViewState};

/// Fails with a sentence unless two things are equal.
macro_rules! same {
    ($what:expr, $kept:expr, $counted:expr) => {
        let (kept, counted) = (&$kept, &$counted);
        if kept != counted {
            return Err(format!("{}: kept {kept:?}, counted {counted:?}", $what));
        }
    };
}

impl Cells {
    /// Recounts everything.
    ///
    /// # Errors
    /// The first thing that does not agree.
    pub fn check(&self) -> Result<(), String> {
        self.check_groups()?;
        for at in 0..self.chains.len() {
            let chain = ChainId(at as u32);
            self.check_cells(chain)?;
            self.check_nodes(chain)?;
            for (level, slack) in self.slack(chain).iter().enumerate() {
                if *slack < 0 {
                    return Err(format!(
                        "chain {at} level {level}: the promise is broken, slack {slack}"
                    ));
                }
            }
        }
        self.check_views()
    }

    /// Whether everything is the same: books, indexes, groups and their ids.
    pub fn is_same_as(&self, other: &Cells) -> bool {
        self.chains == other.chains
            && self.slots == other.slots
            && self.views == other.views
            && self.groups == other.groups
            && self.vacant == other.vacant
            && self.downgraded == other.downgraded
            && self.by_user == other.by_user
    }

    /// Free cells of each level of a chain that nobody is promised, counting what larger ones would give. As long as
    /// none is below zero, every virtual cluster can get what it owns.
    pub fn slack_of(&self, chain: ChainId) -> Vec<i64> {
        self.slack(chain).to_vec()
    }

    fn check_groups(&self) -> Result<(), String> {
        let mut using: Vec<Vec<u32>> = self.chains.iter().map(|c| vec![NONE; c.using.len()]).collect();
        let mut holding = using.clone();
        let mut by_user: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut downgraded = vec![BTreeSet::new(); self.layout.vcs.len()];
        for (id, group) in self.groups() {
            let claims = group.state == GroupState::Preempting;
            let table = if claims { &mut holding } else { &mut using };
            for pod in &group.pods {
                let layout = self.layout.chain(pod.chain);
                let machines: BTreeSet<u32> = pod.leaves.iter().map(|l| l / layout.node_leaves()).collect();
                if machines.len() > 1 {
                    return Err(format!("a pod of group {} is on machines {machines:?}", id.0));
                }
                for leaf in &pod.leaves {
                    let owner = &mut table[pod.chain.index()][*leaf as usize];
                    if *owner != NONE {
                        return Err(format!("leaf {leaf} has groups {owner} and {}", id.0));
                    }
                    *owner = id.0;
                }
            }
            if group.downgraded.is_some() {
                downgraded[group.vc.index()].insert((group.sequence, id.0));
            } else if let Some(user) = group.user.filter(|_| group.priority >= 0) {
                *by_user.entry((group.vc.0, user)).or_default() += group.leaves();
            }
            let held = group.pods.iter().any(|p| {
                let claims = &self.chains[p.chain.index()].holding;
                p.leaves.iter().any(|l| claims[*l as usize] != NONE)
            });
            if !claims && held != (group.state == GroupState::BeingPreempted) {
                return Err(format!("group {} is {:?}, claimed: {held}", id.0, group.state));
            }
        }
        for (at, c) in self.chains.iter().enumerate() {
            same!(format!("users of chain {at}"), c.using, using[at]);
            same!(format!("claims of chain {at}"), c.holding, holding[at]);
        }
        by_user.retain(|_, n| *n > 0);
        same!("leaves by user", self.by_user, by_user);
        same!("downgraded groups", self.downgraded, downgraded);
        let vacant: BTreeSet<u32> = self.vacant.iter().copied().collect();
        let gone: BTreeSet<u32> = (0..self.groups.len() as u32)
            .filter(|g| self.groups[*g as usize].is_none())
            .collect();
        same!("vacant ids", vacant, gone);
        Ok(())
    }

    /// Whether something is bound in or above a cell, or it itself is.
    fn plainly_free(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.layout.chain(chain);
        let mine = layout.inside(index, level, 0);
        !self.slots.iter().enumerate().any(|(at, slot)| {
            let spec = &self.layout.slots[at];
            if spec.chain != chain || slot.cell == NONE {
                return false;
            }
            let other = layout.inside(slot.cell, spec.level, 0);
            other.start < mine.end && mine.start < other.end
        })
    }

    fn check_cells(&self, chain: ChainId) -> Result<(), String> {
        let layout = self.layout.chain(chain);
        let c = &self.chains[chain.index()];
        for level in 0..=layout.top() {
            let state = &c.levels[level];
            let (mut free, mut bad_free) = (0, 0);
            let mut occupied = BTreeSet::new();
            for index in 0..layout.cells[level] {
                let leaves = layout.inside(index, level, 0);
                let name = format!("chain {} level {level} cell {index}", layout.name);
                let lent = leaves
                    .clone()
                    .filter(|l| self.owner(chain, *l).is_some_and(|(_, p)| p < 0))
                    .count() as u32;
                same!(format!("{name}: lent"), state.lent[index as usize], lent);
                let nodes: BTreeSet<u32> = leaves.map(|l| l / layout.node_leaves()).collect();
                let bad = nodes.iter().filter(|n| c.nodes[**n as usize].bad).count();
                if level >= layout.node_level {
                    same!(format!("{name}: bad"), state.bad[index as usize] as usize, bad);
                    same!(
                        format!("{name}: in bad cells"),
                        state.bad_cells.contains(&index),
                        bad > 0
                    );
                }
                let whole = self.plainly_free(chain, level, index);
                let larger = level < layout.top()
                    && self.plainly_free(chain, level + 1, index / layout.fanout[level + 1]);
                let listed = whole && !larger;
                free += u32::from(listed);
                bad_free += u32::from(whole && bad > 0);
                let usable = bad < nodes.len();
                same!(
                    format!("{name}: offer"),
                    state.offer.contains(index),
                    listed && usable && lent == 0
                );
                same!(
                    format!("{name}: sick and free"),
                    state.sick_listed.contains(index),
                    listed && bad > 0
                );
                if listed && usable && lent > 0 {
                    occupied.insert((lent, index));
                }
            }
            let name = format!("chain {} level {level}", layout.name);
            same!(format!("{name}: free"), state.free, free);
            same!(format!("{name}: bad and free"), state.bad_free, bad_free);
            same!(format!("{name}: occupied"), state.occupied, occupied);
        }
        Ok(())
    }

    fn check_nodes(&self, chain: ChainId) -> Result<(), String> {
        let layout = self.layout.chain(chain);
        let c = &self.chains[chain.index()];
        let mut roaming = BTreeSet::new();
        for (at, node) in c.nodes.iter().enumerate() {
            let leaves = layout.inside(at as u32, layout.node_level, 0);
            let owners: Vec<i16> = leaves
                .filter_map(|l| self.owner(chain, l))
                .map(|(_, p)| p)
                .collect();
            let lent = owners.iter().filter(|p| **p < 0).count() as u32;
            let guaranteed = owners.len() as u32 - lent;
            same!(format!("node {at}: lent"), node.lent, lent);
            same!(format!("node {at}: guaranteed"), node.guaranteed, guaranteed);
            same!(
                format!("node {at}: idle"),
                c.idle.contains(at as u32),
                !node.bad && guaranteed == 0
            );
            same!(
                format!("node {at}: fresh"),
                c.fresh.contains(at as u32),
                !node.bad && owners.is_empty()
            );
            if !node.bad && (owners.len() as u32) < layout.node_leaves() {
                roaming.insert((layout.node_leaves() - lent, guaranteed, at as u32));
            }
        }
        same!(format!("chain {}: roaming", layout.name), c.roaming, roaming);
        let bad = c.nodes.iter().filter(|n| n.bad).count() as u32;
        same!(format!("chain {}: bad nodes", layout.name), c.bad_nodes, bad);
        Ok(())
    }

    fn check_views(&self) -> Result<(), String> {
        let mut promised: BTreeMap<(u32, Level), u32> = BTreeMap::new();
        for (at, view) in self.layout.views.iter().enumerate() {
            let layout = self.layout.chain(view.chain);
            let levels = layout.types.len();
            let mut counted = ViewState {
                unbound: vec![BTreeSet::new(); levels],
                doomed_at: vec![BTreeSet::new(); levels],
                ..ViewState::default()
            };
            for &slot in &view.slots {
                self.count_slot(slot, &mut counted)?;
                let spec = &self.layout.slots[slot.index()];
                if self.slots[slot.index()].cell == NONE {
                    *promised.entry((view.chain.0, spec.level)).or_default() += 1;
                }
            }
            same!(format!("view {at}"), self.views[at], counted);
        }
        for (at, c) in self.chains.iter().enumerate() {
            for (level, state) in c.levels.iter().enumerate() {
                let counted = promised.get(&(at as u32, level)).copied().unwrap_or(0);
                same!(
                    format!("chain {at} level {level}: promised"),
                    state.promised,
                    counted
                );
            }
        }
        Ok(())
    }

    fn count_slot(&self, slot: SlotId, view: &mut ViewState) -> Result<(), String> {
        let spec = &self.layout.slots[slot.index()];
        let state = &self.slots[slot.index()];
        let layout = self.layout.chain(spec.chain);
        let c = &self.chains[spec.chain.index()];
        if state.cell == NONE {
            view.unbound[spec.level].insert(slot.0);
            same!(
                format!("slot {}: unbound and used", slot.0),
                (state.used, state.idle, state.doomed),
                (0, 0, false)
            );
            return Ok(());
        }
        same!(
            format!("slot {}: its cell", slot.0),
            c.levels[spec.level].bound[state.cell as usize],
            slot.0
        );
        if state.doomed {
            view.doomed_at[spec.level].insert(slot.0);
        }
        let (mut used, mut idle) = (0, 0);
        for leaf in layout.inside(state.cell, spec.level, 0) {
            if let Some((owner, p)) = self.owner(spec.chain, leaf).filter(|(_, p)| *p >= 0) {
                used += 1;
                *view.used_at.entry(p).or_default() += 1;
                same!(
                    format!("slot {}: the owner of leaf {leaf}", slot.0),
                    self.group_at(owner).vc,
                    spec.vc
                );
            }
        }
        if used == 0 && !state.doomed && spec.pinned.is_none() {
            return Err(format!("slot {} is bound but not used", slot.0));
        }
        if spec.level >= layout.node_level {
            for node in layout.inside(state.cell, spec.level, layout.node_level) {
                let n = c.nodes[node as usize];
                if n.bad {
                    continue;
                }
                if n.guaranteed == 0 {
                    idle += 1;
                } else if n.guaranteed < layout.node_leaves() {
                    let free = layout.node_leaves() - n.guaranteed;
                    view.partial.insert((free, slot.0, layout.node_level as u8, node));
                }
            }
        } else if !c.nodes[layout.ancestor(state.cell, spec.level, layout.node_level) as usize].bad {
            let free = layout.leaves[spec.level] - used;
            if free > 0 {
                view.partial.insert((free, slot.0, spec.level as u8, state.cell));
            }
        }
        if idle > 0 {
            view.roomy.insert(slot.0);
        }
        same!(
            format!("slot {}: used and idle", slot.0),
            (state.used, state.idle),
            (used, idle)
        );
        Ok(())
    }
}
