//! Groups after their placement: release, claims that are met or dropped, downgrades and restored places.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::group::{Downgrade, GroupId, GroupState, Pod};
use crate::layout::{ChainId, Level, SlotId, ViewId};
use crate::occupancy::LeafWrite;
use crate::state::{Cells, NONE};

/// A cell that a group needs back: its view and level there, and the physical cell.
type Place = (ViewId, Level, ChainId, u32);

impl Cells {
    /// Removes a group that has ended or gives up its claim. Its cells are free again, except those that others claim.
    pub fn release(&mut self, id: GroupId) {
        let Some(group) = self.group(id) else { return };
        if group.state == GroupState::Preempting {
            self.drop_claims(id);
        } else {
            self.rewrite(id, |leaf, occupant, claimant| {
                (occupant == id.0).then_some((leaf, NONE, claimant))
            });
            self.remove_group(id);
            self.release_empty_slots();
        }
        self.promote();
        self.trim_undo_log();
    }

    /// Returns the groups on the leaves that a preempting group claims.
    pub fn victims(&self, id: GroupId) -> Vec<GroupId> {
        let mut found = BTreeSet::new();
        for pod in self.group(id).map(|g| g.pods.as_slice()).unwrap_or_default() {
            let occupant = &self.chains[pod.chain.index()].occupant;
            found.extend(pod.leaves.iter().map(|leaf| occupant[*leaf as usize]));
        }
        found.remove(&NONE);
        found.remove(&id.0);
        found.into_iter().map(GroupId).collect()
    }

    /// Starts a preempting group if all its victims are gone. Returns whether it holds its cells now.
    pub fn proceed(&mut self, id: GroupId) -> bool {
        match self.group(id).map(|g| g.state) {
            Some(GroupState::Preempting) if self.victims(id).is_empty() => {
                self.convert_claims(id);
                self.set_group_state(id, GroupState::Allocated, None);
                self.trim_undo_log();
                true
            }
            Some(GroupState::Allocated | GroupState::BeingPreempted) => true,
            Some(GroupState::Preempting) | None => false,
        }
    }

    /// Changes the leaves of a group pod by pod. `change` gets a leaf with its occupant and claimant.
    fn rewrite(&mut self, id: GroupId, change: impl Fn(u32, u32, u32) -> Option<LeafWrite>) {
        let pods: Vec<(ChainId, SmallVec<[u32; 8]>)> = self
            .group_at(id.0)
            .pods
            .iter()
            .map(|p| (p.chain, p.leaves.clone()))
            .collect();
        for (chain, leaves) in pods {
            let c = &self.chains[chain.index()];
            let writes: SmallVec<[LeafWrite; 8]> = leaves
                .iter()
                .filter_map(|leaf| change(*leaf, c.occupant[*leaf as usize], c.claimant[*leaf as usize]))
                .collect();
            self.write_leaves(chain, &writes);
        }
    }

    /// Makes a group the occupant of all leaves that it claims and that have no occupant any more.
    pub(crate) fn convert_claims(&mut self, id: GroupId) {
        self.rewrite(id, |leaf, _, _| Some((leaf, id.0, NONE)));
    }

    /// Removes a preempting group. Its victims keep their cells and are no longer preempted.
    pub(crate) fn drop_claims(&mut self, id: GroupId) {
        let victims = self.victims(id);
        self.rewrite(id, |leaf, occupant, claimant| {
            (claimant == id.0).then_some((leaf, occupant, NONE))
        });
        self.remove_group(id);
        for victim in victims {
            let group = self.group_at(victim.0);
            let is_claimed = group.pods.iter().any(|pod| {
                let claimant = &self.chains[pod.chain.index()].claimant;
                pod.leaves.iter().any(|leaf| claimant[*leaf as usize] != NONE)
            });
            if !is_claimed {
                let downgraded = group.downgraded;
                self.set_group_state(victim, GroupState::Allocated, downgraded);
            }
        }
        self.release_empty_slots();
    }

    /// Moves a group out of its virtual cluster; it continues on the same leaves as a borrower.
    pub(crate) fn downgrade(&mut self, id: GroupId, downgrade: Downgrade) {
        self.rewrite(id, |leaf, occupant, claimant| {
            (occupant == id.0).then_some((leaf, NONE, claimant))
        });
        let state = self.group_at(id.0).state;
        self.set_group_state(id, state, Some(downgrade));
        self.rewrite(id, |leaf, _, claimant| Some((leaf, id.0, claimant)));
        self.release_empty_slots();
    }

    /// Restores downgraded groups that have room on their present leaves, highest priority first.
    pub(crate) fn promote(&mut self) {
        if !self.repromote {
            return;
        }
        for vc in 0..self.layout.vcs.len() {
            let downgraded = &self.groups.downgraded[vc];
            if downgraded.is_empty() {
                continue;
            }
            let mut waiting: Vec<(i16, u64, u32)> = downgraded
                .iter()
                .map(|(sequence, id)| (-self.group_at(*id).priority, *sequence, *id))
                .collect();
            waiting.sort_unstable();
            for (_, _, id) in waiting {
                if self.group_at(id).state == GroupState::Allocated {
                    self.restore(GroupId(id), false);
                }
            }
        }
    }

    /// Gives a downgraded group its place in its virtual cluster back, on the same leaves. With `force`, groups of lower
    /// priority are downgraded for it. Returns whether it succeeded; otherwise nothing is changed.
    pub(crate) fn restore(&mut self, id: GroupId, force: bool) -> bool {
        let start = self.log_position();
        let emptied_slots = self.emptied_slots.clone();
        if self.try_restore(id, force) {
            return true;
        }
        self.rollback(start);
        self.emptied_slots = emptied_slots;
        false
    }

    fn try_restore(&mut self, id: GroupId, force: bool) -> bool {
        let Some(places) = self.places_to_restore(id) else {
            return false;
        };
        for place in &places {
            if !self.bind_place(id, *place, force) {
                return false;
            }
        }
        // Downgrading others for one cell may have unbound another cell that was bound for this group before.
        let is_bound = |(view, level, chain, cell): &Place| {
            let slot = self.slot_over(*chain, *level, *cell);
            slot.is_some_and(|slot| self.view_of(slot) == *view)
        };
        if !places.iter().all(is_bound) {
            return false;
        }
        let state = self.group_at(id.0).state;
        self.rewrite(id, |leaf, _, claimant| Some((leaf, NONE, claimant)));
        self.set_group_state(id, state, None);
        self.rewrite(id, |leaf, _, claimant| Some((leaf, id.0, claimant)));
        let chains: BTreeSet<ChainId> = self.group_at(id.0).pods.iter().map(|p| p.chain).collect();
        for chain in chains {
            self.update_doomed_slots(chain);
        }
        true
    }

    /// Returns the cells that a downgraded group needs in its virtual cluster. `None` if a pod has no home there, or if
    /// its user would exceed the limit.
    fn places_to_restore(&self, id: GroupId) -> Option<BTreeSet<Place>> {
        let group = self.group_at(id.0);
        let is_homeless = |p: &Pod| p.home.is_none() && !p.leaves.is_empty();
        let limit = self.check_limit_for(group.vc, group.user, group.priority, group.leaves());
        if group.pods.iter().any(is_homeless) || limit.is_err() {
            return None;
        }
        let places = group
            .pods
            .iter()
            .filter_map(|p| Some((p.home?, p)))
            .flat_map(|((view, level), p)| {
                let layout = self.layout.chain(p.chain);
                p.leaves
                    .iter()
                    .map(move |leaf| (view, level, p.chain, layout.ancestor(*leaf, 0, level)))
            });
        Some(places.collect())
    }

    /// Binds a slot of the view to the cell, unless one is bound to it already. Returns false if that is impossible.
    fn bind_place(&mut self, id: GroupId, (view, level, chain, cell): Place, force: bool) -> bool {
        if self.layout.views[view.index()].chain != chain {
            return false;
        }
        if let Some(slot) = self.slot_over(chain, level, cell) {
            return self.view_of(slot) == view;
        }
        if !self.in_free_area(chain, level, cell) {
            return false;
        }
        if self.views[view.index()].unbound[level].is_empty() && force {
            let group = self.group_at(id.0);
            let (priority, key) = (group.priority, group.key);
            self.downgrade_cheapest_slot(view, level, priority, key);
        }
        let unbound = &self.views[view.index()].unbound[level];
        let preferred = self.preferred_slots.get(&(chain, level, cell)).map(|s| s.0);
        let preferred = preferred.filter(|s| unbound.contains(s));
        let Some(slot) = preferred.or(unbound.first().copied()) else {
            return false;
        };
        // Downgrading others may have merged or split cells around this one.
        if !self.in_free_area(chain, level, cell) {
            return false;
        }
        self.bind(SlotId(slot), cell);
        self.slack(chain).iter().all(|s| *s >= 0)
    }

    /// Downgrades all groups in the slot of a level whose highest priority is lowest, if that is below `priority`.
    fn downgrade_cheapest_slot(&mut self, view: ViewId, level: Level, priority: i16, key: u64) {
        let spec = &self.layout.views[view.index()];
        let chain = spec.chain;
        let layout = self.layout.chain(chain);
        let mut best: Option<(i16, SlotId, BTreeSet<u32>)> = None;
        for &slot in &spec.slots {
            let state = self.slots[slot.index()];
            if self.layout.slots[slot.index()].level != level || state.used == 0 || state.cell == NONE {
                continue;
            }
            let mut groups = BTreeSet::new();
            let mut highest = i16::MIN;
            for leaf in layout.inside(state.cell, level, 0) {
                if let Some((owner, p)) = self.owner(chain, leaf).filter(|(_, p)| *p >= 0) {
                    highest = highest.max(p);
                    groups.insert(owner);
                }
            }
            let all_allocated = groups
                .iter()
                .all(|g| self.group_at(*g).state == GroupState::Allocated);
            if all_allocated && highest < priority && best.as_ref().is_none_or(|(p, _, _)| highest < *p) {
                best = Some((highest, slot, groups));
            }
        }
        for group in best.map(|(_, _, groups)| groups).unwrap_or_default() {
            self.downgrade(GroupId(group), Downgrade { by: key });
        }
    }
}
