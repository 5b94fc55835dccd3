//! Places groups in the cells of their virtual cluster.

use super::evict::Evictor;
use super::fit::BinFinder;
use super::{BinAssignment, PlacedPod, Placer, SizedPod, ascending};
use crate::group::{Downgrade, GroupId, GroupState};
use crate::layout::{SlotId, ViewId};
use crate::request::{PodSet, WaitReason};
use crate::state::NONE;

/// How often a plan is made again after a group was downgraded or a claim was cancelled.
const MAX_ROUNDS: usize = 64;

impl Placer<'_> {
    pub(super) fn place_guaranteed(
        &mut self,
        id: GroupId,
        set: &PodSet,
    ) -> Result<Vec<PlacedPod>, WaitReason> {
        let views = self.cells.layout.views_for(self.request.vc, set.target);
        let pods = ascending(&set.pods);
        let start = self.cells.log_position();
        // With a choice of chains, one without victims is better than one with victims.
        if views.len() > 1 {
            for view in &views {
                if let Some(assignments) = self.finder(*view).fit(&pods)
                    && let Ok(placed) = self.bind_and_pick(&assignments, &set.pods, &[])
                    && self.cells.occupants_of(&placed).is_empty()
                {
                    return Ok(placed);
                }
                self.cells.rollback(start);
            }
        }
        let mut wait = None;
        for view in &views {
            match self.place_in_view(id, *view, set, &pods) {
                Ok(placed) => return Ok(placed),
                Err(reason) => {
                    self.cells.rollback(start);
                    // The reason of the last chain is reported, unless an earlier one lacked only healthy machines.
                    if !matches!(wait, Some(WaitReason::NoHealthyCell { .. })) {
                        wait = Some(reason);
                    }
                }
            }
        }
        if self.request.may_span_chains && views.len() > 1 {
            match self.spread(&views, set, &pods) {
                Some(placed) => return Ok(placed),
                None => self.cells.rollback(start),
            }
        }
        Err(wait.unwrap_or(WaitReason::NoRoom {
            borrower: false,
            asked: set.pods.iter().sum(),
            available: 0,
            unusable: 0,
        }))
    }

    fn finder(&self, view: ViewId) -> BinFinder<'_> {
        BinFinder {
            cells: self.cells,
            view,
            options: self.options,
        }
    }

    /// Places pods in one view, preempting lower priorities if necessary.
    fn place_in_view(
        &mut self,
        id: GroupId,
        view: ViewId,
        set: &PodSet,
        pods: &[SizedPod],
    ) -> Result<Vec<PlacedPod>, WaitReason> {
        for _ in 0..MAX_ROUNDS {
            if let Some(assignments) = self.finder(view).fit(pods) {
                return self.bind_and_pick(&assignments, &set.pods, &[]);
            }
            let evictor = Evictor {
                cells: self.cells,
                group: id,
                view,
                priority: self.request.priority,
                options: self.options,
            };
            let Some((assignments, victims)) = evictor.plan(pods) else {
                return Err(self.no_room(view, set));
            };
            if !self.downgrade_or_cancel(&victims) {
                return self.bind_and_pick(&assignments, &set.pods, &victims);
            }
        }
        Err(self.no_room(view, set))
    }

    /// Downgrades victims that allow it, and cancels claims of victims that have not started. Returns whether anything
    /// changed, so that the plan has to be made again.
    fn downgrade_or_cancel(&mut self, victims: &[u32]) -> bool {
        let mut has_changed = false;
        for victim in victims {
            let group = self.cells.group_at(*victim);
            if group.state == GroupState::Preempting {
                self.cells.drop_claims(GroupId(*victim));
                has_changed = true;
            } else if group.lazy && group.state == GroupState::Allocated {
                let by = self.request.key;
                self.cells.downgrade(GroupId(*victim), Downgrade { by });
                has_changed = true;
            }
        }
        has_changed
    }

    /// Spreads pods over several chains.
    fn spread(&mut self, views: &[ViewId], set: &PodSet, pods: &[SizedPod]) -> Option<Vec<PlacedPod>> {
        let mut left = pods.to_vec();
        let mut all: Vec<BinAssignment> = Vec::new();
        for view in views {
            if left.is_empty() {
                break;
            }
            let assignments = self.finder(*view).sweep(&left);
            left.retain(|(_, pod)| !assignments.iter().any(|a| a.pods.contains(pod)));
            all.extend(assignments);
        }
        if !left.is_empty() {
            return None;
        }
        self.bind_and_pick(&all, &set.pods, &[]).ok()
    }

    fn no_room(&self, view: ViewId, set: &PodSet) -> WaitReason {
        let spec = &self.cells.layout.views[view.index()];
        let state = &self.cells.views[view.index()];
        let lower: u32 = state
            .used_at
            .range(..self.request.priority)
            .map(|(_, n)| *n)
            .sum();
        let available = spec.leaves - state.used_at.values().sum::<u32>() + lower;
        let mut unusable = 0;
        if self.cells.chains[spec.chain.index()].bad_nodes > 0 || self.options.machines.is_some() {
            for slot in &spec.slots {
                unusable += self.unusable_in(*slot);
            }
        }
        WaitReason::NoRoom {
            borrower: false,
            asked: set.pods.iter().sum(),
            available,
            unusable,
        }
    }

    /// Returns the number of leaves of a slot that are not used and on machines that must not be used.
    fn unusable_in(&self, slot: SlotId) -> u32 {
        let cells = &self.cells;
        let spec = &cells.layout.slots[slot.index()];
        let cell = cells.slots[slot.index()].cell;
        if cell == NONE {
            return 0;
        }
        let layout = cells.layout.chain(spec.chain);
        let size = layout.node_leaves();
        let leaves = layout.inside(cell, spec.level, 0);
        leaves
            .filter(|leaf| {
                let is_used = cells.owner(spec.chain, *leaf).is_some_and(|(_, p)| p >= 0);
                !is_used && !cells.is_node_allowed(spec.chain, leaf / size, self.options)
            })
            .count() as u32
    }
}
