//! Complement: jobs that can use much CPU or memory go where the others can use little, and the other way round.
//!
//! Every node knows what would make its jobs fastest, all together. A job goes where what would make it fastest is there
//! beside the wishes of the others, if anywhere. Of the nodes that are as good in that, a hungry job goes where the least
//! is wished for beside each busy GPU, and a modest one where the most is.

use dovetail_engine::cluster::{Cluster, NodeState, millionths};
use dovetail_engine::{Ask, Knowledge, Part, Placement};
use dovetail_model::{Allocation, GpuTypeId, NodeId, NodeSpec, Reason, Share};

use super::consolidate::Consolidate;
use super::{has_room, share};
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

/// What is not there, how badly it suits, free GPUs, the node: less is better.
type Key = (i64, i64, u32, NodeId);

/// Nodes looked at for one job, at most.
const MOST: usize = 16;

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
        let mut search = Search::new(ask);
        for kind in cluster.types(ask.gpu_type) {
            // Who wants much finds it on the emptiest nodes, and others leave those to it.
            let goes_on = match ask.enough {
                Some(_) => {
                    let levels = cluster.levels_down(kind);
                    search.look(cluster, kind, levels.take_while(|level| *level >= ask.gpus))
                }
                None => search.look(cluster, kind, cluster.levels_from(kind, ask.gpus)),
            };
            if !goes_on {
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
    own: Option<Own<'a>>,
    best: Option<(Key, &'a NodeState)>,
    last: Option<&'a NodeState>,
    seen: usize,
}

impl<'a> Search<'a> {
    fn new(ask: &'a Ask) -> Self {
        Self {
            ask,
            own: None,
            best: None,
            last: None,
            seen: 0,
        }
    }

    /// Looks at the nodes of one kind with so many free GPUs; whether it goes on with the next kind.
    fn look(&mut self, cluster: &'a Cluster, kind: GpuTypeId, levels: impl Iterator<Item = u32>) -> bool {
        for level in levels {
            for id in cluster.nodes_with_free(kind, level) {
                let Some(node) = cluster.node(id).filter(|node| has_room(node, self.ask)) else {
                    continue;
                };
                self.weigh(id, node);
                self.seen += 1;
                if self.seen == MOST {
                    return false;
                }
            }
        }
        true
    }

    fn weigh(&mut self, id: NodeId, node: &'a NodeState) {
        // Of nodes that are alike the first is as good as any; mostly they are empty ones.
        if self.last.replace(node).is_some_and(|last| alike(last, node)) {
            return;
        }
        let own = match self.own {
            Some(own) if is_same_make(own.spec, &node.spec) => own,
            _ => *self.own.insert(Own::new(self.ask, node)),
        };
        let key = (own.beyond(node), own.mismatch(node), node.free_gpus, id);
        if self.best.is_none_or(|(least, _)| key < least) {
            self.best = Some((key, node));
        }
    }
}

/// Whether a job suits both equally well. Of one kind with as many free GPUs those with lower ids are looked at first.
fn alike(a: &NodeState, b: &NodeState) -> bool {
    let key = |node: &NodeState| (node.free_gpus, node.wished, node.spec.gpu_type);
    key(a) == key(b) && is_same_make(&a.spec, &b.spec)
}

fn is_same_make(a: &NodeSpec, b: &NodeSpec) -> bool {
    (a.gpus, a.cpu_milli, a.memory_mib) == (b.gpus, b.cpu_milli, b.memory_mib)
}

/// What the job wishes for on a node of this make.
#[derive(Clone, Copy)]
struct Own<'a> {
    spec: &'a NodeSpec,
    wish: Share,
    /// By how much its wish is more than its part of the GPUs, in millionths: as [`NodeState::leaning`].
    leaning: [i64; 2],
}

impl<'a> Own<'a> {
    fn new(ask: &Ask, node: &'a NodeState) -> Self {
        let (spec, wish) = (&node.spec, node.wish_here(ask.gpus, ask.wish));
        let gpus = millionths(ask.gpus.into(), spec.gpus.into());
        let cpu = millionths(wish.cpu_milli.into(), spec.cpu_milli.into());
        let memory = millionths(wish.memory_mib, spec.memory_mib);
        Self {
            spec,
            wish,
            leaning: [cpu - gpus, memory - gpus],
        }
    }

    /// How much of what the job wishes for is not there beside the wishes of those who are, in millionths of the node.
    fn beyond(&self, node: &NodeState) -> i64 {
        let lacking = |wished: u64, own: u64, has: u64| match (wished + own).saturating_sub(has.max(wished)) {
            0 => 0,
            lacking => millionths(lacking, has),
        };
        let cpu = lacking(
            node.wished.cpu_milli.into(),
            self.wish.cpu_milli.into(),
            node.spec.cpu_milli.into(),
        );
        cpu + lacking(node.wished.memory_mib, self.wish.memory_mib, node.spec.memory_mib)
    }

    /// How badly the job suits the node: two of a kind add up, opposites cancel out.
    fn mismatch(&self, node: &NodeState) -> i64 {
        (0..2)
            .map(|d| (node.leaning[d] / 1000) * (self.leaning[d] / 1000))
            .sum()
    }
}
