//! Which jobs are on which GPU, tracked for groupings that place a job beside others.

use dovetail_model::sharing::{Member, Slowdowns};
use dovetail_model::{Allocation, IdVec, JobKey, NodeId};
use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::job::Job;
use crate::state::State;

/// The jobs placed on each GPU slot of a node, in the order in which they were placed.
type Slots = Vec<SmallVec<[JobKey; 2]>>;

/// The jobs on every slot of every node. Stays empty under a policy that does not need it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occupants {
    pub(crate) tracked: bool,
    nodes: IdVec<NodeId, Slots>,
}

impl Occupants {
    pub(crate) fn add(&mut self, job: JobKey, allocation: &Allocation) {
        if self.tracked {
            self.for_each_slot(allocation, |jobs| jobs.push(job));
        }
    }

    pub(crate) fn remove(&mut self, job: JobKey, allocation: &Allocation) {
        if self.tracked {
            self.for_each_slot(allocation, |jobs| jobs.retain(|other| *other != job));
        }
    }

    fn for_each_slot(&mut self, allocation: &Allocation, change: impl Fn(&mut SmallVec<[JobKey; 2]>)) {
        for share in &allocation.shares {
            let slots = self.nodes.entry(share.node);
            for slot in share.gpus.iter() {
                if slots.len() <= slot as usize {
                    slots.resize_with(slot as usize + 1, SmallVec::new);
                }
                change(&mut slots[slot as usize]);
            }
        }
    }

    /// Returns the jobs on a node, each once, by key.
    pub(crate) fn on_node(&self, node: NodeId) -> SmallVec<[JobKey; 16]> {
        let slots = self.nodes.get(node);
        let mut jobs: SmallVec<[JobKey; 16]> = slots.into_iter().flatten().flatten().copied().collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    fn on_slot(&self, node: NodeId, slot: u32) -> &[JobKey] {
        let slots = self.nodes.get(node);
        slots.and_then(|s| s.get(slot as usize)).map_or(&[], |jobs| jobs)
    }
}

/// The view of a grouping that looks for a placement beside other jobs.
#[derive(Debug, Clone, Copy)]
pub struct Occupancy<'a> {
    state: &'a State,
}

impl<'a> Occupancy<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        Self { state }
    }

    /// Returns the nodes and what is free on them.
    pub fn cluster(&self) -> &'a Cluster {
        &self.state.cluster
    }

    /// Returns the jobs placed on a GPU, in the order in which they were placed.
    pub fn jobs_on(&self, node: NodeId, slot: u32) -> &'a [JobKey] {
        self.state.occupants.on_slot(node, slot)
    }

    /// Returns an unfinished job.
    ///
    /// # Panics
    /// Panics if the job has ended.
    pub fn job(&self, id: JobKey) -> &'a Job {
        self.state.job(id)
    }

    /// Returns the measured slowdowns of pairs of jobs.
    pub fn slowdowns(&self) -> &'a Slowdowns {
        &self.state.slowdowns
    }
}

impl Job {
    /// Returns the properties that determine how fast the job runs beside others.
    pub fn member(&self) -> Member {
        Member {
            model: self.spec.model,
            gpus: self.width(),
            stages: self.spec.stages,
        }
    }
}
