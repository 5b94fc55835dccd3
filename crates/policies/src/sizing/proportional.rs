//! Proportional: CPU and memory in proportion to GPUs, regardless of what the job can use.

use dovetail_engine::{Ask, Cluster, Job, Need, NeedSet, NodeFilling, NodeJob, NodeState, Part, Sizing};
use dovetail_model::Share;

use super::share::ask_for;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "proportional",
    what: "CPU and memory in proportion to GPUs",
    source: "the usual rule; baseline of Synergy (OSDI'22)",
    key: "(GPUs held ÷ GPUs of the node) × its CPU and memory",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Proportional)),
};

/// In proportion to GPUs.
#[derive(Debug, Clone)]
struct Proportional;

impl Part for Proportional {
    fn name(&self) -> String {
        "proportional".to_owned()
    }

    fn needs(&self) -> NeedSet {
        Need::Resize.into()
    }
}

impl Sizing for Proportional {
    fn ask(&self, job: &Job, cluster: &Cluster) -> Ask {
        ask_for(job, cluster.least_share())
    }

    fn asks_by_shape(&self) -> bool {
        true
    }

    fn filling(&mut self) -> Option<&mut dyn NodeFilling> {
        Some(self)
    }
}

impl NodeFilling for Proportional {
    fn fill(&mut self, node: &NodeState, left: Share, jobs: &[NodeJob<'_>]) -> Vec<Share> {
        let (fair, mut left) = (node.spec.proportional(), left);
        let mut share = |job: &NodeJob<'_>| {
            // A job that was placed by another sizing may have been promised more or less, and part of the node may be
            // unavailable.
            let more = fair.times(job.gpus).minus(job.promised).at_most(left);
            left = left.minus(more);
            job.promised.plus(more)
        };
        jobs.iter().map(&mut share).collect()
    }
}
