//! What happens to a group after it was placed: it goes, its claim is met or given up, it is downgraded or gets its
//! place back.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::group::{Downgrade, GroupId, GroupState};
use crate::layout::{ChainId, Level, SlotId, ViewId};
use crate::leaves::Write;
use crate::request::{Request, Terms};
use crate::state::{Cells, Mark, NONE};

impl Cells {
    /// The group has ended, or gives up its claim: everything it has is free again, except what others claim.
    pub fn release(&mut self, id: GroupId) {
        let Some(group) = self.group(id) else { return };
        if group.state == GroupState::Preempting {
            self.drop_claims(id);
        } else {
            self.rewrite(id, |leaf, using, holding| {
                (using == id.0).then_some((leaf, NONE, holding))
            });
            self.remove_group(id);
            self.tidy();
        }
        self.promote();
        self.settled();
    }

    /// The groups a preempting group still waits for.
    pub fn victims(&self, id: GroupId) -> Vec<GroupId> {
        let mut found = BTreeSet::new();
        for pod in self.group(id).map(|g| g.pods.as_slice()).unwrap_or_default() {
            let using = &self.chains[pod.chain.index()].using;
            found.extend(pod.leaves.iter().map(|leaf| using[*leaf as usize]));
        }
        found.remove(&NONE);
        found.remove(&id.0);
        found.into_iter().map(GroupId).collect()
    }

    /// Lets a preempting group start if all its victims have gone. True if it has its cells now.
    pub fn proceed(&mut self, id: GroupId) -> bool {
        match self.group(id).map(|g| g.state) {
            Some(GroupState::Preempting) if self.victims(id).is_empty() => {
                self.convert_claims(id);
                self.mark_group(id, GroupState::Allocated, None);
                self.settled();
                true
            }
            Some(GroupState::Allocated | GroupState::BeingPreempted) => true,
            Some(GroupState::Preempting) | None => false,
        }
    }

    /// Changes leaves of a group, one machine at a time.
    fn rewrite(&mut self, id: GroupId, change: impl Fn(u32, u32, u32) -> Option<Write>) {
        let pods: Vec<(ChainId, SmallVec<[u32; 8]>)> = self
            .group_at(id.0)
            .pods
            .iter()
            .map(|p| (p.chain, p.leaves.clone()))
            .collect();
        for (chain, leaves) in pods {
            let c = &self.chains[chain.index()];
            let writes: SmallVec<[Write; 8]> = leaves
                .iter()
                .filter_map(|leaf| change(*leaf, c.using[*leaf as usize], c.holding[*leaf as usize]))
                .collect();
            self.write(chain, &writes);
        }
    }

    /// A preempting group gives up: those it waited for have their cells back, and are not to go for it any more.
    pub(crate) fn drop_claims(&mut self, id: GroupId) {
        let victims = self.victims(id);
        self.rewrite(id, |leaf, using, holding| {
            (holding == id.0).then_some((leaf, using, NONE))
        });
        self.remove_group(id);
        for victim in victims {
            let group = self.group_at(victim.0);
            let held = group.pods.iter().any(|pod| {
                let holding = &self.chains[pod.chain.index()].holding;
                pod.leaves.iter().any(|leaf| holding[*leaf as usize] != NONE)
            });
            if !held {
                let downgraded = group.downgraded;
                self.mark_group(victim, GroupState::Allocated, downgraded);
            }
        }
        self.tidy();
    }

    /// A group leaves its virtual cluster and runs on as a borrower, where it is.
    pub(crate) fn downgrade(&mut self, id: GroupId, downgrade: Downgrade) {
        self.rewrite(id, |leaf, using, holding| {
            (using == id.0).then_some((leaf, NONE, holding))
        });
        let state = self.group_at(id.0).state;
        self.mark_group(id, state, Some(downgrade));
        self.rewrite(id, |leaf, _, holding| Some((leaf, id.0, holding)));
        self.tidy();
    }

    /// Downgraded groups get their place back where there is room for them as they are, the highest priority first.
    pub(crate) fn promote(&mut self) {
        if !self.repromote {
            return;
        }
        for vc in 0..self.downgraded.len() {
            if self.downgraded[vc].is_empty() {
                continue;
            }
            let mut waiting: Vec<(i16, u64, u32)> = self.downgraded[vc]
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

    /// Gives a downgraded group its place back, without moving it. With `force`, lower priorities are downgraded for it.
    pub(crate) fn restore(&mut self, id: GroupId, force: bool) -> bool {
        let mark = Mark(self.log.len());
        let loosened = self.loosened.clone();
        if self.restored(id, force) {
            return true;
        }
        self.rollback(mark);
        self.loosened = loosened;
        false
    }

    fn restored(&mut self, id: GroupId, force: bool) -> bool {
        let group = self.group_at(id.0);
        let (priority, key) = (group.priority, group.key);
        let homeless = |p: &crate::group::Pod| p.home.is_none() && !p.leaves.is_empty();
        if group.pods.iter().any(homeless) || !self.room_for_user(id) {
            return false;
        }
        let places: BTreeSet<(ViewId, Level, ChainId, u32)> = group
            .pods
            .iter()
            .filter_map(|p| Some((p.home?, p)))
            .flat_map(|((view, level), p)| {
                let layout = self.layout.chain(p.chain);
                p.leaves
                    .iter()
                    .map(move |leaf| (view, level, p.chain, layout.ancestor(*leaf, 0, level)))
            })
            .collect();
        for (view, level, chain, cell) in places.iter().copied() {
            if self.layout.views[view.index()].chain != chain {
                return false;
            }
            if let Some(slot) = self.slot_over(chain, level, cell) {
                if self.view_of(slot) == view {
                    continue;
                }
                return false;
            }
            if !self.in_free_area(chain, level, cell) {
                return false;
            }
            if self.views[view.index()].unbound[level].is_empty() && force {
                self.empty_cheapest(view, level, priority, key);
            }
            let unbound = &self.views[view.index()].unbound[level];
            let wish = self.wishes.get(&(chain, level, cell)).map(|s| s.0);
            let Some(slot) = wish.filter(|s| unbound.contains(s)).or(unbound.first().copied()) else {
                return false;
            };
            // Making room may have merged or split cells around this one.
            if !self.in_free_area(chain, level, cell) {
                return false;
            }
            self.bind(SlotId(slot), cell);
            if self.slack(chain).iter().any(|s| *s < 0) {
                return false;
            }
        }
        // Making room for one cell may have given up another that was bound for this very group.
        let is_bound = |(view, level, chain, cell): &(ViewId, Level, ChainId, u32)| {
            let slot = self.slot_over(*chain, *level, *cell);
            slot.is_some_and(|slot| self.view_of(slot) == *view)
        };
        if !places.iter().all(is_bound) {
            return false;
        }
        let state = self.group_at(id.0).state;
        self.rewrite(id, |leaf, _, holding| Some((leaf, NONE, holding)));
        self.mark_group(id, state, None);
        self.rewrite(id, |leaf, _, holding| Some((leaf, id.0, holding)));
        let chains: BTreeSet<ChainId> = self.group_at(id.0).pods.iter().map(|p| p.chain).collect();
        for chain in chains {
            self.settle(chain);
        }
        true
    }

    fn room_for_user(&self, id: GroupId) -> bool {
        let group = self.group_at(id.0);
        let request = Request {
            key: group.key,
            vc: group.vc,
            user: group.user,
            priority: group.priority,
            lazy: false,
            several_chains: false,
            parts: vec![crate::request::Part {
                target: crate::request::Target::Any,
                pods: vec![group.leaves()],
            }],
        };
        self.within_limit(&request).is_ok()
    }

    /// Downgrades everybody in the slot of a level whose highest priority is lowest, if that is below `priority`.
    fn empty_cheapest(&mut self, view: ViewId, level: Level, priority: i16, key: u64) {
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
            let settled = groups
                .iter()
                .all(|g| self.group_at(*g).state == GroupState::Allocated);
            if settled && highest < priority && best.as_ref().is_none_or(|(p, _, _)| highest < *p) {
                best = Some((highest, slot, groups));
            }
        }
        for group in best.map(|(_, _, groups)| groups).unwrap_or_default() {
            self.downgrade(GroupId(group), Downgrade { by: key });
        }
    }

    /// Leaves of a slot that are not used and on machines that may not be.
    pub(crate) fn unusable_in(&self, slot: SlotId, terms: &Terms<'_>) -> u32 {
        let spec = &self.layout.slots[slot.index()];
        let cell = self.slots[slot.index()].cell;
        if cell == NONE {
            return 0;
        }
        let layout = self.layout.chain(spec.chain);
        let leaves = layout.inside(cell, spec.level, 0);
        let size = layout.node_leaves();
        leaves
            .filter(|leaf| {
                let used = self.owner(spec.chain, *leaf).is_some_and(|(_, p)| p >= 0);
                !used && !self.allowed(spec.chain, leaf / size, terms)
            })
            .count() as u32
    }
}
