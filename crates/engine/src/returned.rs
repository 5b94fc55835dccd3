//! Jobs that lived before: they come back in line with what they have had, or are found on GPUs after a restart.

use dovetail_model::{Allocation, JobId, Returned};

use crate::engine::Engine;
use crate::job::{Live, Stage};

impl Engine {
    pub(crate) fn returned(&mut self, returned: Returned) {
        let Returned { spec, past, holds } = returned;
        let id = spec.id;
        if self.state.jobs.get(id).is_some() {
            return;
        }
        self.submitted(spec);
        let job = &mut self.state.entry(id).job;
        (job.held_before, job.gpu_time_before) = (past.held, past.gpu_time);
        (job.done, job.preemptions) = (past.done, past.preemptions);
        job.first_start = past.first_start;
        if let Some((generation, allocation)) = holds {
            job.generation = generation;
            self.take_up(id, allocation);
        }
    }

    /// The job goes on where it was found. It was let in once, so admission is not asked again. If its GPUs are somebody
    /// else's, or its node is not there, it stands in line.
    fn take_up(&mut self, id: JobId, mut allocation: Allocation) {
        for share in &mut allocation.shares {
            // It runs there: what the node has lost meanwhile, or was counted otherwise, does not matter.
            if let Some(node) = self.state.cluster.node(share.node) {
                share.cpu_milli = share.cpu_milli.min(node.free_cpu_milli);
                share.memory_mib = share.memory_mib.min(node.free_memory_mib);
            }
        }
        let cluster = &self.state.cluster;
        let spec = &self.state.known(id).spec;
        let whole = (spec.min_gpus..=spec.max_gpus).contains(&allocation.gpus());
        let memory = cluster.has_room_beside(&allocation, spec.gpu_memory_mib);
        if !whole
            || !memory
            || !allocation.is_in_bundles_of(spec.gpus_per_task)
            || !cluster.is_free(&allocation)
        {
            return;
        }
        self.state.inbox.retain(|other| *other != id);
        let now = self.state.now;
        let job = &mut self.state.entry(id).job;
        (job.stage, job.live, job.held_since) = (Stage::Active, Live::Launched, now);
        job.first_start.get_or_insert(now);
        let spec = job.spec.clone();
        self.state.demand.add(&spec);
        self.state
            .hand_out(id, allocation, false, &mut *self.policy.tenancy);
        self.state.mark_stale(id);
        for other in self.policy.tenancy.decided() {
            self.state.mark_stale(other);
        }
    }
}
