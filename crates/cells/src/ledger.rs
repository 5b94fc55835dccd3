//! The ledger: cells and groups, with every change recorded so that it can be undone.

use std::ops::Range;

use smallvec::SmallVec;

use crate::NONE;
use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::group_table::GroupTable;
use crate::layout::{ChainId, Layout, SlotId};
use crate::occupancy::{LeafWrite, Occupancy};
use crate::request::PlacementOptions;
use crate::undo::{Savepoint, UndoLog, UndoRecord};

/// All cells, all groups that hold or claim them, and the undo log.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) occupancy: Occupancy,
    pub(crate) groups: GroupTable,
    pub(crate) log: UndoLog,
}

impl Ledger {
    /// Returns a ledger without groups and with all machines healthy.
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            groups: GroupTable::new(layout.vcs.len()),
            occupancy: Occupancy::new(layout),
            log: UndoLog::default(),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.occupancy.layout
    }

    /// Returns the group that owns a leaf and its current priority: the claimant if there is one, else the occupant.
    pub(crate) fn owner(&self, chain: ChainId, leaf: u32) -> Option<(u32, i16)> {
        let owner = self.occupancy.chains[chain.index()].owner(leaf);
        Some((owner, self.groups.priority_of(owner)?))
    }

    /// Returns the groups that occupy some leaves, in order.
    pub(crate) fn occupants<'a>(&self, leaves: impl Iterator<Item = (ChainId, &'a [u32])>) -> Vec<GroupId> {
        let mut groups = Vec::new();
        for (chain, leaves) in leaves {
            let occupant = &self.occupancy.chains[chain.index()].occupant;
            let on_leaves = leaves.iter().map(|leaf| occupant[*leaf as usize]);
            groups.extend(on_leaves.filter(|o| *o != NONE).map(GroupId));
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Returns the groups on the leaves that a preempting group claims.
    pub(crate) fn victims(&self, id: GroupId) -> Vec<GroupId> {
        let Some(group) = self.groups.get(id) else {
            return Vec::new();
        };
        let mut found = self.occupants(group.pods.iter().map(|p| (p.chain, p.leaves.as_slice())));
        found.retain(|victim| *victim != id);
        found
    }

    /// Returns the work that is lost when a group is preempted.
    pub(crate) fn preemption_cost(&self, group: u32, options: &PlacementOptions<'_>) -> u64 {
        options
            .preemption_cost
            .map_or(0, |cost| cost(GroupId(group), self.groups.at(group)))
    }

    /// Returns the work that is lost when all groups on some leaves are preempted.
    pub(crate) fn preemption_cost_on(
        &self,
        chain: ChainId,
        leaves: Range<u32>,
        options: &PlacementOptions<'_>,
    ) -> u64 {
        if options.preemption_cost.is_none() {
            return 0;
        }
        let occupant = &self.occupancy.chains[chain.index()].occupant;
        let occupant = &occupant[leaves.start as usize..leaves.end as usize];
        let mut groups: SmallVec<[u32; 8]> = occupant.iter().copied().filter(|o| *o != NONE).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.iter().map(|g| self.preemption_cost(*g, options)).sum()
    }

    /// Binds a slot to a free physical cell.
    pub(crate) fn bind(&mut self, slot: SlotId, cell: u32) {
        self.log.push(UndoRecord::Bound(slot));
        self.occupancy.bind(slot, cell);
    }

    /// Returns the physical cell of an unused slot to the free list.
    pub(crate) fn unbind(&mut self, slot: SlotId) {
        let cell = self.occupancy.slots[slot.index()].cell;
        self.log.push(UndoRecord::Unbound(slot, cell));
        self.occupancy.unbind(slot);
    }

    /// Sets whether a slot is doomed.
    pub(crate) fn set_doomed(&mut self, slot: SlotId, is_doomed: bool) {
        let was_doomed = self.occupancy.set_doomed(slot, is_doomed);
        self.log.push(UndoRecord::Doomed(slot, was_doomed));
    }

    /// Changes leaves of one chain. Leaves of one machine should be adjacent in `writes`.
    pub(crate) fn write_leaves(&mut self, chain: ChainId, writes: &[LeafWrite]) {
        let c = &self.occupancy.chains[chain.index()];
        for (leaf, _, _) in writes {
            self.log.push(UndoRecord::Leaf {
                chain,
                leaf: *leaf,
                occupant: c.occupant[*leaf as usize],
                claimant: c.claimant[*leaf as usize],
            });
        }
        self.occupancy.write_leaves(&self.groups, chain, writes);
    }

    /// Adds a group without pods.
    pub(crate) fn add_group(&mut self, group: Group) -> GroupId {
        let (id, grew) = self.groups.add(group);
        self.log.push(UndoRecord::GroupAdded(id, grew));
        id
    }

    /// Adds a pod to a group, without writing its leaves.
    pub(crate) fn add_pod(&mut self, id: GroupId, pod: Pod) {
        self.groups.push_pod(id, pod);
        self.log.push(UndoRecord::PodAdded(id));
    }

    /// Adds a pod to a group and makes the group the occupant of its leaves.
    pub(crate) fn add_running_pod(&mut self, id: GroupId, pod: Pod) {
        let writes: SmallVec<[LeafWrite; 8]> = pod.leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
        let chain = pod.chain;
        self.add_pod(id, pod);
        if !writes.is_empty() {
            self.write_leaves(chain, &writes);
        }
    }

    pub(crate) fn set_group_state(&mut self, id: GroupId, state: GroupState, downgraded: Option<Downgrade>) {
        let (old_state, old_downgraded) = self.groups.set_state(id, state, downgraded);
        self.log.push(UndoRecord::StateSet(id, old_state, old_downgraded));
    }

    /// Removes a group that has no leaves any more.
    pub(crate) fn remove_group(&mut self, id: GroupId) {
        let group = self.groups.remove(id);
        self.log.push(UndoRecord::GroupRemoved(id, Box::new(group)));
    }

    /// Reverts all changes since a savepoint.
    pub(crate) fn rollback(&mut self, to: Savepoint) {
        // Leaves of one chain are written in batches, which is much faster than one by one.
        let mut batch: Vec<LeafWrite> = Vec::new();
        let mut batch_chain = None;
        while let Some(record) = self.log.pop_since(to) {
            if let UndoRecord::Leaf {
                chain,
                leaf,
                occupant,
                claimant,
            } = record
            {
                if batch_chain != Some(chain) {
                    self.flush(&mut batch_chain, &mut batch);
                    batch_chain = Some(chain);
                }
                batch.push((leaf, occupant, claimant));
            } else {
                self.flush(&mut batch_chain, &mut batch);
                self.undo(record);
            }
        }
        self.flush(&mut batch_chain, &mut batch);
        self.occupancy.emptied_slots.clear();
    }

    fn flush(&mut self, chain: &mut Option<ChainId>, writes: &mut Vec<LeafWrite>) {
        if let Some(chain) = chain.take() {
            self.occupancy.write_leaves(&self.groups, chain, writes);
            writes.clear();
        }
    }

    fn undo(&mut self, record: UndoRecord) {
        match record {
            UndoRecord::Leaf { .. } => {}
            UndoRecord::Bound(slot) => self.occupancy.unbind(slot),
            UndoRecord::Unbound(slot, cell) => self.occupancy.bind(slot, cell),
            UndoRecord::Doomed(slot, was_doomed) => {
                self.occupancy.set_doomed(slot, was_doomed);
            }
            UndoRecord::GroupAdded(id, grew) => self.groups.undo_add(id, grew),
            UndoRecord::StateSet(id, state, downgraded) => {
                self.groups.set_state(id, state, downgraded);
            }
            UndoRecord::GroupRemoved(id, group) => self.groups.undo_remove(id, *group),
            UndoRecord::PodAdded(id) => self.groups.pop_pod(id),
        }
    }
}
