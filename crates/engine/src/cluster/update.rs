//! Changes of the cluster: nodes that join and leave, and allocations.

use std::collections::BTreeSet;

use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, GpuSet, NodeConstraintId, NodeId, NodeSpec, Share};

use super::Cluster;
use super::index::FreeIndex;
use super::node::{NodeState, bit};

impl Cluster {
    /// Adds a node, or replaces one that returns empty.
    pub(crate) fn add_node(&mut self, id: NodeId, spec: NodeSpec) {
        self.unindex_node(id);
        let before = self.nodes.entry(id).take();
        let is_new = before.is_none();
        let constraints = before.as_ref().map_or(0, |n| n.constraints);
        self.lingering -= before.map_or(0, |n| n.lingering.count());
        let (proportional, kind, gpus) = (spec.proportional(), spec.gpu_type, spec.gpus);
        *self.nodes.entry(id) = Some(NodeState {
            constraints,
            ..NodeState::new(spec)
        });
        self.lacking_unavailable.remove(&id);
        self.index_node(id);
        if !is_new {
            return self.find_extremes();
        }
        // With one more node the extremes of the others still hold.
        let first = self.widest.values().all(|gpus| *gpus == 0);
        if gpus > 0 {
            self.least_share = match first {
                true => proportional,
                false => self.least_share.at_most(proportional),
            };
        }
        let widest = self.widest.entry(kind);
        *widest = (*widest).max(gpus);
    }

    /// Computes the least share and the widest nodes again.
    fn find_extremes(&mut self) {
        let with_gpus = self.nodes().map(|(_, n)| &n.spec).filter(|n| n.gpus > 0);
        self.least_share = with_gpus
            .map(NodeSpec::proportional)
            .reduce(Share::at_most)
            .unwrap_or_default();
        self.widest = IdVec::default();
        for node in self.nodes.values().flatten() {
            let widest = self.widest.entry(node.spec.gpu_type);
            *widest = (*widest).max(node.spec.gpus);
        }
    }

    /// Sets whether a node is up and whether it is draining.
    pub(crate) fn set_node(&mut self, id: NodeId, up: bool, draining: bool) {
        self.unindex_node(id);
        if let Some(node) = self.nodes.entry(id).as_mut() {
            node.up = up;
            node.draining = draining;
            if !up {
                let lost = node.lingering.count();
                node.lingering = GpuSet::empty(node.spec.gpus);
                node.also_lingering.clear();
                (node.lingering_cpu_milli, node.lingering_memory_mib) = (0, 0);
                self.lingering -= lost;
            }
        }
        self.index_node(id);
    }

    /// Sets which part of a node is unavailable, at once or as soon as it is free. Returns whether that is a change.
    pub(crate) fn set_unavailable(&mut self, id: NodeId, gpus: u32, share: Share) -> bool {
        let Some(node) = self.node(id) else { return false };
        let target = (gpus.min(node.spec.gpus), share);
        if (node.unavailable.target_gpus, node.unavailable.target_share) == target {
            return false;
        }
        let unavailable = &mut self.existing(id).unavailable;
        (unavailable.target_gpus, unavailable.target_share) = target;
        self.lacking_unavailable.insert(id);
        true
    }

    /// Sets aside what should be unavailable and has become free. Returns the nodes it looked at. Must not be called
    /// inside a draft, whose rollback could hand it out again.
    pub(crate) fn set_aside_unavailable(&mut self) -> BTreeSet<NodeId> {
        let nodes = std::mem::take(&mut self.lacking_unavailable);
        for id in nodes.iter().copied() {
            self.unindex_node(id);
            let node = self.existing(id);
            node.set_aside_unavailable();
            node.update_pressure();
            let lacks_more = node.lacks_unavailable();
            self.index_node(id);
            if lacks_more {
                self.lacking_unavailable.insert(id);
            }
        }
        nodes
    }

    /// Sets the nodes of a node constraint. Returns whether that is a change.
    pub(crate) fn set_constraint(&mut self, constraint: NodeConstraintId, nodes: &[NodeId]) -> bool {
        let before: Vec<u64> = self.nodes().map(|(_, n)| n.constraints).collect();
        for node in self.nodes.values_mut().flatten() {
            node.constraints &= !bit(constraint);
        }
        for id in nodes {
            if let Some(node) = self.nodes.entry(*id) {
                node.constraints |= bit(constraint);
            }
        }
        !self.nodes().map(|(_, n)| n.constraints).eq(before)
    }

    /// Takes what an allocation names out of what is free; with `share`, other jobs may hold its GPUs already.
    pub(crate) fn allocate(
        &mut self,
        allocation: &Allocation,
        share: bool,
        gpu_memory_mib: u64,
        preferred: Share,
    ) {
        for part in &allocation.shares {
            self.unindex_node(part.node);
            let node = self.existing(part.node);
            if share {
                for slot in part.gpus.iter().filter(|s| !node.free.contains(*s)) {
                    *node.sharers.entry(slot).or_insert(0) += 1;
                }
            } else {
                assert!(
                    node.free.covers(&part.gpus),
                    "an exclusive allocation names free GPUs only"
                );
            }
            node.use_gpu_memory(&part.gpus, gpu_memory_mib);
            node.free.remove(&part.gpus);
            node.free_gpus = node.free.count();
            node.free_cpu_milli -= part.cpu_milli;
            node.free_memory_mib -= part.memory_mib;
            node.preferred = node
                .preferred
                .plus(node.preferred_here(part.gpus.count(), preferred));
            node.update_pressure();
            self.index_node(part.node);
        }
    }

    /// Returns what an allocation names to what is free.
    pub(crate) fn release(&mut self, allocation: &Allocation, gpu_memory_mib: u64, preferred: Share) {
        for part in &allocation.shares {
            self.unindex_node(part.node);
            let node = self.existing(part.node);
            node.free_gpu_memory(&part.gpus, gpu_memory_mib);
            if node.sharers.is_empty() {
                debug_assert!(!node.free.intersects(&part.gpus), "only GPUs in use are released");
                node.free.add(&part.gpus);
            } else {
                for slot in part.gpus.iter() {
                    match node.sharers.get_mut(&slot) {
                        None => node.free.insert(slot),
                        Some(1) => drop(node.sharers.remove(&slot)),
                        Some(more) => *more -= 1,
                    }
                }
            }
            node.free_gpus = node.free.count();
            node.free_cpu_milli += part.cpu_milli;
            node.free_memory_mib += part.memory_mib;
            node.preferred = node
                .preferred
                .minus(node.preferred_here(part.gpus.count(), preferred));
            node.update_pressure();
            self.index_node(part.node);
        }
    }

    /// Returns CPU and memory of an allocation to what is free: all that exceeds another allocation of the same GPUs.
    pub(crate) fn shrink(&mut self, allocation: &Allocation, to: &Allocation) {
        for (part, kept) in allocation.shares.iter().zip(&to.shares) {
            self.unindex_node(part.node);
            let node = self.existing(part.node);
            node.free_cpu_milli += part.cpu_milli - kept.cpu_milli;
            node.free_memory_mib += part.memory_mib - kept.memory_mib;
            node.update_pressure();
            self.index_node(part.node);
        }
    }

    /// Counts an allocation with another preferred share of its job.
    pub(crate) fn change_preferred(&mut self, allocation: &Allocation, before: Share, after: Share) {
        if before == after {
            return;
        }
        for part in &allocation.shares {
            self.unindex_node(part.node);
            let node = self.existing(part.node);
            let gpus = part.gpus.count();
            let others = node.preferred.minus(node.preferred_here(gpus, before));
            node.preferred = others.plus(node.preferred_here(gpus, after));
            node.update_pressure();
            self.index_node(part.node);
        }
    }

    /// Marks the GPUs of a stopping job as lingering.
    pub(crate) fn add_lingering(&mut self, allocation: &Allocation) {
        for part in &allocation.shares {
            let node = self.existing(part.node);
            if node.up {
                let before = node.lingering.count();
                for slot in part.gpus.iter().filter(|s| node.lingering.contains(*s)) {
                    *node.also_lingering.entry(slot).or_insert(0) += 1;
                }
                node.lingering.add(&part.gpus);
                node.lingering_cpu_milli += part.cpu_milli;
                node.lingering_memory_mib += part.memory_mib;
                let more = node.lingering.count() - before;
                self.lingering += more;
            }
        }
    }

    /// Marks the GPUs of a job that has stopped as vacated.
    pub(crate) fn remove_lingering(&mut self, allocation: &Allocation) {
        for part in &allocation.shares {
            let node = self.existing(part.node);
            let before = node.lingering.count();
            let mut vacated = part.gpus.clone();
            if !node.also_lingering.is_empty() {
                vacated = GpuSet::empty(node.spec.gpus);
                for slot in part.gpus.iter() {
                    match node.also_lingering.get_mut(&slot) {
                        None => vacated.insert(slot),
                        Some(1) => drop(node.also_lingering.remove(&slot)),
                        Some(more) => *more -= 1,
                    }
                }
            }
            node.lingering.remove(&vacated);
            node.lingering_cpu_milli -= part.cpu_milli;
            node.lingering_memory_mib -= part.memory_mib;
            let fewer = before - node.lingering.count();
            self.lingering -= fewer;
        }
    }

    /// Builds the index again, after the nodes were read from a snapshot.
    pub(crate) fn rebuild_index(&mut self) {
        self.index = FreeIndex::default();
        for (id, node) in (0..).map(NodeId).zip(self.nodes.values_mut()) {
            if let Some(node) = node {
                node.update_pressure();
                self.index.insert(id, node);
            }
        }
        self.find_extremes();
    }

    fn existing(&mut self, id: NodeId) -> &mut NodeState {
        self.nodes[id]
            .as_mut()
            .expect("an allocation names nodes that joined")
    }

    fn unindex_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(id).and_then(Option::as_ref) {
            self.index.remove(id, node);
        }
    }

    fn index_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(id).and_then(Option::as_ref) {
            self.index.insert(id, node);
        }
    }
}
