//! Slots of the pods of an attempt.

use std::collections::BTreeMap;

use dovetail_cluster::place_tasks;
use dovetail_model::{Allocation, GpuSet, NodeId, NodeShare};

use super::gang::{Gang, Member, TaskSlot};
use crate::action::PodId;
use crate::pod_resources::PodResources;

/// Resources of a pod, and its uid if it exists.
pub(super) type SlotPod = (PodResources, Option<String>);

/// Assigns the GPUs of an allocation to pods: the largest pods first, each on the first node with room. Returns `None` if the pods
/// do not fit.
pub(super) fn assign_slots(mut pods: Vec<SlotPod>, allocation: &Allocation) -> Option<Vec<TaskSlot>> {
    pods.sort_by_key(|(resources, _)| std::cmp::Reverse(*resources));
    let gpus = pods.iter().map(|(resources, _)| resources.gpus);
    let places = place_tasks(gpus, allocation)?;
    let slot = |((resources, pod), (share, gpus)): (SlotPod, (usize, Vec<u32>))| TaskSlot {
        resources,
        granted: resources.share(),
        node: allocation.shares[share].node,
        gpus,
        pod,
        stray: false,
    };
    Some(pods.into_iter().zip(places).map(slot).collect())
}

/// Returns the pods that wait in the gang and fit into its vacant slots, with the indexes of the slots.
pub(super) fn fill_vacant(gang: &Gang) -> Vec<(usize, PodId)> {
    let mut waiting: Vec<&Member> = gang.waiting();
    waiting.retain(|m| !gang.has_slot(&m.id.uid));
    let mut pairs = Vec::new();
    for (index, slot) in gang.slots.iter().enumerate() {
        let fits = |m: &&Member| m.identity.resources == slot.resources;
        if let (true, Some(next)) = (gang.is_vacant(index), waiting.iter().position(fits)) {
            pairs.push((index, waiting.remove(next).id.clone()));
        }
    }
    pairs
}

/// Checks whether two slots have a GPU in common.
pub(super) fn overlap(a: &TaskSlot, b: &TaskSlot) -> bool {
    a.node == b.node && a.gpus.iter().any(|gpu| b.gpus.contains(gpu))
}

/// Returns what all slots have, node by node.
pub(super) fn allocation(slots: &[TaskSlot]) -> Allocation {
    let mut nodes: BTreeMap<NodeId, (Vec<u32>, u32, u64)> = BTreeMap::new();
    for slot in slots {
        let (gpus, cpu_milli, memory_mib) = nodes.entry(slot.node).or_default();
        gpus.extend(&slot.gpus);
        *cpu_milli += slot.granted.cpu_milli;
        *memory_mib += slot.granted.memory_mib;
    }
    let share = |(node, (gpus, cpu_milli, memory_mib)): (NodeId, (Vec<u32>, u32, u64))| {
        let mut set = GpuSet::empty(gpus.iter().max().map_or(0, |last| last + 1));
        for gpu in gpus {
            set.insert(gpu);
        }
        NodeShare {
            node,
            gpus: set,
            cpu_milli,
            memory_mib,
        }
    };
    Allocation {
        shares: nodes.into_iter().map(share).collect(),
    }
}
