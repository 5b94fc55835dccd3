//! Jobs whose GPUs are in bundles: all GPUs of a bundle are on one node.
//!
//! A node takes whole bundles. If the GPUs are not a multiple of the bundle, the remainder is on one node, too.

use dovetail_engine::Ask;
use dovetail_engine::cluster::{Cluster, NodeState};
use dovetail_model::{Allocation, GpuTypeId, NodeId};

use super::{share, usable};

/// What a node with this many free GPUs can take of what is left: all of it, or whole bundles.
pub(super) fn piece(free: u32, left: u32, ask: &Ask) -> u32 {
    match free {
        free if free >= left => left,
        free => free - free % ask.gpus_per_task.max(1),
    }
}

/// A node, its usable GPUs, and how many of them are taken.
struct NodeOffer<'a> {
    id: NodeId,
    node: &'a NodeState,
    free: u32,
    taken: u32,
}

fn offers<'a>(nodes: impl Iterator<Item = (NodeId, &'a NodeState)>, ask: &Ask) -> Vec<NodeOffer<'a>> {
    let offer = |(id, node)| NodeOffer {
        id,
        node,
        free: usable(node, ask),
        taken: 0,
    };
    nodes.map(offer).collect()
}

/// The allocation once all whole bundles have a node: the remainder is placed beside others of the job if possible.
fn finish(mut offers: Vec<NodeOffer<'_>>, left: u32, ask: &Ask) -> Option<Allocation> {
    if left >= ask.gpus_per_task {
        return None;
    }
    if left > 0 {
        let has_room = |offer: &&mut NodeOffer<'_>| offer.free - offer.taken >= left;
        let last = offers
            .iter_mut()
            .filter(has_room)
            .max_by_key(|offer| offer.taken > 0)?;
        last.taken += left;
    }
    let given = offers.iter().filter(|offer| offer.taken > 0);
    let mut allocation = Allocation {
        shares: given.map(|s| share(s.id, s.node, s.taken, ask)).collect(),
    };
    allocation.shares.sort_unstable_by_key(|s| s.node);
    Some(allocation)
}

/// Fills the nodes in the given order.
pub(super) fn fill<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a NodeState)>,
    ask: &Ask,
) -> Option<Allocation> {
    let mut offers = offers(nodes, ask);
    let (mut left, bundle) = (ask.gpus, ask.gpus_per_task);
    for offer in &mut offers {
        offer.taken = offer.free.min(left) / bundle * bundle;
        left -= offer.taken;
    }
    finish(offers, left, ask)
}

/// Places one bundle after the other, each on the node with the most free GPUs.
pub(super) fn spread<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a NodeState)>,
    ask: &Ask,
) -> Option<Allocation> {
    let mut offers = offers(nodes, ask);
    let (mut left, bundle) = (ask.gpus, ask.gpus_per_task);
    while left >= bundle {
        let most = offers
            .iter_mut()
            .max_by_key(|offer| (offer.free - offer.taken, std::cmp::Reverse(offer.id)))?;
        if most.free - most.taken < bundle {
            return None;
        }
        most.taken += bundle;
        left -= bundle;
    }
    finish(offers, left, ask)
}

/// Nodes with GPUs of a type, those with the most free GPUs first.
pub(super) fn emptiest(cluster: &Cluster, kind: GpuTypeId) -> impl Iterator<Item = (NodeId, &NodeState)> {
    cluster
        .levels_down(kind)
        .flat_map(move |level| cluster.nodes_with_free(kind, level))
        .filter_map(|id| cluster.node(id).map(|node| (id, node)))
}

/// One node if possible, else the emptiest ones of one GPU type.
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
    use dovetail_model::{ClusterSpec, Command, Event, JobKey, JobSpec, NodeSpec, Time};
    use proptest::prelude::*;

    use crate::registry::PLACEMENTS;
    use crate::{Overrides, build};

    /// GPUs by node of a job of this many GPUs in bundles, beside one-GPU jobs that fill nodes of eight.
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
            ..JobSpec::new(JobKey(0), gpus)
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

    fn placements() -> impl Iterator<Item = &'static str> {
        PLACEMENTS.iter().map(|entry| entry.name)
    }

    #[test]
    fn bundles_are_not_split() {
        for placement in placements() {
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
                "{placement}: the remainder is on a node of its own"
            );
        }
    }

    proptest! {
        /// Bundles are placed exactly if they fit.
        #[test]
        fn bundles_are_placed_exactly_if_they_fit(free in prop::collection::vec(1_u32..9, 1..6), bundle in 2_u32..5, whole in 1_u32..5, rest in 0_u32..4) {
            let rest = rest % bundle;
            let gpus = whole * bundle + rest;
            let slots: u32 = free.iter().map(|f| f / bundle).sum();
            let spare = slots > whole || rest == 0 || free.iter().any(|f| f % bundle >= rest);
            let possible = slots >= whole && spare;
            for placement in placements() {
                let found = place(placement, &free, gpus, bundle);
                // Consolidation requires as few nodes as the empty cluster would need.
                if placement == "consolidate" && found.is_none() { continue; }
                prop_assert_eq!(found.is_some(), possible, "{} {:?}", placement, found);
            }
        }
    }
}
