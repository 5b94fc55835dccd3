//! Shortest job first. Key: the whole run time, whatever has been done of it.

use dovetail_engine::{Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "sjf",
    what: "shortest job first; mostly used without preemption",
    source: "rule",
    key: "run time",
    knowledge: Knowledge::Estimate,
    knobs: &[],
    build: |_| Ok(Box::new(Sjf)),
};

/// Shortest job first.
#[derive(Debug, Clone)]
pub struct Sjf;

impl Part for Sjf {
    fn name(&self) -> String {
        "sjf".to_owned()
    }
}

impl Order for Sjf {
    fn line(&self, job: &Job, _now: Time) -> Line {
        match job.spec.expected {
            Some(work) => Line::fixed(i128::from(work.0)),
            None => Line::fixed(i128::from(job.spec.submit.0)).in_band(1),
        }
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge::Estimate
    }
}
