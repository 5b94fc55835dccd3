//! Rejects jobs that can never run on this cluster; admits all others.

use dovetail_engine::feasibility::{NodeScope, never_fits};
use dovetail_engine::parts::{Admission, Part, Verdict};
use dovetail_engine::{Cluster, Demand};
use dovetail_model::JobSpec;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Admission> = Entry {
    name: "feasible",
    what: "admit every job that could run on the empty cluster; reject all others",
    source: "rule",
    key: "reject if GPUs > all GPUs of the type that have the CPU and memory asked for",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Feasible)),
};

/// Rejects jobs that can never run. Nodes that are down count, as they may come back.
#[derive(Debug, Clone)]
struct Feasible;

impl Part for Feasible {
    fn name(&self) -> String {
        "feasible".to_owned()
    }
}

impl Admission for Feasible {
    fn admit(&self, job: &JobSpec, _demand: &Demand, cluster: &Cluster) -> Verdict {
        never_fits(job, cluster, NodeScope::Joined).map_or(Verdict::Admit, Verdict::Reject)
    }
}
