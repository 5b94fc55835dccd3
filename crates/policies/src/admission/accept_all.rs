//! Let everything in, even what can never run.

use dovetail_engine::parts::{Admission, Knowledge, Part, Verdict};
use dovetail_engine::{Cluster, state::Demand};
use dovetail_model::JobSpec;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Admission> = Entry {
    name: "accept-all",
    what: "let everything in; a job that can never run waits for ever",
    source: "Blox, acceptAll",
    key: "always",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(AcceptAll)),
};

/// Lets everything in.
#[derive(Debug, Clone)]
pub struct AcceptAll;

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
