//! Spread: one GPU at a time from the node with the most free, so that load and risk are even.

use std::collections::BTreeMap;

use dovetail_engine::cluster::Cluster;
use dovetail_engine::{Ask, Part, Placement};
use dovetail_model::{Allocation, NodeId, Reason};

use super::{no_place, share, usable};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "spread",
    what: "one GPU at a time from the node with the most free",
    source: "rule",
    key: "most free GPUs left, then lowest node",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Spread)),
};

/// Even load.
#[derive(Debug, Clone)]
struct Spread;

impl Part for Spread {
    fn name(&self) -> String {
        "spread".to_owned()
    }
}

impl Placement for Spread {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        if ask.gpus_per_task > 1 {
            return super::bundles::spread(cluster.nodes_with_any_free(), ask)
                .ok_or_else(|| no_place(ask, cluster, cluster.most_free(ask.gpu_type)));
        }
        // The emptiest nodes are enough: no job needs more nodes than GPUs.
        let mut nodes: Vec<(NodeId, u32)> = cluster
            .types(ask.gpu_type)
            .flat_map(|kind| {
                cluster
                    .levels_down(kind)
                    .flat_map(move |l| cluster.nodes_with_free(kind, l))
            })
            .filter_map(|id| Some((id, usable(cluster.node(id)?, ask))))
            .filter(|(_, free)| *free > 0)
            .take(if cluster.types(ask.gpu_type).count() == 1 {
                ask.gpus as usize
            } else {
                usize::MAX
            })
            .collect();
        let mut taken: BTreeMap<NodeId, u32> = BTreeMap::new();
        for _ in 0..ask.gpus {
            let most = nodes
                .iter_mut()
                .max_by_key(|(id, free)| (*free, std::cmp::Reverse(*id)));
            let Some((id, free)) = most.filter(|(_, free)| *free > 0) else {
                return Err(no_place(ask, cluster, taken.values().sum()));
            };
            *free -= 1;
            *taken.entry(*id).or_insert(0) += 1;
        }
        let shares = taken.into_iter().map(|(id, gpus)| {
            share(
                id,
                cluster.node(id).expect("the index names existing nodes"),
                gpus,
                ask,
            )
        });
        Ok(Allocation {
            shares: shares.collect(),
        })
    }
}
