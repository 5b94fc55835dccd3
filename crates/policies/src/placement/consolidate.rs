//! Consolidate: as few nodes as possible, and of those the ones that fit best.
//!
//! A job that fits on one node is placed on the node with the fewest free GPUs that has room. A larger one takes the emptiest
//! nodes first and the rest by best fit. A gang does not mix GPU types. The node index answers both questions without a scan.

use std::collections::BTreeMap;

use dovetail_engine::cluster::Cluster;
use dovetail_engine::{Ask, Part, Placement};
use dovetail_model::{Allocation, GpuTypeId, Reason};

use super::{has_room, no_place, share, usable, usable_when_empty};
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "consolidate",
    what: "fewest nodes, best fit",
    source: "rule; as in Tiresias, Optimus and Muri",
    key: "fewest nodes, then fewest GPUs left over on the last one, then lowest node",
    companions: &[],
    knobs: &[Knob {
        name: "strict",
        default: "false",
        what: "true: wait rather than span more nodes than an empty cluster would need",
    }],
    build: |knobs| {
        Ok(Box::new(Consolidate {
            strict: knobs.get("strict", "true or false")?,
            name: knobs.name(),
        }))
    },
};

/// Fewest nodes, best fit.
#[derive(Debug, Clone)]
pub(super) struct Consolidate {
    strict: bool,
    name: String,
}

impl Consolidate {
    /// A placement that spans as many nodes as necessary.
    pub(super) fn lenient() -> Self {
        Self {
            strict: false,
            name: "consolidate".to_owned(),
        }
    }
}

impl Part for Consolidate {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Placement for Consolidate {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        for kind in cluster.types(ask.gpu_type) {
            if let Some(allocation) = on_one_node(ask, cluster, kind) {
                return Ok(allocation);
            }
        }
        self.across(ask, cluster)
    }
}

impl Consolidate {
    /// Places a job on several nodes, as no single one has room for it.
    pub(super) fn across(&self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        let kinds = cluster.types(ask.gpu_type).filter(|_| ask.gpus > 1);
        let best = kinds
            .filter_map(|kind| on_many(ask, cluster, kind))
            .min_by_key(Allocation::nodes);
        match best {
            Some(allocation) if !self.strict || allocation.nodes() <= fewest(ask, cluster) => Ok(allocation),
            _ => Err(no_place(ask, cluster, cluster.most_free(ask.gpu_type))),
        }
    }
}

/// The tightest node with room for the whole job.
pub(super) fn on_one_node(ask: &Ask, cluster: &Cluster, kind: GpuTypeId) -> Option<Allocation> {
    for level in cluster.levels_from(kind, ask.gpus) {
        for id in cluster.nodes_with_free(kind, level) {
            let node = cluster.node(id).expect("the index names existing nodes");
            if has_room(node, ask) {
                return Some(Allocation::on_one(share(id, node, ask.gpus, ask)));
            }
        }
    }
    None
}

/// The emptiest nodes, and the tightest one for the rest.
fn on_many(ask: &Ask, cluster: &Cluster, kind: GpuTypeId) -> Option<Allocation> {
    if cluster.free_gpus(Some(kind)) < ask.gpus {
        return None;
    }
    if ask.gpus_per_task > 1 {
        return super::bundles::fill(super::bundles::emptiest(cluster, kind), ask);
    }
    let mut left = ask.gpus;
    let mut allocation = Allocation::default();
    for level in cluster.levels_down(kind) {
        for id in cluster.nodes_with_free(kind, level) {
            let node = cluster.node(id).expect("the index names existing nodes");
            let here = usable(node, ask);
            if here >= left {
                let rest = Ask { gpus: left, ..*ask };
                let taken = |id| allocation.touches(id);
                let last =
                    tightest(&rest, cluster, kind, taken).unwrap_or_else(|| share(id, node, left, ask));
                allocation.shares.push(last);
                allocation.shares.sort_unstable_by_key(|s| s.node);
                return Some(allocation);
            }
            if here > 0 {
                allocation.shares.push(share(id, node, here, ask));
                left -= here;
            }
        }
    }
    None
}

/// The tightest node for the rest that is not taken yet.
fn tightest(
    rest: &Ask,
    cluster: &Cluster,
    kind: GpuTypeId,
    taken: impl Fn(dovetail_model::NodeId) -> bool,
) -> Option<dovetail_model::NodeShare> {
    cluster
        .levels_from(kind, rest.gpus)
        .flat_map(|level| cluster.nodes_with_free(kind, level))
        .filter(|id| !taken(*id))
        .filter_map(|id| cluster.node(id).map(|node| (id, node)))
        .find(|(_, node)| has_room(node, rest))
        .map(|(id, node)| share(id, node, rest.gpus, rest))
}

/// Number of nodes needed if the cluster were empty: the largest ones of one GPU type, as far as the job can use them.
fn fewest(ask: &Ask, cluster: &Cluster) -> usize {
    let mut sizes: BTreeMap<GpuTypeId, Vec<u32>> = BTreeMap::new();
    for (_, node) in cluster.nodes() {
        if ask.gpu_type.is_none_or(|t| node.spec.gpu_type == t) && node.admits(ask.constraint) {
            sizes
                .entry(node.spec.gpu_type)
                .or_default()
                .push(usable_when_empty(&node.spec, ask));
        }
    }
    let nodes_of = |sizes: &mut Vec<u32>| {
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = ask.gpus;
        let needed = sizes.iter().position(|size| {
            left -= super::bundles::piece(*size, left, ask);
            left == 0
        });
        needed.map(|last| last + 1)
    };
    sizes
        .values_mut()
        .filter_map(nodes_of)
        .min()
        .unwrap_or(usize::MAX)
}
