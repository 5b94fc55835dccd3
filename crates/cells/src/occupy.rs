//! Putting a group on leaves somebody else has chosen: for callers that move groups about or take steps back.

use smallvec::SmallVec;

use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{ChainId, Level, SlotId, VcId, ViewId};
use crate::leaves::Write;
use crate::request::Request;
use crate::state::{Cells, Mark, NONE};

impl Cells {
    /// Gives a group exactly these leaves, if all are free and, for a guaranteed group, if its virtual cluster can own
    /// them without breaking a promise to others. A pod without a home gets the smallest cell that will do. Nothing is
    /// changed if it cannot be.
    pub fn occupy(&mut self, request: &Request, pods: &[Pod]) -> Option<GroupId> {
        let taken = |p: &Pod| p.leaves.iter().any(|leaf| self.owner(p.chain, *leaf).is_some());
        if pods.iter().any(taken) {
            return None;
        }
        let guaranteed = request.priority >= 0;
        let mark = Mark(self.log.len());
        if guaranteed {
            // What was doomed while the group was away must not keep it from its place; settling dooms what has to be.
            pods.iter().for_each(|pod| self.undoom_unused(pod.chain));
        }
        let id = self.add_group(Group {
            key: request.key,
            vc: request.vc,
            user: request.user,
            priority: request.priority,
            lazy: request.lazy,
            state: GroupState::Allocated,
            downgraded: guaranteed.then_some(Downgrade { by: request.key }),
            sequence: 0,
            pods: Vec::new(),
        });
        for pod in pods {
            let mut pod = pod.clone();
            pod.home = pod.home.filter(|_| guaranteed);
            if guaranteed && pod.home.is_none() {
                pod.home = self.home_for(request.vc, pod.chain, &pod.leaves);
            }
            let writes: SmallVec<[Write; 8]> = pod.leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
            let chain = pod.chain;
            self.add_pod(id, pod);
            self.write(chain, &writes);
        }
        if guaranteed && !self.restore(id, false) {
            self.rollback(mark);
            return None;
        }
        self.loosened.clear();
        self.settled();
        Some(id)
    }

    /// The same, with these slots for the cells of the pods, as far as they are not bound: for steps back.
    pub fn occupy_in(
        &mut self,
        request: &Request,
        pods: &[Pod],
        slots: &[Option<SlotId>],
    ) -> Option<GroupId> {
        for (pod, slot) in pods.iter().zip(slots) {
            if let (Some(slot), Some(leaf)) = (slot, pod.leaves.first()) {
                let level = self.layout.slots[slot.index()].level;
                let cell = self.layout.chain(pod.chain).ancestor(*leaf, 0, level);
                self.wishes.insert((pod.chain, level, cell), *slot);
            }
        }
        let found = self.occupy(request, pods);
        self.wishes.clear();
        found
    }

    /// Where leaves can belong in a virtual cluster: the cell they are in already, or the smallest it could still get.
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
