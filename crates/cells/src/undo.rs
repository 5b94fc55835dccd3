//! The undo log: a decision that is rolled back leaves no trace.

use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{ChainId, SlotId};
use crate::occupancy::LeafWrite;
use crate::state::Cells;

/// A change, with what is needed to revert it.
#[derive(Debug, Clone)]
pub(crate) enum UndoRecord {
    /// Previous occupant and claimant of a leaf.
    Leaf {
        chain: ChainId,
        leaf: u32,
        occupant: u32,
        claimant: u32,
    },
    Bound(SlotId),
    /// A slot and the cell it was bound to.
    Unbound(SlotId, u32),
    /// A slot and whether it was doomed.
    Doomed(SlotId, bool),
    /// A group, and whether the table grew for it.
    GroupAdded(GroupId, bool),
    /// A group with its previous state.
    StateSet(GroupId, GroupState, Option<Downgrade>),
    GroupRemoved(GroupId, Box<Group>),
    PodAdded(GroupId),
}

/// A point in the undo log to roll back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint(pub(crate) usize);

impl Cells {
    /// Returns a point to roll back to. From now on all changes can be undone until [`Cells::commit_all`].
    pub fn savepoint(&mut self) -> Savepoint {
        self.keeps_undo_log = true;
        self.log_position()
    }

    /// Returns the current position in the undo log, for a rollback within the same operation.
    pub(crate) fn log_position(&self) -> Savepoint {
        Savepoint(self.log.len())
    }

    /// Reverts all changes since a savepoint.
    pub fn rollback(&mut self, to: Savepoint) {
        // Leaves of one chain are written in batches, which is much faster than one by one.
        let mut batch: Vec<LeafWrite> = Vec::new();
        let mut batch_chain = None;
        while self.log.len() > to.0 {
            let Some(record) = self.log.pop() else { break };
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
        self.emptied_slots.clear();
    }

    /// Makes all changes so far final and stops keeping them undoable.
    pub fn commit_all(&mut self) {
        self.keeps_undo_log = false;
        self.log.clear();
    }

    /// Clears the log after a complete operation, unless a caller holds a savepoint.
    pub(crate) fn trim_undo_log(&mut self) {
        if !self.keeps_undo_log {
            self.log.clear();
        }
    }

    fn flush(&mut self, chain: &mut Option<ChainId>, writes: &mut Vec<LeafWrite>) {
        if let Some(chain) = chain.take() {
            let length = self.log.len();
            self.write_leaves(chain, writes);
            self.log.truncate(length);
            writes.clear();
        }
    }

    fn undo(&mut self, record: UndoRecord) {
        let length = self.log.len();
        match record {
            UndoRecord::Leaf { .. } => {}
            UndoRecord::Bound(slot) => self.unbind(slot),
            UndoRecord::Unbound(slot, cell) => self.bind(slot, cell),
            UndoRecord::Doomed(slot, was_doomed) => self.set_doomed(slot, was_doomed),
            UndoRecord::GroupAdded(id, grew) => self.groups.undo_add(id, grew),
            UndoRecord::StateSet(id, state, downgraded) => {
                self.groups.set_state(id, state, downgraded);
            }
            UndoRecord::GroupRemoved(id, group) => self.groups.undo_remove(id, *group),
            UndoRecord::PodAdded(id) => self.groups.pop_pod(id),
        }
        self.log.truncate(length);
    }

    /// Adds a group without pods.
    pub(crate) fn add_group(&mut self, group: Group) -> GroupId {
        let (id, grew) = self.groups.add(group);
        self.log.push(UndoRecord::GroupAdded(id, grew));
        id
    }

    pub(crate) fn add_pod(&mut self, id: GroupId, pod: Pod) {
        self.groups.push_pod(id, pod);
        self.log.push(UndoRecord::PodAdded(id));
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

    pub(crate) fn set_doomed(&mut self, slot: SlotId, doomed: bool) {
        let spec = &self.layout.slots[slot.index()];
        let state = &mut self.slots[slot.index()];
        self.log.push(UndoRecord::Doomed(slot, state.doomed));
        if state.doomed == doomed {
            return;
        }
        state.doomed = doomed;
        let at = &mut self.views[spec.view.index()].doomed_at[spec.level];
        let count = &mut self.chains[spec.chain.index()].doomed;
        if doomed {
            at.insert(slot.0);
            *count += 1;
        } else {
            at.remove(&slot.0);
            *count -= 1;
        }
    }
}
