//! Read access to single cells, slots and machines.

use smallvec::SmallVec;

use crate::group::GroupId;
use crate::layout::{ChainId, Level, MachineId, SlotId, VcId};
use crate::request::{PlacementOptions, Request, WaitReason};
use crate::state::{Cells, NONE};

/// The groups on a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeafUse {
    /// The group that occupies it.
    pub using: Option<GroupId>,
    /// The preempting group that claims it.
    pub claimed: Option<GroupId>,
}

fn some(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}

impl Cells {
    /// Returns the groups on a leaf.
    pub fn leaf_use(&self, chain: ChainId, leaf: u32) -> LeafUse {
        let c = &self.chains[chain.index()];
        LeafUse {
            using: some(c.occupant[leaf as usize]).map(GroupId),
            claimed: some(c.claimant[leaf as usize]).map(GroupId),
        }
    }

    /// Whether a cell has a bad machine.
    pub fn has_bad_machine(&self, chain: ChainId, level: Level, index: u32) -> bool {
        self.is_bad(chain, level, index)
    }

    /// Whether a machine is healthy.
    pub fn is_healthy(&self, machine: MachineId) -> bool {
        let nodes = &self.layout.machines[machine.index()].nodes;
        nodes
            .iter()
            .all(|(c, n)| !self.chains[c.index()].nodes[*n as usize].bad)
    }

    /// Returns the slot bound to exactly this cell.
    pub fn slot_at(&self, chain: ChainId, level: Level, index: u32) -> Option<SlotId> {
        some(self.chains[chain.index()].levels[level].bound[index as usize]).map(SlotId)
    }

    /// Returns the slot that a leaf belongs to, if it is in a bound cell.
    pub fn slot_of(&self, chain: ChainId, leaf: u32) -> Option<SlotId> {
        self.slot_over(chain, 0, leaf)
    }

    /// Returns the physical cell that a slot is bound to.
    pub fn cell_of(&self, slot: SlotId) -> Option<u32> {
        some(self.slots[slot.index()].cell)
    }

    /// Whether a slot has no physical cell.
    pub fn is_unbound(&self, slot: SlotId) -> bool {
        self.slots[slot.index()].cell == NONE
    }

    /// Returns the guaranteed groups that run as borrowers.
    pub fn downgraded(&self) -> impl Iterator<Item = GroupId> + '_ {
        let all = self.groups.downgraded.iter().flatten();
        all.map(|(_, id)| GroupId(*id))
    }

    /// Returns the leaves of a virtual cluster that guaranteed groups hold, and the leaves it owns.
    pub fn usage(&self, vc: VcId) -> (u32, u32) {
        let slots = &self.layout.vcs[vc.index()].slots;
        let used = slots.iter().map(|s| self.slots[s.index()].used).sum();
        (used, self.layout.leaves_of(vc))
    }

    /// Checks that a user stays within the limit of the virtual cluster with this request.
    ///
    /// # Errors
    /// The limit, and what the user holds.
    pub fn check_user_limit(&self, request: &Request) -> Result<(), WaitReason> {
        self.check_limit_for(request.vc, request.user, request.priority, request.leaves())
    }

    /// Checks that a user may hold `asked` more leaves at a priority.
    pub(crate) fn check_limit_for(
        &self,
        vc: VcId,
        user: Option<u32>,
        priority: i16,
        asked: u32,
    ) -> Result<(), WaitReason> {
        let Some(user) = user.filter(|_| priority >= 0) else {
            return Ok(());
        };
        let spec = &self.layout.vcs[vc.index()];
        let own = spec.user_limits.get(self.groups.user_name(user)).copied();
        let Some(limit) = own.or(spec.leaves_per_user) else {
            return Ok(());
        };
        let held = self.groups.leaves_of_user(vc, user);
        if held + asked > limit {
            return Err(WaitReason::UserLimit { limit, held, asked });
        }
        Ok(())
    }

    /// Whether a node is healthy and the options allow its machine.
    pub fn is_node_allowed(&self, chain: ChainId, node: u32, options: &PlacementOptions<'_>) -> bool {
        if self.chains[chain.index()].nodes[node as usize].bad {
            return false;
        }
        options
            .machines
            .is_none_or(|set| set.contains(self.layout.chain(chain).machines[node as usize]))
    }

    /// Returns the work that is lost when a group is preempted.
    pub(crate) fn preemption_cost(&self, group: u32, options: &PlacementOptions<'_>) -> u64 {
        options
            .preemption_cost
            .map_or(0, |cost| cost(GroupId(group), self.group_at(group)))
    }

    /// Returns the work that is lost when all groups on some leaves are preempted.
    pub(crate) fn preemption_cost_on(
        &self,
        chain: ChainId,
        leaves: std::ops::Range<u32>,
        options: &PlacementOptions<'_>,
    ) -> u64 {
        if options.preemption_cost.is_none() {
            return 0;
        }
        let occupant = &self.chains[chain.index()].occupant[leaves.start as usize..leaves.end as usize];
        let mut groups: SmallVec<[u32; 8]> = occupant.iter().copied().filter(|o| *o != NONE).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.iter().map(|g| self.preemption_cost(*g, options)).sum()
    }
}
