//! Gives downgraded groups their place in their virtual cluster back.

use std::collections::{BTreeMap, BTreeSet};

use crate::NONE;
use crate::group::{Downgrade, GroupId, GroupState, Pod};
use crate::health::DoomedSlots;
use crate::layout::{ChainId, Level, SlotId, ViewId};
use crate::ledger::Ledger;
use crate::lifecycle::GroupLifecycle;

/// A cell that a group needs back: its view and level there, and the physical cell.
type Place = (ViewId, Level, ChainId, u32);

/// Slots to prefer for some cells.
pub(crate) type PreferredSlots = BTreeMap<(ChainId, Level, u32), SlotId>;

/// Restores downgraded groups that have room on their present leaves, highest priority first.
pub(crate) fn restore_all(ledger: &mut Ledger) {
    for vc in 0..ledger.layout().vcs.len() {
        let downgraded = &ledger.groups.downgraded[vc];
        if downgraded.is_empty() {
            continue;
        }
        let mut waiting: Vec<(i16, u64, u32)> = downgraded
            .iter()
            .map(|(sequence, id)| (-ledger.groups.at(*id).priority, *sequence, *id))
            .collect();
        waiting.sort_unstable();
        for (_, _, id) in waiting {
            if ledger.groups.at(id).state == GroupState::Allocated {
                Restoration::new(ledger, GroupId(id)).run();
            }
        }
    }
}

/// The attempt to give a downgraded group its place in its virtual cluster back, on the same leaves.
pub(crate) struct Restoration<'a> {
    ledger: &'a mut Ledger,
    id: GroupId,
    /// Whether groups of lower priority are downgraded for it.
    is_forced: bool,
    preferred: PreferredSlots,
}

impl<'a> Restoration<'a> {
    pub(crate) fn new(ledger: &'a mut Ledger, id: GroupId) -> Self {
        Self {
            ledger,
            id,
            is_forced: false,
            preferred: PreferredSlots::new(),
        }
    }

    /// Downgrades groups of lower priority if necessary.
    pub(crate) fn forced(self) -> Self {
        Self {
            is_forced: true,
            ..self
        }
    }

    /// Binds these slots to their cells where possible.
    pub(crate) fn preferring(self, preferred: PreferredSlots) -> Self {
        Self { preferred, ..self }
    }

    /// Returns whether it succeeded; otherwise nothing is changed.
    pub(crate) fn run(mut self) -> bool {
        let start = self.ledger.log.position();
        let emptied_slots = self.ledger.occupancy.emptied_slots.clone();
        if self.restore() {
            return true;
        }
        self.ledger.rollback(start);
        self.ledger.occupancy.emptied_slots = emptied_slots;
        false
    }

    fn restore(&mut self) -> bool {
        let Some(places) = self.places() else {
            return false;
        };
        for place in &places {
            if !self.bind(*place) {
                return false;
            }
        }
        // Downgrading others for one cell may have unbound another cell that was bound for this group before.
        let occupancy = &self.ledger.occupancy;
        let is_bound = |(view, level, chain, cell): &Place| {
            let slot = occupancy.slot_over(*chain, *level, *cell);
            slot.is_some_and(|slot| occupancy.view_of(slot) == *view)
        };
        if !places.iter().all(is_bound) {
            return false;
        }
        GroupLifecycle {
            ledger: self.ledger,
            id: self.id,
        }
        .upgrade();
        let pods = &self.ledger.groups.at(self.id.0).pods;
        let chains: BTreeSet<ChainId> = pods.iter().map(|p| p.chain).collect();
        for chain in chains {
            let ledger = &mut *self.ledger;
            DoomedSlots { ledger, chain }.update();
        }
        true
    }

    /// Returns the cells that the group needs in its virtual cluster. `None` if a pod has no home there, or if its user
    /// would exceed the limit.
    fn places(&self) -> Option<BTreeSet<Place>> {
        let layout = self.ledger.layout();
        let groups = &self.ledger.groups;
        let group = groups.at(self.id.0);
        let has_no_home = |p: &Pod| p.home.is_none() && !p.leaves.is_empty();
        let vc = (group.vc, &layout.vcs[group.vc.index()]);
        let limit = groups.check_user_limit(vc, group.user, group.priority, group.leaves());
        if group.pods.iter().any(has_no_home) || limit.is_err() {
            return None;
        }
        let places = group
            .pods
            .iter()
            .filter_map(|p| Some((p.home?, p)))
            .flat_map(|((view, level), p)| {
                let chain = layout.chain(p.chain);
                p.leaves
                    .iter()
                    .map(move |leaf| (view, level, p.chain, chain.ancestor(*leaf, 0, level)))
            });
        Some(places.collect())
    }

    /// Binds a slot of the view to the cell, unless one is bound to it already. Returns false if that is impossible.
    fn bind(&mut self, (view, level, chain, cell): Place) -> bool {
        let occupancy = &self.ledger.occupancy;
        if occupancy.layout.views[view.index()].chain != chain {
            return false;
        }
        if let Some(slot) = occupancy.slot_over(chain, level, cell) {
            return occupancy.view_of(slot) == view;
        }
        if !occupancy.is_free(chain, level, cell) {
            return false;
        }
        if occupancy.views[view.index()].unbound[level].is_empty() && self.is_forced {
            self.downgrade_cheapest_slot(view, level);
        }
        let unbound = &self.ledger.occupancy.views[view.index()].unbound[level];
        let preferred = self.preferred.get(&(chain, level, cell)).map(|s| s.0);
        let preferred = preferred.filter(|s| unbound.contains(s));
        let Some(slot) = preferred.or(unbound.first().copied()) else {
            return false;
        };
        // Downgrading others may have merged or split cells around this one.
        if !self.ledger.occupancy.is_free(chain, level, cell) {
            return false;
        }
        self.ledger.bind(SlotId(slot), cell);
        self.ledger.occupancy.slack(chain).iter().all(|s| *s >= 0)
    }

    /// Downgrades all groups in the slot of a level whose highest priority is lowest, if that is below the priority of
    /// this group.
    fn downgrade_cheapest_slot(&mut self, view: ViewId, level: Level) {
        let this = self.ledger.groups.at(self.id.0);
        let (priority, key) = (this.priority, this.key);
        let mut best: Option<(i16, BTreeSet<u32>)> = None;
        for &slot in &self.ledger.layout().views[view.index()].slots {
            if self.ledger.layout().slots[slot.index()].level != level {
                continue;
            }
            let Some((highest, groups)) = self.groups_in(slot) else {
                continue;
            };
            if highest < priority && best.as_ref().is_none_or(|(p, _)| highest < *p) {
                best = Some((highest, groups));
            }
        }
        for group in best.map(|(_, groups)| groups).unwrap_or_default() {
            GroupLifecycle {
                ledger: self.ledger,
                id: GroupId(group),
            }
            .downgrade(Downgrade { by: key });
        }
    }

    /// Returns the highest priority in a slot, and the guaranteed groups in it. `None` if there are none, or if one of
    /// them claims leaves or is being preempted.
    fn groups_in(&self, slot: SlotId) -> Option<(i16, BTreeSet<u32>)> {
        let state = self.ledger.occupancy.slots[slot.index()];
        if state.used == 0 || state.cell == NONE {
            return None;
        }
        let spec = &self.ledger.layout().slots[slot.index()];
        let mut groups = BTreeSet::new();
        let mut highest = i16::MIN;
        let layout = self.ledger.layout().chain(spec.chain);
        for leaf in layout.inside(state.cell, spec.level, 0) {
            if let Some((owner, p)) = self.ledger.owner(spec.chain, leaf).filter(|(_, p)| *p >= 0) {
                highest = highest.max(p);
                groups.insert(owner);
            }
        }
        let is_allocated = |g: &u32| self.ledger.groups.at(*g).state == GroupState::Allocated;
        groups.iter().all(is_allocated).then_some((highest, groups))
    }
}
