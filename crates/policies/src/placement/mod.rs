//! Which GPUs a job gets.

mod blox_scatter;
mod bundles;
mod complement;
mod consolidate;
mod first_free;
mod rack_aware;
mod random;
mod spread;
mod yarn;

use dovetail_engine::cluster::{Cluster, NodeState};
use dovetail_engine::{Ask, Placement};
use dovetail_model::{Allocation, NodeId, NodeShare, NodeSpec, Reason, Share};

use crate::registry::Entry;

/// All placements.
pub const ALL: &[Entry<dyn Placement>] = &[
    consolidate::ENTRY,
    spread::ENTRY,
    first_free::ENTRY,
    random::ENTRY,
    rack_aware::ENTRY,
    complement::ENTRY,
    blox_scatter::ENTRY,
    yarn::ENTRY,
];

/// Takes this many of the node's free GPUs, lowest slots first, with their CPU and memory.
pub(crate) fn share(id: NodeId, node: &NodeState, gpus: u32, ask: &Ask) -> NodeShare {
    NodeShare {
        node: id,
        gpus: node.free.lowest(gpus),
        cpu_milli: ask.cpu_milli_per_gpu * gpus,
        memory_mib: ask.memory_mib_per_gpu * u64::from(gpus),
    }
}

/// Free GPUs of the node that the request can use.
pub(crate) fn usable(node: &NodeState, ask: &Ask) -> u32 {
    if ask.gpu_type.is_some_and(|t| node.spec.gpu_type != t)
        || !node.admits(ask.constraint)
        || !node.spec.has_gpu_memory(ask.gpu_memory_mib)
    {
        return 0;
    }
    let fitting = node.fitting_gpus(ask.cpu_milli_per_gpu, ask.memory_mib_per_gpu);
    match ask.headroom {
        Some(enough) => fitting.min(node.gpus_with_headroom(ask.gpus, enough)),
        None => fitting,
    }
}

/// Whether the node has room for the whole request: as [`usable`], without a division.
pub(crate) fn has_room(node: &NodeState, ask: &Ask) -> bool {
    let free = Share::new(node.free_cpu_milli, node.free_memory_mib);
    node.free_gpus >= ask.gpus
        && ask.gpu_type.is_none_or(|t| node.spec.gpu_type == t)
        && node.admits(ask.constraint)
        && node.spec.has_gpu_memory(ask.gpu_memory_mib)
        && free.covers(Share::new(ask.cpu_milli_per_gpu, ask.memory_mib_per_gpu).times(ask.gpus))
        && ask
            .headroom
            .is_none_or(|enough| node.has_headroom(ask.gpus, enough))
}

/// GPUs of the node that the request could use if the node were empty.
pub(crate) fn usable_when_empty(node: &NodeSpec, ask: &Ask) -> u32 {
    if !node.has_gpu_memory(ask.gpu_memory_mib) {
        return 0;
    }
    let by_cpu = node
        .cpu_milli
        .checked_div(ask.cpu_milli_per_gpu)
        .unwrap_or(u32::MAX);
    let by_memory = node
        .memory_mib
        .checked_div(ask.memory_mib_per_gpu)
        .unwrap_or(u64::MAX);
    node.gpus
        .min(by_cpu)
        .min(u32::try_from(by_memory).unwrap_or(u32::MAX))
}

/// Takes GPUs from the nodes in the given order until the request is met.
pub(crate) fn take_in_order<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a NodeState)>,
    ask: &Ask,
) -> Option<Allocation> {
    if ask.gpus_per_task > 1 {
        return bundles::fill(nodes, ask);
    }
    let mut left = ask.gpus;
    let mut allocation = Allocation::default();
    for (id, node) in nodes {
        let here = usable(node, ask).min(left);
        if here > 0 {
            allocation.shares.push(share(id, node, here, ask));
            left -= here;
        }
        if left == 0 {
            allocation.shares.sort_unstable_by_key(|s| s.node);
            return Some(allocation);
        }
    }
    None
}

/// Whether enough free GPUs for the request are on nodes that it can use.
fn has_enough_usable(ask: &Ask, cluster: &Cluster) -> bool {
    let mut left = ask.gpus;
    cluster.nodes_with_any_free().any(|(_, node)| {
        left = left.saturating_sub(usable(node, ask));
        left == 0
    })
}

/// Returns the reason if GPUs are free, but too few on the nodes that the job may use.
fn excluded_by_constraint(ask: &Ask, cluster: &Cluster) -> Option<Reason> {
    ask.constraint?;
    let of_kind = |node: &NodeState| ask.gpu_type.is_none_or(|t| node.spec.gpu_type == t);
    let all = cluster.nodes().map(|(_, node)| node);
    let (mut nodes, mut free, mut excludes) = (0, 0, false);
    for node in all.filter(|n| n.up && of_kind(n)) {
        match node.admits(ask.constraint) {
            true => nodes += 1,
            false => excludes = true,
        }
        if node.is_open() && node.admits(ask.constraint) {
            free += node.free_gpus;
        }
    }
    (excludes && free < ask.gpus).then_some(Reason::NodeConstraint {
        asked: ask.gpus,
        nodes,
        free,
    })
}

/// The reason why the request does not fit although enough GPUs may be free.
pub(crate) fn no_place(ask: &Ask, cluster: &Cluster, best: u32) -> Reason {
    let free = cluster.free_gpus(ask.gpu_type);
    let with_memory = || {
        let open = cluster.nodes_with_any_free().map(|(_, node)| node);
        let fitting = open.filter(|n| {
            ask.gpu_type.is_none_or(|t| n.spec.gpu_type == t) && n.spec.has_gpu_memory(ask.gpu_memory_mib)
        });
        fitting.map(|n| n.free_gpus).sum::<u32>()
    };
    if let Some(reason) = excluded_by_constraint(ask, cluster) {
        return reason;
    }
    // A request that prefers to wait for enough CPU and memory is tried again without that, and reported then.
    let limited = ask.headroom.is_none() && (ask.cpu_milli_per_gpu > 0 || ask.memory_mib_per_gpu > 0);
    if free < ask.gpus {
        Reason::NotEnoughFreeGpus {
            asked: ask.gpus,
            free,
        }
    } else if ask.gpu_memory_mib > 0 && with_memory() < ask.gpus {
        Reason::NotEnoughGpuMemory {
            asked_mib: ask.gpu_memory_mib,
            gpus: ask.gpus,
            fitting: with_memory(),
        }
    } else if limited && !has_enough_usable(ask, cluster) {
        Reason::NotEnoughCpuOrMemory {
            cpu_milli_per_gpu: ask.cpu_milli_per_gpu,
            memory_mib_per_gpu: ask.memory_mib_per_gpu,
        }
    } else {
        Reason::Fragmented {
            asked: ask.gpus,
            free,
            best,
        }
    }
}
