//! The state of slots and views of virtual clusters.

use std::collections::{BTreeMap, BTreeSet};

use crate::NONE;
use crate::layout::{Level, SlotId};

/// A slot of a virtual cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlotState {
    /// Physical cell it is bound to.
    pub(crate) cell: u32,
    /// Guaranteed leaves in it.
    pub(crate) used: u32,
    /// Healthy nodes in it without guaranteed leaves.
    pub(crate) idle: u32,
    /// Whether it is bound to a bad cell because there are not enough healthy ones.
    pub(crate) doomed: bool,
}

impl SlotState {
    /// A slot without a physical cell.
    pub(crate) const UNBOUND: Self = Self {
        cell: NONE,
        used: 0,
        idle: 0,
        doomed: false,
    };
}

/// Usable room in one view of a virtual cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ViewState {
    /// Healthy bins that are partly used, as (free leaves, slot, level, index). Ties are broken by slot rather than by
    /// physical position, so that other virtual clusters do not influence the choice.
    pub(crate) partial: BTreeSet<(u32, u32, u8, u32)>,
    /// Bound slots with idle healthy nodes.
    pub(crate) slots_with_idle_nodes: BTreeSet<u32>,
    /// Slots that are not bound, by level.
    pub(crate) unbound: Vec<BTreeSet<u32>>,
    /// Doomed slots, by level.
    pub(crate) doomed_at: Vec<BTreeSet<u32>>,
    /// Guaranteed leaves, by priority.
    pub(crate) used_at: BTreeMap<i16, u32>,
}

impl ViewState {
    /// Returns a view of a chain with this number of levels, without slots.
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            unbound: vec![BTreeSet::new(); levels],
            doomed_at: vec![BTreeSet::new(); levels],
            ..Self::default()
        }
    }

    /// Adds a partly used bin of a slot, or removes it.
    pub(crate) fn index_bin(&mut self, slot: SlotId, free: u32, (level, index): (Level, u32), add: bool) {
        let bin = (free, slot.0, level as u8, index);
        if add {
            self.partial.insert(bin);
        } else {
            self.partial.remove(&bin);
        }
    }

    /// Adds an idle node to a slot of this view, or removes it.
    pub(crate) fn count_idle(&mut self, slot: SlotId, state: &mut SlotState, add: bool) {
        if add {
            state.idle += 1;
            if state.idle == 1 {
                self.slots_with_idle_nodes.insert(slot.0);
            }
        } else {
            state.idle -= 1;
            if state.idle == 0 {
                self.slots_with_idle_nodes.remove(&slot.0);
            }
        }
    }

    /// Adds a guaranteed leaf, or subtracts it.
    pub(crate) fn count_used(&mut self, priority: i16, add: bool) {
        let at = self.used_at.entry(priority).or_insert(0);
        if add {
            *at += 1;
        } else {
            *at -= 1;
            if *at == 0 {
                self.used_at.remove(&priority);
            }
        }
    }
}
