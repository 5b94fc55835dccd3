//! Complement: jobs that can use much CPU or memory are placed beside jobs that can use little, and vice versa.
//!
//! Every node records the ideal shares of its jobs, all together. A job is placed where its ideal share is free beside those
//! of the others, if there is such a node. Among equally good nodes, a demanding job is placed where the others ask for least
//! per busy GPU, and a modest one where they ask for most.

use dovetail_engine::cluster::{Cluster, NodeState, millionths};
use dovetail_engine::{Ask, Need, NeedSet, Part, Placement};
use dovetail_model::{Allocation, GpuTypeId, NodeId, NodeSpec, Reason, Share};

use super::consolidate::Consolidate;
use super::{has_room, share};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "complement",
    what: "jobs that can use much CPU or memory beside jobs that cannot; fewest nodes for the others",
    source: "rule; Synergy (OSDI'22) achieves it by taking turns",
    key: "where the ideal shares of the job and of those there fit together; then best fit",
    companions: &[],
    knobs: &[],
    build: |_| {
        Ok(Box::new(Complement {
            others: Consolidate::lenient(),
        }))
    },
};

/// What is missing, how badly it suits, free GPUs, the node: smaller is better.
type Key = (i64, i64, u32, NodeId);

/// Most nodes considered for one job.
const MAX_NODES: usize = 16;

/// Demanding jobs beside modest ones.
#[derive(Debug, Clone)]
struct Complement {
    others: Consolidate,
}

impl Part for Complement {
    fn name(&self) -> String {
        "complement".to_owned()
    }

    fn hints(&self) -> NeedSet {
        Need::CpuCurve.into()
    }
}

impl Placement for Complement {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        let mut search = Search::new(ask);
        for kind in cluster.types(ask.gpu_type) {
            // A demanding job finds what it needs on the emptiest nodes, and modest ones leave those to it.
            let proceed = match ask.headroom {
                Some(_) => {
                    let levels = cluster.levels_down(kind);
                    search.consider(cluster, kind, levels.take_while(|level| *level >= ask.gpus))
                }
                None => search.consider(cluster, kind, cluster.levels_from(kind, ask.gpus)),
            };
            if !proceed {
                break;
            }
        }
        match search.best {
            Some(((.., id), node)) => Ok(Allocation::on_one(share(id, node, ask.gpus, ask))),
            None => self.others.across(ask, cluster),
        }
    }
}

/// The best node so far.
struct Search<'a> {
    ask: &'a Ask,
    preference: Option<JobPreference<'a>>,
    best: Option<(Key, &'a NodeState)>,
    last: Option<&'a NodeState>,
    seen: usize,
}

impl<'a> Search<'a> {
    fn new(ask: &'a Ask) -> Self {
        Self {
            ask,
            preference: None,
            best: None,
            last: None,
            seen: 0,
        }
    }

    /// Considers the nodes of one GPU type with these numbers of free GPUs; returns whether to continue with the next type.
    fn consider(&mut self, cluster: &'a Cluster, kind: GpuTypeId, levels: impl Iterator<Item = u32>) -> bool {
        for level in levels {
            for id in cluster.nodes_with_free(kind, level) {
                let Some(node) = cluster.node(id).filter(|node| has_room(node, self.ask)) else {
                    continue;
                };
                self.weigh(id, node);
                self.seen += 1;
                if self.seen == MAX_NODES {
                    return false;
                }
            }
        }
        true
    }

    fn weigh(&mut self, id: NodeId, node: &'a NodeState) {
        // Of equal nodes the first is as good as any; most of them are empty.
        if self.last.replace(node).is_some_and(|last| are_equal(last, node)) {
            return;
        }
        let preference = match self.preference {
            Some(preference) if is_same_size(preference.spec, &node.spec) => preference,
            _ => *self.preference.insert(JobPreference::new(self.ask, node)),
        };
        let key = (
            preference.missing(node),
            preference.mismatch(node),
            node.free_gpus,
            id,
        );
        if self.best.is_none_or(|(least, _)| key < least) {
            self.best = Some((key, node));
        }
    }
}

/// Whether a job suits both nodes equally well. Of those with the same free GPUs, lower ids are considered first.
fn are_equal(a: &NodeState, b: &NodeState) -> bool {
    let key = |node: &NodeState| (node.free_gpus, node.preferred, node.spec.gpu_type);
    key(a) == key(b) && is_same_size(&a.spec, &b.spec)
}

fn is_same_size(a: &NodeSpec, b: &NodeSpec) -> bool {
    (a.gpus, a.cpu_milli, a.memory_mib) == (b.gpus, b.cpu_milli, b.memory_mib)
}

/// The ideal share of the job on a node of this size.
#[derive(Clone, Copy)]
struct JobPreference<'a> {
    spec: &'a NodeSpec,
    preferred: Share,
    /// By how much its ideal share exceeds its share of the GPUs, in millionths: as [`NodeState::pressure`].
    pressure: [i64; 2],
}

impl<'a> JobPreference<'a> {
    fn new(ask: &Ask, node: &'a NodeState) -> Self {
        let (spec, preferred) = (&node.spec, node.preferred_here(ask.gpus, ask.preferred));
        let gpus = millionths(ask.gpus.into(), spec.gpus.into());
        let cpu = millionths(preferred.cpu_milli.into(), spec.cpu_milli.into());
        let memory = millionths(preferred.memory_mib, spec.memory_mib);
        Self {
            spec,
            preferred,
            pressure: [cpu - gpus, memory - gpus],
        }
    }

    /// How much of the job's ideal share is missing beside those of the other jobs, in millionths of the node.
    fn missing(&self, node: &NodeState) -> i64 {
        let lacking = |others: u64, own: u64, capacity: u64| match (others + own)
            .saturating_sub(capacity.max(others))
        {
            0 => 0,
            lacking => millionths(lacking, capacity),
        };
        let cpu = lacking(
            node.preferred.cpu_milli.into(),
            self.preferred.cpu_milli.into(),
            node.spec.cpu_milli.into(),
        );
        cpu + lacking(
            node.preferred.memory_mib,
            self.preferred.memory_mib,
            node.spec.memory_mib,
        )
    }

    /// How badly the job suits the node: similar demands add up, opposite ones cancel out.
    fn mismatch(&self, node: &NodeState) -> i64 {
        (0..2)
            .map(|d| (node.pressure[d] / 1000) * (self.pressure[d] / 1000))
            .sum()
    }
}
