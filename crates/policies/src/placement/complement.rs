//! Complement: jobs that can use much CPU or memory go where the others can use little, and the other way round.
//!
//! Every node knows what would make its jobs fastest, all together. A job goes where what would make it fastest is there
//! beside the wishes of the others, if anywhere. Of the nodes that are as good in that, a hungry job goes where the least
//! is wished for beside each busy GPU, and a modest one where the most is.

use dovetail_engine::cluster::{Cluster, NodeState};
use dovetail_engine::{Ask, Knowledge, Part, Placement};
use dovetail_model::{Allocation, GpuTypeId, NodeId, Reason};

use super::consolidate::Consolidate;
use super::{share, usable};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "complement",
    what: "jobs that can use much CPU or memory beside jobs that cannot; fewest nodes for the others",
    source: "rule; Synergy (OSDI'22) does so by taking turns",
    key: "where the job and those there wish for no more than there is; then best fit",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| {
        Ok(Box::new(Complement {
            others: Consolidate::lenient(),
        }))
    },
};

/// Nodes looked at for one job, at most.
const MOST: usize = 64;

/// Hungry beside modest.
#[derive(Debug, Clone)]
pub struct Complement {
    others: Consolidate,
}

impl Part for Complement {
    fn name(&self) -> String {
        "complement".to_owned()
    }
}

impl Placement for Complement {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        let nodes = cluster
            .types(ask.gpu_type)
            .flat_map(|kind| with_room(ask, cluster, kind))
            .filter(|(_, node)| usable(node, ask) >= ask.gpus)
            .take(MOST);
        let best =
            nodes.min_by_key(|(id, node)| (beyond(ask, node), mismatch(ask, node), node.free_gpus, *id));
        match best {
            Some((id, node)) => Ok(Allocation {
                shares: [share(id, node, ask.gpus, ask)].into_iter().collect(),
            }),
            None => self.others.place(ask, cluster),
        }
    }
}

fn with_room<'a>(
    ask: &Ask,
    cluster: &'a Cluster,
    kind: GpuTypeId,
) -> impl Iterator<Item = (NodeId, &'a NodeState)> {
    cluster
        .levels_from(kind, ask.gpus)
        .flat_map(move |level| cluster.nodes_with_free(kind, level))
        .filter_map(|id| cluster.node(id).map(|node| (id, node)))
}

/// How much of what the job wishes for is not there beside the wishes of those who are, in millionths of the node.
fn beyond(ask: &Ask, node: &NodeState) -> u64 {
    let over = |wished: u64, own: u64, has: u64| {
        let lacking = (wished + own).saturating_sub(has.max(wished));
        lacking.saturating_mul(1_000_000) / has.max(1)
    };
    let wish = node.wish_here(ask.gpus, ask.wish);
    let cpu = over(
        u64::from(node.wished.cpu_milli),
        u64::from(wish.cpu_milli),
        u64::from(node.spec.cpu_milli),
    );
    cpu + over(node.wished.memory_mib, wish.memory_mib, node.spec.memory_mib)
}

/// How badly the job suits the node, in millionths. What is wished for beside the busy GPUs, in proportion to what there
/// is, against the part of GPUs that is busy: above for nodes whose jobs are hungry, below where they are modest.
fn mismatch(ask: &Ask, node: &NodeState) -> i64 {
    let ppm = |part: u64, of: u64| (part.saturating_mul(1_000_000) / of.max(1)) as i64;
    let busy = ppm(
        u64::from(node.spec.gpus - node.free_gpus),
        u64::from(node.spec.gpus),
    );
    let gpus = ppm(u64::from(ask.gpus), u64::from(node.spec.gpus));
    let tension = |wished: u64, own: u64, has: u64| {
        let (there, own) = (ppm(wished, has) - busy, ppm(own, has) - gpus);
        // Two of a kind add up; opposites cancel out.
        (there / 1000) * (own / 1000)
    };
    let wish = node.wish_here(ask.gpus, ask.wish);
    let cpu = tension(
        u64::from(node.wished.cpu_milli),
        u64::from(wish.cpu_milli),
        u64::from(node.spec.cpu_milli),
    );
    let memory = tension(node.wished.memory_mib, wish.memory_mib, node.spec.memory_mib);
    cpu + memory
}
