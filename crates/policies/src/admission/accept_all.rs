//! Admits every job, even one that can never run.

use dovetail_engine::parts::{Admission, Part, Verdict};
use dovetail_engine::{Cluster, Demand};
use dovetail_model::JobSpec;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Admission> = Entry {
    name: "accept-all",
    what: "admit every job; one that can never run waits forever",
    source: "Blox, acceptAll",
    key: "always",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(AcceptAll)),
};

/// Admits every job.
#[derive(Debug, Clone)]
struct AcceptAll;

impl Part for AcceptAll {
    fn name(&self) -> String {
        "accept-all".to_owned()
    }
}

impl Admission for AcceptAll {
    fn admit(&self, _job: &JobSpec, _demand: &Demand, _cluster: &Cluster) -> Verdict {
        Verdict::Admit
    }
}
