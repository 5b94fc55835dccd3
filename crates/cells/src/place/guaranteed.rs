//! Places groups in the cells of their virtual cluster.

use super::bind::Binder;
use super::evict::Evictor;
use super::fit::BinFinder;
use super::{BinAssignment, PlacedPod, SizedPod, ascending};
use crate::NONE;
use crate::group::{Downgrade, GroupId, GroupState};
use crate::layout::{SlotId, ViewId};
use crate::ledger::Ledger;
use crate::lifecycle::GroupLifecycle;
use crate::request::{PlacementOptions, PodSet, Request, WaitReason};

/// How often a plan is made again after a group was downgraded or a claim was cancelled.
const MAX_ROUNDS: usize = 64;

/// Places the pods of one set of a guaranteed group.
pub(super) struct GuaranteedPlacer<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) group: GroupId,
    pub(super) request: &'a Request,
    pub(super) set: &'a PodSet,
    pub(super) options: &'a PlacementOptions<'a>,
}

impl GuaranteedPlacer<'_> {
    /// Binds slots and picks leaves for all pods, in the first chain with room for them.
    pub(super) fn place(&mut self) -> Result<Vec<PlacedPod>, WaitReason> {
        let views = self.ledger.layout().views_for(self.request.vc, self.set.target);
        let pods = ascending(&self.set.pods);
        let start = self.ledger.log.position();
        // With a choice of chains, one without victims is better than one with victims.
        if views.len() > 1 {
            for view in &views {
                if let Some(assignments) = self.finder(*view).fit(&pods)
                    && let Ok(placed) = self.bind_and_pick(&assignments, &[])
                    && !self.is_occupied(&placed)
                {
                    return Ok(placed);
                }
                self.ledger.rollback(start);
            }
        }
        let mut wait = None;
        for view in &views {
            match self.place_in_view(*view, &pods) {
                Ok(placed) => return Ok(placed),
                Err(reason) => {
                    self.ledger.rollback(start);
                    // The reason of the last chain is reported, unless an earlier one lacked only healthy machines.
                    if !matches!(wait, Some(WaitReason::NoHealthyCell { .. })) {
                        wait = Some(reason);
                    }
                }
            }
        }
        if self.request.may_span_chains && views.len() > 1 {
            match self.spread(&views, &pods) {
                Some(placed) => return Ok(placed),
                None => self.ledger.rollback(start),
            }
        }
        Err(wait.unwrap_or(WaitReason::NoRoom {
            borrower: false,
            asked: self.set.pods.iter().sum(),
            available: 0,
            unusable: 0,
        }))
    }

    fn finder(&self, view: ViewId) -> BinFinder<'_> {
        BinFinder {
            cells: &self.ledger.occupancy,
            view,
            options: self.options,
        }
    }

    fn bind_and_pick(
        &mut self,
        assignments: &[BinAssignment],
        victims: &[u32],
    ) -> Result<Vec<PlacedPod>, WaitReason> {
        Binder {
            ledger: self.ledger,
            sizes: &self.set.pods,
            victims,
            options: self.options,
        }
        .bind_and_pick(assignments)
    }

    /// Whether some group occupies a leaf of these pods.
    fn is_occupied(&self, pods: &[PlacedPod]) -> bool {
        pods.iter().any(|pod| {
            let occupant = &self.ledger.occupancy.chains[pod.chain.index()].occupant;
            pod.leaves.iter().any(|leaf| occupant[*leaf as usize] != NONE)
        })
    }

    /// Places pods in one view, preempting lower priorities if necessary.
    fn place_in_view(&mut self, view: ViewId, pods: &[SizedPod]) -> Result<Vec<PlacedPod>, WaitReason> {
        for _ in 0..MAX_ROUNDS {
            if let Some(assignments) = self.finder(view).fit(pods) {
                return self.bind_and_pick(&assignments, &[]);
            }
            let evictor = Evictor {
                ledger: self.ledger,
                group: self.group,
                view,
                priority: self.request.priority,
                options: self.options,
            };
            let Some((assignments, victims)) = evictor.plan(pods) else {
                return Err(self.no_room(view));
            };
            if !self.downgrade_or_cancel(&victims) {
                return self.bind_and_pick(&assignments, &victims);
            }
        }
        Err(self.no_room(view))
    }

    /// Downgrades victims that allow it, and cancels claims of victims that have not started. Returns whether anything
    /// changed, so that the plan has to be made again.
    fn downgrade_or_cancel(&mut self, victims: &[u32]) -> bool {
        let mut has_changed = false;
        for victim in victims {
            let group = self.ledger.groups.at(*victim);
            let (state, is_lazy) = (group.state, group.lazy);
            let mut lifecycle = GroupLifecycle {
                ledger: self.ledger,
                id: GroupId(*victim),
            };
            if state == GroupState::Preempting {
                lifecycle.drop_claims();
                has_changed = true;
            } else if is_lazy && state == GroupState::Allocated {
                let by = self.request.key;
                lifecycle.downgrade(Downgrade { by });
                has_changed = true;
            }
        }
        has_changed
    }

    /// Spreads pods over several chains.
    fn spread(&mut self, views: &[ViewId], pods: &[SizedPod]) -> Option<Vec<PlacedPod>> {
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
        self.bind_and_pick(&all, &[]).ok()
    }

    fn no_room(&self, view: ViewId) -> WaitReason {
        let spec = &self.ledger.layout().views[view.index()];
        let state = &self.ledger.occupancy.views[view.index()];
        let lower: u32 = state
            .used_at
            .range(..self.request.priority)
            .map(|(_, n)| *n)
            .sum();
        let available = spec.leaves - state.used_at.values().sum::<u32>() + lower;
        let mut unusable = 0;
        if self.ledger.occupancy.chains[spec.chain.index()].buddy.bad_nodes > 0
            || self.options.machines.is_some()
        {
            for slot in &spec.slots {
                unusable += self.unusable_in(*slot);
            }
        }
        WaitReason::NoRoom {
            borrower: false,
            asked: self.set.pods.iter().sum(),
            available,
            unusable,
        }
    }

    /// Returns the number of leaves of a slot that are not used and on machines that must not be used.
    fn unusable_in(&self, slot: SlotId) -> u32 {
        let cells = &self.ledger.occupancy;
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
                let is_used = self.ledger.owner(spec.chain, *leaf).is_some_and(|(_, p)| p >= 0);
                !is_used && !cells.is_node_allowed(spec.chain, leaf / size, self.options)
            })
            .count() as u32
    }
}
