//! Shortest remaining service first. Key: run time left × GPUs.

use dovetail_engine::{Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "srsf",
    what: "shortest remaining service first: the least GPU time left",
    source: "Tiresias (NSDI'19); baseline of Muri",
    key: "run time left × GPUs",
    knowledge: Knowledge::Estimate,
    knobs: &[],
    build: |_| Ok(Box::new(Srsf)),
};

/// Shortest remaining service first.
#[derive(Debug, Clone)]
pub struct Srsf;

impl Part for Srsf {
    fn name(&self) -> String {
        "srsf".to_owned()
    }
}

impl Order for Srsf {
    fn line(&self, job: &Job, now: Time) -> Line {
        super::remaining_line(job, now, job.spec.gpus)
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge::Estimate
    }
}
