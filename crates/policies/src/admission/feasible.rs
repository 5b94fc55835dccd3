//! Turn away what can never run here; let in everything else.

use dovetail_engine::parts::{Admission, Knowledge, Part, Verdict};
use dovetail_engine::{Cluster, state::Demand};
use dovetail_model::JobSpec;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Admission> = Entry {
    name: "feasible",
    what: "let everything in but jobs that could not run even on the empty cluster",
    source: "rule",
    key: "reject if GPUs (of the kind and with the CPU and memory asked for) > GPUs there are",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Feasible)),
};

/// Rejects what never fits. Nodes that are down count: they may come back.
#[derive(Debug, Clone)]
pub struct Feasible;

impl Part for Feasible {
    fn name(&self) -> String {
        "feasible".to_owned()
    }
}

impl Admission for Feasible {
    fn admit(&self, job: &JobSpec, _demand: &Demand, cluster: &Cluster) -> Verdict {
        super::never_fits(job, cluster).map_or(Verdict::Admit, Verdict::Reject)
    }
}
