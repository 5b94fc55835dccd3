//! Places a group on given leaves, for callers that choose leaves themselves or put a group back.

use crate::group::{Downgrade, Group, GroupId, Pod};
use crate::health::DoomedSlots;
use crate::layout::{ChainId, Layout, Level, SlotId, VcId, ViewId};
use crate::ledger::Ledger;
use crate::occupancy::Occupancy;
use crate::request::Request;
use crate::restore::{PreferredSlots, Restoration};

/// Gives a group exactly these leaves. Returns `None`, with nothing changed, if it is not possible.
pub(crate) fn occupy(
    ledger: &mut Ledger,
    request: &Request,
    pods: &[Pod],
    preferred: PreferredSlots,
) -> Option<GroupId> {
    let is_taken = |p: &Pod| p.leaves.iter().any(|leaf| ledger.owner(p.chain, *leaf).is_some());
    if pods.iter().any(is_taken) {
        return None;
    }
    let guaranteed = request.priority >= 0;
    let start = ledger.log.position();
    if guaranteed {
        // Slots doomed while the group was away must not block its place; restoring it dooms them again if needed.
        for pod in pods {
            let chain = pod.chain;
            DoomedSlots { ledger, chain }.free_unused();
        }
    }
    let id = ledger.add_group(Group {
        downgraded: guaranteed.then_some(Downgrade { by: request.key }),
        ..request.new_group()
    });
    for pod in pods {
        let mut pod = pod.clone();
        pod.home = pod.home.filter(|_| guaranteed);
        if guaranteed && pod.home.is_none() {
            pod.home = home_for(&ledger.occupancy, request.vc, pod.chain, &pod.leaves);
        }
        ledger.add_running_pod(id, pod);
    }
    if guaranteed && !Restoration::new(ledger, id).preferring(preferred).run() {
        ledger.rollback(start);
        return None;
    }
    ledger.occupancy.emptied_slots.clear();
    Some(id)
}

/// Returns the cells of pods with the slots that they should be bound to.
pub(crate) fn preferred_slots(layout: &Layout, pods: &[Pod], slots: &[Option<SlotId>]) -> PreferredSlots {
    let mut preferred = PreferredSlots::new();
    for (pod, slot) in pods.iter().zip(slots) {
        if let (Some(slot), Some(leaf)) = (slot, pod.leaves.first()) {
            let level = layout.slots[slot.index()].level;
            let cell = layout.chain(pod.chain).ancestor(*leaf, 0, level);
            preferred.insert((pod.chain, level, cell), *slot);
        }
    }
    preferred
}

/// Returns where leaves can belong in a virtual cluster: the slot they are in, or the smallest cell it can still get.
fn home_for(occupancy: &Occupancy, vc: VcId, chain: ChainId, leaves: &[u32]) -> Option<(ViewId, Level)> {
    let first = *leaves.first()?;
    if let Some(slot) = occupancy.slot_over(chain, 0, first) {
        let spec = &occupancy.layout.slots[slot.index()];
        return (spec.vc == vc).then_some((spec.view, spec.level));
    }
    let view = *occupancy.layout.vcs[vc.index()].views.get(&chain)?;
    let layout = occupancy.layout.chain(chain);
    let level = (0..=layout.top()).find(|level| {
        let cell = first / layout.leaves[*level];
        !occupancy.views[view.index()].unbound[*level].is_empty()
            && leaves.iter().all(|leaf| leaf / layout.leaves[*level] == cell)
            && occupancy.is_free(chain, *level, cell)
    })?;
    Some((view, level))
}
