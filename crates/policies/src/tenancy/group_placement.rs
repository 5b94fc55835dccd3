//! Where a group is in its virtual cluster.

use std::collections::BTreeSet;

use dovetail_cells::{Cells, ChainId, Pod, SlotId};
use serde::{Deserialize, Serialize};

/// Leaves with their chains.
pub(super) type Leaves = BTreeSet<(ChainId, u32)>;

/// The pods of a group, and the slot of its virtual cluster that each is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupPlacement {
    pub(super) pods: Vec<Pod>,
    pub(super) slots: Vec<Option<SlotId>>,
}

impl GroupPlacement {
    pub(super) fn new(cells: &Cells, pods: &[Pod]) -> Self {
        let slot = |p: &Pod| p.leaves.first().and_then(|leaf| cells.slot_of(p.chain, *leaf));
        Self {
            pods: pods.to_vec(),
            slots: pods
                .iter()
                .map(|p| slot(p).filter(|_| p.home.is_some()))
                .collect(),
        }
    }

    /// Returns its slots, those of small pods first.
    pub(super) fn slots(&self) -> Vec<SlotId> {
        let mut all: Vec<(u32, SlotId)> = Vec::new();
        for (pod, slot) in self.pods.iter().zip(&self.slots) {
            all.extend(
                slot.filter(|s| !all.iter().any(|(_, o)| o == s))
                    .map(|s| (pod.size, s)),
            );
        }
        all.sort_by_key(|(size, _)| *size);
        all.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Whether each of its slots is still bound to the same cell, or to none.
    pub(super) fn is_available(&self, cells: &Cells) -> bool {
        let mut each = self.pods.iter().zip(&self.slots);
        each.all(|(pod, slot)| {
            slot.is_none_or(|slot| {
                let first = pod.leaves.first();
                let slot_here = first.and_then(|leaf| cells.slot_of(pod.chain, *leaf));
                slot_here == Some(slot) || (slot_here.is_none() && cells.is_unbound(slot))
            })
        })
    }
}

/// Returns the leaves of pods.
pub(super) fn leaves_of(pods: &[Pod]) -> Leaves {
    let of_pod = |p: &Pod| p.leaves.iter().map(|l| (p.chain, *l)).collect::<Vec<_>>();
    pods.iter().flat_map(of_pod).collect()
}
