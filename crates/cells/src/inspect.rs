//! Read access to single cells, slots and machines.

use crate::NONE;
use crate::cells::Cells;
use crate::group::{Group, GroupId};
use crate::layout::{ChainId, Layout, Level, MachineId, SlotId, VcId};
use crate::request::{PlacementOptions, Request, WaitReason};

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
    /// Returns the compiled configuration.
    pub fn layout(&self) -> &Layout {
        self.ledger.layout()
    }

    /// Returns a group.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.ledger.groups.get(id)
    }

    /// Returns all groups that hold or claim cells.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.ledger.groups.iter()
    }

    /// Returns the groups on the leaves that a preempting group claims.
    pub fn victims(&self, id: GroupId) -> Vec<GroupId> {
        self.ledger.victims(id)
    }

    /// Returns the groups on a leaf.
    pub fn leaf_use(&self, chain: ChainId, leaf: u32) -> LeafUse {
        let c = &self.ledger.occupancy.chains[chain.index()];
        LeafUse {
            using: some(c.occupant[leaf as usize]).map(GroupId),
            claimed: some(c.claimant[leaf as usize]).map(GroupId),
        }
    }

    /// Whether a cell has a bad machine.
    pub fn has_bad_machine(&self, chain: ChainId, level: Level, index: u32) -> bool {
        self.ledger.occupancy.is_bad(chain, level, index)
    }

    /// Whether a machine is healthy.
    pub fn is_healthy(&self, machine: MachineId) -> bool {
        let nodes = &self.layout().machines[machine.index()].nodes;
        nodes
            .iter()
            .all(|(c, n)| !self.ledger.occupancy.chains[c.index()].nodes[*n as usize].bad)
    }

    /// Whether a cell is in the free list: nothing is bound in it, and it is the largest such cell.
    pub fn is_listed(&self, chain: ChainId, level: Level, index: u32) -> bool {
        let buddy = &self.ledger.occupancy.chains[chain.index()].buddy;
        buddy.is_listed(self.layout().chain(chain), level, index)
    }

    /// Returns for each level of a chain the free cells beyond those that virtual clusters own and do not use. As long as
    /// none is negative, every virtual cluster can get the cells it owns.
    pub fn slack_of(&self, chain: ChainId) -> Vec<i64> {
        self.ledger.occupancy.slack(chain).to_vec()
    }

    /// Returns the slot bound to exactly this cell.
    pub fn slot_at(&self, chain: ChainId, level: Level, index: u32) -> Option<SlotId> {
        some(self.ledger.occupancy.chains[chain.index()].buddy.levels[level].bound[index as usize])
            .map(SlotId)
    }

    /// Returns the slot that a leaf belongs to, if it is in a bound cell.
    pub fn slot_of(&self, chain: ChainId, leaf: u32) -> Option<SlotId> {
        self.ledger.occupancy.slot_over(chain, 0, leaf)
    }

    /// Returns the physical cell that a slot is bound to.
    pub fn cell_of(&self, slot: SlotId) -> Option<u32> {
        some(self.ledger.occupancy.slots[slot.index()].cell)
    }

    /// Whether a slot has no physical cell.
    pub fn is_unbound(&self, slot: SlotId) -> bool {
        self.ledger.occupancy.slots[slot.index()].cell == NONE
    }

    /// Returns the guaranteed groups that run as borrowers.
    pub fn downgraded(&self) -> impl Iterator<Item = GroupId> + '_ {
        let all = self.ledger.groups.downgraded.iter().flatten();
        all.map(|(_, id)| GroupId(*id))
    }

    /// Returns the leaves of a virtual cluster that guaranteed groups hold, and the leaves it owns.
    pub fn usage(&self, vc: VcId) -> (u32, u32) {
        let slots = &self.layout().vcs[vc.index()].slots;
        let used = slots
            .iter()
            .map(|s| self.ledger.occupancy.slots[s.index()].used)
            .sum();
        (used, self.layout().leaves_of(vc))
    }

    /// Checks that a user stays within the limit of the virtual cluster with this request.
    ///
    /// # Errors
    /// The limit, and what the user holds.
    pub fn check_user_limit(&self, request: &Request) -> Result<(), WaitReason> {
        let vc = (request.vc, &self.layout().vcs[request.vc.index()]);
        let groups = &self.ledger.groups;
        groups.check_user_limit(vc, request.user, request.priority, request.leaves())
    }

    /// Whether a node is healthy and the options allow its machine.
    pub fn is_node_allowed(&self, chain: ChainId, node: u32, options: &PlacementOptions<'_>) -> bool {
        self.ledger.occupancy.is_node_allowed(chain, node, options)
    }
}
