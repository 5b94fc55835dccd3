//! Greedy: every job gets what makes it fastest, or waits for it.

use dovetail_engine::{Ask, Cluster, Job, Knowledge, Part, Sizing};

use super::share::{ask_for, ideal};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "greedy",
    what: "every job gets the CPU and memory that make it fastest, and waits where they are not there",
    source: "Synergy (OSDI'22), Synergy-GREEDY",
    key: "the least share with top speed; no more than one node has",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Greedy)),
};

/// What makes it fastest, or nothing.
#[derive(Debug, Clone)]
pub struct Greedy;

impl Part for Greedy {
    fn name(&self) -> String {
        "greedy".to_owned()
    }
}

impl Sizing for Greedy {
    fn ask(&self, job: &Job, cluster: &Cluster) -> Ask {
        ask_for(job, ideal(&job.spec, cluster))
    }

    fn asks_by_shape(&self) -> bool {
        true
    }
}
