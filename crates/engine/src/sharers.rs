//! Who is on which GPU, kept up to date for groupings that put a job beside others.

use dovetail_model::sharing::{Member, Slowdowns};
use dovetail_model::{Allocation, IdVec, JobId, NodeId};
use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::job::Job;
use crate::state::State;

/// The jobs meant to be on each slot, in the order they came.
type Slots = Vec<SmallVec<[JobId; 2]>>;

/// The jobs on every slot of every node. Empty under a policy that never asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occupants {
    pub(crate) kept: bool,
    nodes: IdVec<NodeId, Slots>,
}

impl Occupants {
    pub(crate) fn come(&mut self, job: JobId, allocation: &Allocation) {
        if self.kept {
            self.each(allocation, |here| here.push(job));
        }
    }

    pub(crate) fn go(&mut self, job: JobId, allocation: &Allocation) {
        if self.kept {
            self.each(allocation, |here| here.retain(|other| *other != job));
        }
    }

    fn each(&mut self, allocation: &Allocation, change: impl Fn(&mut SmallVec<[JobId; 2]>)) {
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

    /// Everyone on a node, each once, by id.
    pub(crate) fn on_node(&self, node: NodeId) -> SmallVec<[JobId; 16]> {
        let slots = self.nodes.get(node);
        let mut here: SmallVec<[JobId; 16]> = slots.into_iter().flatten().flatten().copied().collect();
        here.sort_unstable();
        here.dedup();
        here
    }

    fn on(&self, node: NodeId, slot: u32) -> &[JobId] {
        let slots = self.nodes.get(node);
        slots.and_then(|s| s.get(slot as usize)).map_or(&[], |here| here)
    }
}

/// What a grouping sees when it looks for a place beside others.
#[derive(Debug, Clone, Copy)]
pub struct Sharers<'a> {
    state: &'a State,
}

impl<'a> Sharers<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        Self { state }
    }

    /// The nodes, and what is free on them.
    pub fn cluster(&self) -> &'a Cluster {
        &self.state.cluster
    }

    /// The jobs meant to be on a GPU, in the order they came.
    pub fn on(&self, node: NodeId, slot: u32) -> &'a [JobId] {
        self.state.occupants.on(node, slot)
    }

    /// A job that lives.
    pub fn job(&self, id: JobId) -> &'a Job {
        self.state.known(id)
    }

    /// What was measured of pairs.
    pub fn slowdowns(&self) -> &'a Slowdowns {
        &self.state.slowdowns
    }
}

impl Job {
    /// What decides how it bears company.
    pub fn member(&self) -> Member {
        Member {
            model: self.spec.model,
            gpus: self.width(),
            stages: self.spec.stages,
        }
    }
}
