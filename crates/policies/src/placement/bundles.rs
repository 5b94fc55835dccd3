//! Jobs whose GPUs come in bundles: all GPUs of a bundle are on one node.
//!
//! A node takes whole bundles. What is left over when the GPUs are no multiple of the bundle is on one node, too.

use dovetail_engine::Ask;
use dovetail_engine::cluster::{Cluster, NodeState};
use dovetail_model::{Allocation, GpuTypeId, NodeId};

use super::{share, usable};

/// What a node with so many GPUs can take of what is left: all of it, or whole bundles.
pub(super) fn piece(free: u32, left: u32, ask: &Ask) -> u32 {
    match free {
        free if free >= left => left,
        free => free - free % ask.gpus_per_task.max(1),
    }
}

/// A node, what it can give, and what it gives.
struct Seat<'a> {
    id: NodeId,
    node: &'a NodeState,
    free: u32,
    taken: u32,
}

fn seats<'a>(nodes: impl Iterator<Item = (NodeId, &'a NodeState)>, ask: &Ask) -> Vec<Seat<'a>> {
    let seat = |(id, node)| Seat {
        id,
        node,
        free: usable(node, ask),
        taken: 0,
    };
    nodes.map(seat).collect()
}

/// The allocation, once all whole bundles have a node: what is left over goes where others of the job are, if it can.
fn finish(mut seats: Vec<Seat<'_>>, left: u32, ask: &Ask) -> Option<Allocation> {
    if left >= ask.gpus_per_task {
        return None;
    }
    if left > 0 {
        let has_room = |seat: &&mut Seat<'_>| seat.free - seat.taken >= left;
        let last = seats
            .iter_mut()
            .filter(has_room)
            .max_by_key(|seat| seat.taken > 0)?;
        last.taken += left;
    }
    let given = seats.iter().filter(|seat| seat.taken > 0);
    let mut allocation = Allocation {
        shares: given.map(|s| share(s.id, s.node, s.taken, ask)).collect(),
    };
    allocation.shares.sort_unstable_by_key(|s| s.node);
    Some(allocation)
}

/// Fills the nodes in the order given.
pub(super) fn fill<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a NodeState)>,
    ask: &Ask,
) -> Option<Allocation> {
    let mut seats = seats(nodes, ask);
    let (mut left, bundle) = (ask.gpus, ask.gpus_per_task);
    for seat in &mut seats {
        seat.taken = seat.free.min(left) / bundle * bundle;
        left -= seat.taken;
    }
    finish(seats, left, ask)
}

/// One bundle after the other, each where most is free.
pub(super) fn spread<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a NodeState)>,
    ask: &Ask,
) -> Option<Allocation> {
    let mut seats = seats(nodes, ask);
    let (mut left, bundle) = (ask.gpus, ask.gpus_per_task);
    while left >= bundle {
        let most = seats
            .iter_mut()
            .max_by_key(|seat| (seat.free - seat.taken, std::cmp::Reverse(seat.id)))?;
        if most.free - most.taken < bundle {
            return None;
        }
        most.taken += bundle;
        left -= bundle;
    }
    finish(seats, left, ask)
}

/// Nodes with GPUs of a kind, those with most of them free first.
pub(super) fn emptiest(cluster: &Cluster, kind: GpuTypeId) -> impl Iterator<Item = (NodeId, &NodeState)> {
    cluster
        .levels_down(kind)
        .flat_map(move |level| cluster.nodes_with_free(kind, level))
        .filter_map(|id| cluster.node(id).map(|node| (id, node)))
}

/// One node if it can be, else the emptiest ones of one kind.
pub(super) fn on_fewest(ask: &Ask, cluster: &Cluster) -> Option<Allocation> {
    let mut kinds = cluster.types(ask.gpu_type);
    let alone = kinds.find_map(|kind| super::consolidate::on_one_node(ask, cluster, kind));
    alone.or_else(|| {
        let each = cluster.types(ask.gpu_type);
        let found = each.filter_map(|kind| fill(emptiest(cluster, kind), ask));
        found.min_by_key(Allocation::nodes)
    })
}

#[cfg(test)]
mod tests {
    use dovetail_engine::{Clock, Engine};
    use dovetail_model::{ClusterSpec, Command, Event, JobId, JobSpec, NodeSpec, Time};
    use proptest::prelude::*;

    use crate::{Overrides, build};

    /// What a job of so many GPUs in bundles gets, node by node, beside one-GPU jobs that fill up nodes of eight.
    fn place(placement: &str, free: &[u32], gpus: u32, bundle: u32) -> Option<Vec<u32>> {
        let over = Overrides {
            placement: Some(placement.to_owned()),
            ..Overrides::default()
        };
        let (policy, _) = build("fifo-backfill", &over).unwrap();
        let mut cluster = ClusterSpec::uniform(free.len() as u32, 8);
        for (node, free) in cluster.nodes.values_mut().zip(free) {
            *node = NodeSpec::plain(&node.name, *free);
        }
        let mut engine = Engine::with_cluster(policy, Clock::Events, &cluster);
        let spec = JobSpec {
            gpus_per_task: bundle,
            ..JobSpec::new(JobId(0), gpus)
        };
        engine.handle(Time::ZERO, Event::Submitted(spec));
        let commands: Vec<Command> = std::iter::from_fn(|| engine.poll()).collect();
        engine.check().unwrap();
        commands.into_iter().find_map(|command| match command {
            Command::Launch { allocation, .. } => {
                Some(allocation.shares.iter().map(|s| s.gpus.count()).collect())
            }
            _ => None,
        })
    }

    const ALL: [&str; 8] = [
        "consolidate",
        "spread",
        "first-free",
        "random",
        "rack-aware",
        "complement",
        "blox-scatter",
        "yarn",
    ];

    #[test]
    fn bundles_are_not_cut() {
        for placement in ALL {
            assert_eq!(
                place(placement, &[3, 3, 2], 4, 2).map(|p| p.iter().sum::<u32>()),
                Some(4),
                "{placement}"
            );
            assert_eq!(place(placement, &[3, 3, 3], 8, 4), None, "{placement}");
            assert_eq!(place(placement, &[5, 4], 9, 4), Some(vec![5, 4]), "{placement}");
            assert_eq!(
                place(placement, &[4, 1], 5, 4),
                Some(vec![4, 1]),
                "{placement}: the rest is alone"
            );
        }
    }

    proptest! {
        /// A place is found exactly if there is one, and it is in bundles.
        #[test]
        fn a_place_is_found_if_there_is_one(free in prop::collection::vec(1_u32..9, 1..6), bundle in 2_u32..5, whole in 1_u32..5, rest in 0_u32..4) {
            let rest = rest % bundle;
            let gpus = whole * bundle + rest;
            let slots: u32 = free.iter().map(|f| f / bundle).sum();
            let spare = slots > whole || rest == 0 || free.iter().any(|f| f % bundle >= rest);
            let possible = slots >= whole && spare;
            for placement in ALL {
                let found = place(placement, &free, gpus, bundle);
                // Consolidation insists on as few nodes as the empty cluster would need.
                if placement == "consolidate" && found.is_none() { continue; }
                prop_assert_eq!(found.is_some(), possible, "{} {:?}", placement, found);
            }
        }
    }
}
