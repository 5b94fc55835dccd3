//! Greedy: every job gets its ideal share, or waits for it.

use dovetail_engine::{Ask, Cluster, Job, Need, NeedSet, Part, Sizing};

use super::share::{ask_for, ideal};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "greedy",
    what: "every job gets the CPU and memory that make it fastest, and waits until they are free",
    source: "Synergy (OSDI'22), Synergy-GREEDY",
    key: "the smallest share with top speed; no more than one node has",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Greedy)),
};

/// The ideal share or nothing.
#[derive(Debug, Clone)]
struct Greedy;

impl Part for Greedy {
    fn name(&self) -> String {
        "greedy".to_owned()
    }

    fn needs(&self) -> NeedSet {
        [Need::CpuCurve, Need::Resize].into()
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
