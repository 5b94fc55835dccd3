//! Rack-aware: on one node if it fits, else within one rack (the tightest with room), else over the fewest racks.

use std::collections::BTreeMap;

use dovetail_engine::cluster::{Cluster, NodeState};
use dovetail_engine::{Ask, Part, Placement};
use dovetail_model::{Allocation, NodeId, Reason, ZoneId};

use super::consolidate::on_one_node;
use super::{no_place, take_in_order, usable};
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "rack-aware",
    what: "one node, else one rack, else the fewest racks",
    source: "rule; topology levels as in Kueue and Slurm",
    key: "fewest racks, then fewest nodes, then tightest rack",
    companions: &[],
    knobs: &[Knob {
        name: "strict",
        default: "false",
        what: "true: wait rather than span racks",
    }],
    build: |knobs| {
        Ok(Box::new(RackAware {
            strict: knobs.get("strict", "true or false")?,
            name: knobs.name(),
        }))
    },
};

/// Usable GPUs of a rack, and its nodes that have some.
type Rack<'a> = (u32, Vec<(NodeId, &'a NodeState)>);

/// Fewest racks.
#[derive(Debug, Clone)]
struct RackAware {
    strict: bool,
    name: String,
}

impl Part for RackAware {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Placement for RackAware {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        for kind in cluster.types(ask.gpu_type) {
            if let Some(allocation) = on_one_node(ask, cluster, kind) {
                return Ok(allocation);
            }
        }
        let mut racks: BTreeMap<ZoneId, Rack<'_>> = BTreeMap::new();
        for (id, node) in cluster.nodes_with_any_free() {
            let free = usable(node, ask);
            if free > 0 {
                let rack = racks.entry(node.spec.zone).or_default();
                rack.0 += free;
                rack.1.push((id, node));
            }
        }
        for (_, nodes) in racks.values_mut() {
            nodes.sort_by_key(|(id, node)| (std::cmp::Reverse(usable(node, ask)), *id));
        }
        let best = racks.values().map(|(free, _)| *free).max().unwrap_or(0);
        let mut wide_enough: Vec<_> = racks.iter().filter(|(_, (free, _))| *free >= ask.gpus).collect();
        wide_enough.sort_by_key(|(zone, (free, _))| (*free, **zone));
        // The tightest rack has room, unless bundles of GPUs do not fit into its nodes.
        let tightest = wide_enough
            .into_iter()
            .find_map(|(_, (_, nodes))| take_in_order(nodes.iter().copied(), ask));
        let found = match tightest {
            Some(found) => Some(found),
            None if self.strict => None,
            None => {
                let mut order: Vec<_> = racks.into_iter().collect();
                order.sort_by_key(|(zone, (free, _))| (std::cmp::Reverse(*free), *zone));
                take_in_order(order.into_iter().flat_map(|(_, (_, nodes))| nodes), ask)
            }
        };
        found.ok_or_else(|| no_place(ask, cluster, best))
    }
}
