//! A group after its placement: claims that are met or dropped, downgrade and release.

use smallvec::SmallVec;

use crate::NONE;
use crate::group::{Downgrade, GroupId, GroupState};
use crate::health::release_empty_slots;
use crate::layout::ChainId;
use crate::ledger::Ledger;
use crate::occupancy::LeafWrite;

/// The changes of state of one group that holds or claims cells.
pub(crate) struct GroupLifecycle<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) id: GroupId,
}

impl GroupLifecycle<'_> {
    /// Removes the group. Its cells are free again, except those that others claim.
    pub(crate) fn release(&mut self) {
        if self.ledger.groups.at(self.id.0).state == GroupState::Preempting {
            return self.drop_claims();
        }
        self.leave_cells();
        self.ledger.remove_group(self.id);
        release_empty_slots(self.ledger);
    }

    /// Makes the group the occupant of all leaves that it claims and that have no occupant any more.
    pub(crate) fn convert_claims(&mut self) {
        let id = self.id.0;
        self.rewrite(|leaf, _, _| Some((leaf, id, NONE)));
    }

    /// Removes the group, which is preempting others. Its victims keep their cells and are no longer preempted.
    pub(crate) fn drop_claims(&mut self) {
        let id = self.id.0;
        let victims = self.ledger.victims(self.id);
        self.rewrite(|leaf, occupant, claimant| (claimant == id).then_some((leaf, occupant, NONE)));
        self.ledger.remove_group(self.id);
        for victim in victims {
            let group = self.ledger.groups.at(victim.0);
            let is_claimed = group.pods.iter().any(|pod| {
                let claimant = &self.ledger.occupancy.chains[pod.chain.index()].claimant;
                pod.leaves.iter().any(|leaf| claimant[*leaf as usize] != NONE)
            });
            if !is_claimed {
                let downgraded = group.downgraded;
                self.ledger
                    .set_group_state(victim, GroupState::Allocated, downgraded);
            }
        }
        release_empty_slots(self.ledger);
    }

    /// Moves the group out of its virtual cluster; it continues on the same leaves as a borrower.
    pub(crate) fn downgrade(&mut self, downgrade: Downgrade) {
        self.leave_cells();
        self.return_as(Some(downgrade));
        release_empty_slots(self.ledger);
    }

    /// Moves the group back into its virtual cluster, on the same leaves. Its cells must be bound already.
    pub(crate) fn upgrade(&mut self) {
        self.rewrite(|leaf, _, claimant| Some((leaf, NONE, claimant)));
        self.return_as(None);
    }

    /// Takes the group off the leaves that it occupies.
    fn leave_cells(&mut self) {
        let id = self.id.0;
        self.rewrite(|leaf, occupant, claimant| (occupant == id).then_some((leaf, NONE, claimant)));
    }

    /// Puts the group back on its leaves, as a borrower or as a guaranteed group.
    fn return_as(&mut self, downgraded: Option<Downgrade>) {
        let id = self.id.0;
        let state = self.ledger.groups.at(id).state;
        self.ledger.set_group_state(self.id, state, downgraded);
        self.rewrite(|leaf, _, claimant| Some((leaf, id, claimant)));
    }

    /// Changes the leaves of the group pod by pod. `change` gets a leaf with its occupant and claimant.
    fn rewrite(&mut self, change: impl Fn(u32, u32, u32) -> Option<LeafWrite>) {
        let pods: Vec<(ChainId, SmallVec<[u32; 8]>)> = self
            .ledger
            .groups
            .at(self.id.0)
            .pods
            .iter()
            .map(|p| (p.chain, p.leaves.clone()))
            .collect();
        for (chain, leaves) in pods {
            let c = &self.ledger.occupancy.chains[chain.index()];
            let writes: SmallVec<[LeafWrite; 8]> = leaves
                .iter()
                .filter_map(|leaf| change(*leaf, c.occupant[*leaf as usize], c.claimant[*leaf as usize]))
                .collect();
            self.ledger.write_leaves(chain, &writes);
        }
    }
}
