//! Recounts everything that is maintained incrementally, for tests and for `--check`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::NONE;
use crate::group::GroupState;
use crate::layout::{ChainId, Level, SlotId};
use crate::ledger::Ledger;
use crate::occupancy::Occupancy;
use crate::view::ViewState;

/// A count or an index that does not agree with the state it follows from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Inconsistency(String);

/// Fails unless a maintained value is equal to the recounted one.
fn same<T: PartialEq + fmt::Debug>(
    what: impl FnOnce() -> String,
    stored: &T,
    counted: &T,
) -> Result<(), Inconsistency> {
    if stored == counted {
        return Ok(());
    }
    let what = what();
    Err(Inconsistency(format!(
        "{what}: stored {stored:?}, counted {counted:?}"
    )))
}

/// Counts everything again, from the groups and the bound slots alone.
pub(crate) struct Recount<'a> {
    ledger: &'a Ledger,
    /// The cells of the ledger.
    cells: &'a Occupancy,
}

impl<'a> Recount<'a> {
    pub(crate) fn new(ledger: &'a Ledger) -> Self {
        Self {
            ledger,
            cells: &ledger.occupancy,
        }
    }

    /// Compares everything. Fails with the first inconsistency.
    pub(crate) fn run(&self) -> Result<(), Inconsistency> {
        self.groups()?;
        for at in 0..self.cells.chains.len() {
            let chain = ChainId(at as u32);
            self.cells_of(chain)?;
            self.nodes_of(chain)?;
            for (level, slack) in self.cells.slack(chain).iter().enumerate() {
                if *slack < 0 {
                    return Err(Inconsistency(format!(
                        "chain {at} level {level}: {} owned cells are not available",
                        -slack
                    )));
                }
            }
        }
        self.views()
    }

    fn groups(&self) -> Result<(), Inconsistency> {
        let (cells, table) = (self.cells, &self.ledger.groups);
        let mut occupant: Vec<Vec<u32>> = cells
            .chains
            .iter()
            .map(|c| vec![NONE; c.occupant.len()])
            .collect();
        let mut claimant = occupant.clone();
        let mut by_user: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut downgraded = vec![BTreeSet::new(); cells.layout.vcs.len()];
        for (id, group) in table.iter() {
            let is_claim = group.state == GroupState::Preempting;
            let holder = if is_claim { &mut claimant } else { &mut occupant };
            for pod in &group.pods {
                let layout = cells.layout.chain(pod.chain);
                let machines: BTreeSet<u32> = pod.leaves.iter().map(|l| l / layout.node_leaves()).collect();
                if machines.len() > 1 {
                    let what = format!("a pod of group {} is on machines {machines:?}", id.0);
                    return Err(Inconsistency(what));
                }
                for leaf in &pod.leaves {
                    let owner = &mut holder[pod.chain.index()][*leaf as usize];
                    if *owner != NONE {
                        let what = format!("leaf {leaf} has groups {owner} and {}", id.0);
                        return Err(Inconsistency(what));
                    }
                    *owner = id.0;
                }
            }
            if group.downgraded.is_some() {
                downgraded[group.vc.index()].insert((group.sequence, id.0));
            } else if let Some(user) = group.user.filter(|_| group.priority >= 0) {
                *by_user.entry((group.vc.0, user)).or_default() += group.leaves();
            }
            let is_claimed = group.pods.iter().any(|p| {
                let claims = &cells.chains[p.chain.index()].claimant;
                p.leaves.iter().any(|l| claims[*l as usize] != NONE)
            });
            if !is_claim && is_claimed != (group.state == GroupState::BeingPreempted) {
                let what = format!("group {} is {:?}, claimed: {is_claimed}", id.0, group.state);
                return Err(Inconsistency(what));
            }
        }
        for (at, c) in cells.chains.iter().enumerate() {
            same(|| format!("occupants of chain {at}"), &c.occupant, &occupant[at])?;
            same(|| format!("claimants of chain {at}"), &c.claimant, &claimant[at])?;
        }
        by_user.retain(|_, n| *n > 0);
        same(|| "leaves by user".to_owned(), table.by_user(), &by_user)?;
        same(|| "downgraded groups".to_owned(), &table.downgraded, &downgraded)?;
        let (vacant, unused) = table.vacant_ids();
        same(|| "vacant ids".to_owned(), &vacant, &unused)
    }

    /// Whether no slot is bound to the cell, inside it or above it.
    fn is_free(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let layout = self.cells.layout.chain(chain);
        let mine = layout.inside(index, level, 0);
        !self.cells.slots.iter().enumerate().any(|(at, slot)| {
            let spec = &self.cells.layout.slots[at];
            if spec.chain != chain || slot.cell == NONE {
                return false;
            }
            let other = layout.inside(slot.cell, spec.level, 0);
            other.start < mine.end && mine.start < other.end
        })
    }

    fn cells_of(&self, chain: ChainId) -> Result<(), Inconsistency> {
        let layout = self.cells.layout.chain(chain);
        for level in 0..=layout.top() {
            let state = &self.cells.chains[chain.index()].buddy.levels[level];
            let mut counted = LevelCount::default();
            for index in 0..layout.cells[level] {
                self.cell(chain, level, index, &mut counted)?;
            }
            let name = |what: &str| format!("chain {} level {level}: {what}", layout.name);
            same(|| name("free"), &state.free, &counted.free)?;
            same(|| name("bad and free"), &state.bad_free, &counted.bad_free)?;
            same(
                || name("crowded and listed"),
                &state.listed_crowded,
                &counted.listed_crowded,
            )?;
        }
        Ok(())
    }

    fn cell(
        &self,
        chain: ChainId,
        level: Level,
        index: u32,
        counted: &mut LevelCount,
    ) -> Result<(), Inconsistency> {
        let layout = self.cells.layout.chain(chain);
        let c = &self.cells.chains[chain.index()];
        let state = &c.buddy.levels[level];
        let name = |what: &str| format!("chain {} level {level} cell {index}: {what}", layout.name);
        let leaves = layout.inside(index, level, 0);
        let is_borrowed = |l: &u32| self.ledger.owner(chain, *l).is_some_and(|(_, p)| p < 0);
        let borrowed = leaves.clone().filter(is_borrowed).count() as u32;
        same(|| name("borrowed"), &state.borrowed[index as usize], &borrowed)?;
        let nodes: BTreeSet<u32> = leaves.map(|l| l / layout.node_leaves()).collect();
        let bad = nodes.iter().filter(|n| c.nodes[**n as usize].bad).count();
        if level >= layout.node_level {
            same(|| name("bad"), &(state.bad[index as usize] as usize), &bad)?;
            let is_listed_bad = state.bad_cells.contains(&index);
            same(|| name("in bad cells"), &is_listed_bad, &(bad > 0))?;
        }
        let is_whole = self.is_free(chain, level, index);
        let has_larger =
            level < layout.top() && self.is_free(chain, level + 1, index / layout.fanout[level + 1]);
        let is_listed = is_whole && !has_larger;
        counted.free += u32::from(is_listed);
        counted.bad_free += u32::from(is_whole && bad > 0);
        let is_usable = bad < nodes.len();
        same(
            || name("clean and listed"),
            &state.listed_clean.contains(index),
            &(is_listed && is_usable && borrowed == 0),
        )?;
        same(
            || name("degraded and listed"),
            &state.listed_degraded.contains(index),
            &(is_listed && bad > 0),
        )?;
        if is_listed && is_usable && borrowed > 0 {
            counted.listed_crowded.insert((borrowed, index));
        }
        Ok(())
    }

    fn nodes_of(&self, chain: ChainId) -> Result<(), Inconsistency> {
        let layout = self.cells.layout.chain(chain);
        let c = &self.cells.chains[chain.index()];
        let mut borrowable = BTreeSet::new();
        for (at, node) in c.nodes.iter().enumerate() {
            let index = at as u32;
            let name = |what: &str| format!("node {at}: {what}");
            let leaves = layout.inside(index, layout.node_level, 0);
            let owners: Vec<i16> = leaves
                .filter_map(|l| self.ledger.owner(chain, l))
                .map(|(_, p)| p)
                .collect();
            let borrowed = owners.iter().filter(|p| **p < 0).count() as u32;
            let guaranteed = owners.len() as u32 - borrowed;
            same(|| name("borrowed"), &node.borrowed, &borrowed)?;
            same(|| name("guaranteed"), &node.guaranteed, &guaranteed)?;
            let is_idle = !node.bad && guaranteed == 0;
            same(|| name("idle"), &c.idle.contains(index), &is_idle)?;
            let is_fresh = !node.bad && owners.is_empty();
            same(|| name("fresh"), &c.fresh.contains(index), &is_fresh)?;
            if !node.bad && (owners.len() as u32) < layout.node_leaves() {
                borrowable.insert((layout.node_leaves() - borrowed, guaranteed, index));
            }
        }
        let name = |what: &str| format!("chain {}: {what}", layout.name);
        same(|| name("borrowable nodes"), &c.borrowable, &borrowable)?;
        let bad = c.nodes.iter().filter(|n| n.bad).count() as u32;
        same(|| name("bad nodes"), &c.buddy.bad_nodes, &bad)
    }

    fn views(&self) -> Result<(), Inconsistency> {
        let cells = self.cells;
        let mut promised: BTreeMap<(u32, Level), u32> = BTreeMap::new();
        for (at, view) in cells.layout.views.iter().enumerate() {
            let levels = cells.layout.chain(view.chain).types.len();
            let mut counted = ViewState::new(levels);
            for &slot in &view.slots {
                self.slot(slot, &mut counted)?;
                let spec = &cells.layout.slots[slot.index()];
                if cells.slots[slot.index()].cell == NONE {
                    *promised.entry((view.chain.0, spec.level)).or_default() += 1;
                }
            }
            same(|| format!("view {at}"), &cells.views[at], &counted)?;
        }
        for (at, c) in cells.chains.iter().enumerate() {
            for (level, state) in c.buddy.levels.iter().enumerate() {
                let counted = promised.get(&(at as u32, level)).copied().unwrap_or(0);
                same(
                    || format!("chain {at} level {level}: promised"),
                    &state.promised,
                    &counted,
                )?;
            }
        }
        Ok(())
    }

    /// Adds a slot to the recounted view.
    fn slot(&self, slot: SlotId, view: &mut ViewState) -> Result<(), Inconsistency> {
        let cells = self.cells;
        let spec = &cells.layout.slots[slot.index()];
        let state = &cells.slots[slot.index()];
        let layout = cells.layout.chain(spec.chain);
        let c = &cells.chains[spec.chain.index()];
        let name = |what: &str| format!("slot {}: {what}", slot.0);
        if state.cell == NONE {
            view.unbound[spec.level].insert(slot.0);
            let stored = (state.used, state.idle, state.doomed);
            return same(|| name("unbound and used"), &stored, &(0, 0, false));
        }
        let bound = c.buddy.levels[spec.level].bound[state.cell as usize];
        same(|| name("its cell"), &bound, &slot.0)?;
        if state.doomed {
            view.doomed_at[spec.level].insert(slot.0);
        }
        let mut used = 0;
        for leaf in layout.inside(state.cell, spec.level, 0) {
            if let Some((owner, p)) = self.ledger.owner(spec.chain, leaf).filter(|(_, p)| *p >= 0) {
                used += 1;
                *view.used_at.entry(p).or_default() += 1;
                let vc = self.ledger.groups.at(owner).vc;
                same(|| name(&format!("owner of leaf {leaf}")), &vc, &spec.vc)?;
            }
        }
        if used == 0 && !state.doomed && spec.pinned.is_none() {
            return Err(Inconsistency(name("bound but not used")));
        }
        let idle = self.bins(slot, used, view);
        if idle > 0 {
            view.slots_with_idle_nodes.insert(slot.0);
        }
        same(|| name("used and idle"), &(state.used, state.idle), &(used, idle))
    }

    /// Adds the partly used bins of a bound slot to the view. Returns the number of its idle nodes.
    fn bins(&self, slot: SlotId, used: u32, view: &mut ViewState) -> u32 {
        let spec = &self.cells.layout.slots[slot.index()];
        let cell = self.cells.slots[slot.index()].cell;
        let layout = self.cells.layout.chain(spec.chain);
        let nodes = &self.cells.chains[spec.chain.index()].nodes;
        if spec.level < layout.node_level {
            let node = layout.ancestor(cell, spec.level, layout.node_level);
            let free = layout.leaves[spec.level] - used;
            if !nodes[node as usize].bad && free > 0 {
                view.partial.insert((free, slot.0, spec.level as u8, cell));
            }
            return 0;
        }
        let mut idle = 0;
        for node in layout.inside(cell, spec.level, layout.node_level) {
            let n = nodes[node as usize];
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
        idle
    }
}

/// Counts of one level.
#[derive(Default)]
struct LevelCount {
    free: u32,
    bad_free: u32,
    listed_crowded: BTreeSet<(u32, u32)>,
}
