//! First free: the lowest free GPUs by node and slot.

use dovetail_engine::cluster::Cluster;
use dovetail_engine::{Ask, Part, Placement};
use dovetail_model::{Allocation, Reason};

use super::{no_place, take_in_order};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "first-free",
    what: "the first free GPUs in order of nodes",
    source: "rule",
    key: "lowest node, lowest slot",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(FirstFree)),
};

/// Lowest first.
#[derive(Debug, Clone)]
struct FirstFree;

impl Part for FirstFree {
    fn name(&self) -> String {
        "first-free".to_owned()
    }
}

impl Placement for FirstFree {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        take_in_order(cluster.nodes_with_any_free(), ask)
            .ok_or_else(|| no_place(ask, cluster, cluster.most_free(ask.gpu_type)))
    }
}
