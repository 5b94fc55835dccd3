//! The nodes and what is free on them.

mod index;
mod node;
mod update;

use std::collections::BTreeSet;

use dovetail_model::ids::IdVec;
use dovetail_model::{
    Allocation, GpuTypeId, JobSpec, NodeConstraintId, NodeId, NodeShare, NodeSpec, Share, Zone, ZoneId,
};
use serde::{Deserialize, Serialize};

use crate::node_set::NodeSet;
use index::FreeIndex;
pub use node::{NodeState, millionths};

/// All nodes. Free here means that no job is *placed* there; what stopping jobs still use is tracked separately as
/// lingering.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cluster {
    nodes: IdVec<NodeId, Option<NodeState>>,
    /// The tree above the nodes.
    pub zones: IdVec<ZoneId, Zone>,
    #[serde(skip)]
    index: FreeIndex,
    /// GPUs that stopping jobs have not vacated.
    lingering: u32,
    /// Nodes on which jobs still hold something that should be unavailable.
    #[serde(default, alias = "owing")]
    lacking_unavailable: BTreeSet<NodeId>,
    /// The smallest proportional share of any node.
    #[serde(skip)]
    least_share: Share,
    /// GPUs of the largest node with each type of GPU.
    #[serde(skip)]
    widest: IdVec<GpuTypeId, u32>,
}

impl Cluster {
    /// Returns the CPU and memory per GPU of a proportional division, each on the node that has least of it.
    pub fn least_share(&self) -> Share {
        self.least_share
    }

    /// Returns the number of GPUs of the largest node whose GPUs the job may use.
    pub fn widest_for(&self, job: &JobSpec) -> u32 {
        let may_use = |node: &NodeSpec| job.gpu_type.is_none_or(|kind| node.gpu_type == kind);
        match job.gpu_type {
            _ if job.gpu_memory_mib > 0 => {
                let nodes = self.nodes().map(|(_, n)| &n.spec).filter(|n| may_use(n));
                let fitting = nodes.filter(|n| n.has_gpu_memory(job.gpu_memory_mib));
                fitting.map(|n| n.gpus).max().unwrap_or(0)
            }
            Some(kind) => self.widest.get(kind).copied().unwrap_or(0),
            None => self.widest.values().copied().max().unwrap_or(0),
        }
    }

    /// Returns the node, if it ever joined.
    pub fn node(&self, id: NodeId) -> Option<&NodeState> {
        self.nodes.get(id)?.as_ref()
    }

    /// Whether the node accepts new jobs.
    pub fn is_open(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(NodeState::is_open)
    }

    /// Returns every node that ever joined.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeState)> {
        self.nodes
            .iter()
            .filter_map(|(id, n)| n.as_ref().map(|n| (id, n)))
    }

    /// Returns the number of free GPUs on open nodes, of one type or of all.
    pub fn free_gpus(&self, gpu_type: Option<GpuTypeId>) -> u32 {
        match gpu_type {
            None => self.index.free,
            Some(t) => self.index.pools.get(t).map_or(0, |p| p.free),
        }
    }

    /// Returns the number of GPUs on open nodes, of one type or of all.
    pub fn total_gpus(&self, gpu_type: Option<GpuTypeId>) -> u32 {
        match gpu_type {
            None => self.index.total,
            Some(t) => self.index.pools.get(t).map_or(0, |p| p.total),
        }
    }

    /// Returns the number of free GPUs on partly used open nodes.
    pub fn fragmented_gpus(&self) -> u32 {
        self.index.fragments
    }

    /// Returns the number of GPUs that stopping jobs have not vacated.
    pub fn lingering_gpus(&self) -> u32 {
        self.lingering
    }

    /// Returns the GPU types a job may use.
    pub fn types(&self, gpu_type: Option<GpuTypeId>) -> impl Iterator<Item = GpuTypeId> + use<> {
        let known = self.index.pools.len() as u32;
        let range = match gpu_type {
            Some(t) => t.0.min(known)..t.0.saturating_add(1).min(known),
            None => 0..known,
        };
        range.map(GpuTypeId)
    }

    /// Returns the largest number of free GPUs on one open node.
    pub fn most_free(&self, gpu_type: Option<GpuTypeId>) -> u32 {
        self.types(gpu_type)
            .filter_map(|t| self.index.pools[t].level_below(u32::MAX))
            .max()
            .unwrap_or(0)
    }

    /// Returns the distinct numbers of free GPUs of open nodes, from `from` up.
    pub fn levels_from(&self, gpu_type: GpuTypeId, from: u32) -> impl Iterator<Item = u32> + '_ {
        let pool = self.index.pools.get(gpu_type);
        let next = move |from| pool.and_then(|p| p.level_from(from));
        std::iter::successors(next(from), move |level| next(level + 1))
    }

    /// Returns the distinct numbers of free GPUs of open nodes, largest first, down to one.
    pub fn levels_down(&self, gpu_type: GpuTypeId) -> impl Iterator<Item = u32> + '_ {
        let pool = self.index.pools.get(gpu_type);
        let next = move |below| pool.and_then(|p| p.level_below(below)).filter(|level| *level > 0);
        std::iter::successors(next(u32::MAX), move |level| next(*level))
    }

    /// Returns the open nodes of one GPU type with exactly `free` free GPUs, lowest id first.
    pub fn nodes_with_free(&self, gpu_type: GpuTypeId, free: u32) -> impl Iterator<Item = NodeId> + '_ {
        let pool = self.index.pools.get(gpu_type);
        let nodes = pool.and_then(|p| p.with_free(free));
        nodes.map(NodeSet::iter).unwrap_or_default()
    }

    /// Returns the open nodes with any free GPU, lowest id first.
    pub fn nodes_with_any_free(&self) -> impl Iterator<Item = (NodeId, &NodeState)> + '_ {
        self.index
            .with_free
            .iter()
            .filter_map(|id| self.node(id).map(|n| (id, n)))
    }

    /// Returns the memory of the smallest GPU that ever joined, in MiB; none if no node declares it.
    pub fn least_gpu_memory_mib(&self) -> Option<u64> {
        let declared = self.nodes().map(|(_, n)| n.spec.gpu_memory_mib);
        declared.filter(|mib| *mib > 0).min()
    }

    /// Whether all GPUs, CPU and memory of the allocation are free, on available nodes.
    pub fn is_free(&self, allocation: &Allocation) -> bool {
        allocation.shares.iter().all(|part| {
            self.node(part.node).is_some_and(|n| {
                n.up && n.free.covers(&part.gpus)
                    && n.free_cpu_milli >= part.cpu_milli
                    && n.free_memory_mib >= part.memory_mib
            })
        })
    }

    /// Whether all nodes of the allocation are up.
    pub(crate) fn is_up(&self, allocation: &Allocation) -> bool {
        let mut nodes = allocation.shares.iter().map(|part| self.node(part.node));
        nodes.all(|node| node.is_some_and(|n| n.up))
    }

    /// Whether a job with this node constraint may have these GPUs.
    pub fn admits(&self, allocation: &Allocation, constraint: Option<NodeConstraintId>) -> bool {
        let mut nodes = allocation.shares.iter().map(|part| self.node(part.node));
        constraint.is_none() || nodes.all(|node| node.is_some_and(|n| n.admits(constraint)))
    }

    /// Whether some of these GPUs are unavailable.
    pub(crate) fn is_unavailable(&self, allocation: &Allocation) -> bool {
        allocation.shares.iter().any(|part| {
            self.node(part.node)
                .is_some_and(|n| part.gpus.iter().any(|slot| n.is_unavailable(slot)))
        })
    }

    /// Whether CPU, memory and GPU memory suffice for one more job on these GPUs, which other jobs hold.
    pub(crate) fn has_room_beside(&self, allocation: &Allocation, gpu_memory_mib: u64) -> bool {
        allocation.shares.iter().all(|part| {
            self.node(part.node).is_some_and(|n| {
                n.free_cpu_milli >= part.cpu_milli
                    && n.free_memory_mib >= part.memory_mib
                    && !part.gpus.iter().any(|s| n.is_unavailable(s))
                    && (gpu_memory_mib == 0 || part.gpus.iter().all(|s| n.has_gpu_memory(s, gpu_memory_mib)))
            })
        })
    }

    /// Returns the smallest and the largest number of jobs on one of these GPUs, all of which are held.
    pub(crate) fn holders_of(&self, allocation: &Allocation) -> (u32, u32) {
        let mut range = (u32::MAX, 0);
        for part in &allocation.shares {
            let Some(node) = self.node(part.node) else {
                continue;
            };
            if node.has_sharers() {
                for held in part.gpus.iter().map(|slot| node.holders(slot)) {
                    range = (range.0.min(held), range.1.max(held));
                }
            } else {
                range = (range.0.min(1), range.1.max(1));
            }
        }
        range
    }

    /// Returns how many GPUs of an allocation stopping jobs have not vacated.
    pub(crate) fn lingering_in(&self, allocation: &Allocation) -> u32 {
        if self.lingering == 0 {
            return 0;
        }
        let lingering = |part: &NodeShare| {
            self.node(part.node).map_or(0, |n| {
                part.gpus.iter().filter(|s| n.lingering.contains(*s)).count() as u32
            })
        };
        allocation.shares.iter().map(lingering).sum()
    }

    /// Whether no stopping job still uses GPUs, CPU or memory of the allocation.
    pub(crate) fn is_vacated(&self, allocation: &Allocation) -> bool {
        if self.lingering == 0 {
            return true;
        }
        self.lingering_in(allocation) == 0
            && allocation.shares.iter().all(|part| {
                self.node(part.node).is_some_and(|n| {
                    (part.cpu_milli == 0 || n.lingering_cpu_milli <= n.free_cpu_milli)
                        && (part.memory_mib == 0 || n.lingering_memory_mib <= n.free_memory_mib)
                })
            })
    }
}
