//! The undo log: a decision that is rolled back leaves no trace.

use crate::group::{Downgrade, Group, GroupId, GroupState};
use crate::layout::{ChainId, SlotId};

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
pub struct Savepoint(usize);

/// The changes that can still be undone, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct UndoLog {
    records: Vec<UndoRecord>,
    /// Whether records are kept after an operation, because a caller holds a savepoint.
    is_kept: bool,
}

impl UndoLog {
    pub(crate) fn push(&mut self, record: UndoRecord) {
        self.records.push(record);
    }

    /// Returns the current position.
    pub(crate) fn position(&self) -> Savepoint {
        Savepoint(self.records.len())
    }

    /// Removes and returns the last change since a savepoint.
    pub(crate) fn pop_since(&mut self, savepoint: Savepoint) -> Option<UndoRecord> {
        if self.records.len() > savepoint.0 {
            self.records.pop()
        } else {
            None
        }
    }

    /// Keeps records after operations until [`UndoLog::clear`].
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Makes all changes final, and keeps no records after operations.
    pub(crate) fn clear(&mut self) {
        self.is_kept = false;
        self.records.clear();
    }

    /// Removes all records after a complete operation, unless a caller holds a savepoint.
    pub(crate) fn trim(&mut self) {
        if !self.is_kept {
            self.records.clear();
        }
    }
}
