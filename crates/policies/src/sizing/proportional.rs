//! Proportional: CPU and memory in proportion to GPUs, whatever the job can use.

use dovetail_engine::{Ask, Cluster, Guest, Job, Knowledge, NodeState, Part, Sizing};
use dovetail_model::Share;

use super::share::ask_for;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "proportional",
    what: "CPU and memory in proportion to GPUs",
    source: "the usual rule; baseline of Synergy (OSDI'22)",
    key: "GPUs held ÷ GPUs of the node, of its CPU and of its memory",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Proportional)),
};

/// In proportion to GPUs.
#[derive(Debug, Clone)]
pub struct Proportional;

impl Part for Proportional {
    fn name(&self) -> String {
        "proportional".to_owned()
    }
}

impl Sizing for Proportional {
    fn ask(&self, job: &Job, cluster: &Cluster) -> Ask {
        ask_for(job, cluster.least_share())
    }

    fn asks_by_shape(&self) -> bool {
        true
    }

    fn fills(&self) -> bool {
        true
    }

    fn fill(&mut self, node: &NodeState, _left: Share, guests: &[Guest<'_>]) -> Vec<Share> {
        let fair = node.spec.proportional();
        guests.iter().map(|g| fair.times(g.gpus)).collect()
    }
}
