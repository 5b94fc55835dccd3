//! Places a group on given leaves, for callers that choose leaves themselves or put a group back.

use smallvec::SmallVec;

use crate::group::{Downgrade, Group, GroupId, Pod};
use crate::layout::{ChainId, Level, SlotId, VcId, ViewId};
use crate::occupancy::LeafWrite;
use crate::request::Request;
use crate::state::{Cells, NONE};

impl Cells {
    /// Gives a group exactly these leaves, if all are free and, for a guaranteed group, if all virtual clusters can still
    /// get the cells they own. A pod without a home gets the smallest suitable cell. Returns `None`, with nothing changed,
    /// if it is not possible.
    pub fn occupy(&mut self, request: &Request, pods: &[Pod]) -> Option<GroupId> {
        let is_taken = |p: &Pod| p.leaves.iter().any(|leaf| self.owner(p.chain, *leaf).is_some());
        if pods.iter().any(is_taken) {
            return None;
        }
        let guaranteed = request.priority >= 0;
        let start = self.log_position();
        if guaranteed {
            // Slots doomed while the group was away must not block its place; restoring it dooms them again if needed.
            pods.iter().for_each(|pod| self.undoom_unused(pod.chain));
        }
        let id = self.add_group(Group {
            downgraded: guaranteed.then_some(Downgrade { by: request.key }),
            ..request.new_group()
        });
        for pod in pods {
            let mut pod = pod.clone();
            pod.home = pod.home.filter(|_| guaranteed);
            if guaranteed && pod.home.is_none() {
                pod.home = self.home_for(request.vc, pod.chain, &pod.leaves);
            }
            let writes: SmallVec<[LeafWrite; 8]> =
                pod.leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
            let chain = pod.chain;
            self.add_pod(id, pod);
            self.write_leaves(chain, &writes);
        }
        if guaranteed && !self.restore(id, false) {
            self.rollback(start);
            return None;
        }
        self.emptied_slots.clear();
        self.trim_undo_log();
        Some(id)
    }

    /// Like [`Cells::occupy`], but prefers these slots for the cells of the pods. A group that is put back gets the same
    /// slots again.
    pub fn occupy_in_slots(
        &mut self,
        request: &Request,
        pods: &[Pod],
        slots: &[Option<SlotId>],
    ) -> Option<GroupId> {
        for (pod, slot) in pods.iter().zip(slots) {
            if let (Some(slot), Some(leaf)) = (slot, pod.leaves.first()) {
                let level = self.layout.slots[slot.index()].level;
                let cell = self.layout.chain(pod.chain).ancestor(*leaf, 0, level);
                self.preferred_slots.insert((pod.chain, level, cell), *slot);
            }
        }
        let found = self.occupy(request, pods);
        self.preferred_slots.clear();
        found
    }

    /// Returns where leaves can belong in a virtual cluster: the slot they are in, or the smallest cell it can still get.
    fn home_for(&self, vc: VcId, chain: ChainId, leaves: &[u32]) -> Option<(ViewId, Level)> {
        let first = *leaves.first()?;
        if let Some(slot) = self.slot_over(chain, 0, first) {
            let spec = &self.layout.slots[slot.index()];
            return (spec.vc == vc).then_some((spec.view, spec.level));
        }
        let view = *self.layout.vcs[vc.index()].views.get(&chain)?;
        let layout = self.layout.chain(chain);
        let level = (0..=layout.top()).find(|level| {
            let cell = first / layout.leaves[*level];
            !self.views[view.index()].unbound[*level].is_empty()
                && leaves.iter().all(|leaf| leaf / layout.leaves[*level] == cell)
                && self.in_free_area(chain, *level, cell)
        })?;
        Some((view, level))
    }
}
