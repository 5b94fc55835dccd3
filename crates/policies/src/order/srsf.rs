//! Shortest remaining service first. Key: run time left × GPUs.

use dovetail_engine::{Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::Time;

use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "srsf",
    what: "shortest remaining service first: the least GPU time left",
    source: "Tiresias (NSDI'19); baseline of Muri",
    key: "run time left × GPUs",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[],
    build: |_| Ok(Box::new(Srsf)),
};

/// Shortest remaining service first.
#[derive(Debug, Clone)]
struct Srsf;

impl Part for Srsf {
    fn name(&self) -> String {
        "srsf".to_owned()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate].into()
    }
}

impl QueueOrder for Srsf {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        super::remaining_work(job, now, job.spec.gpus)
    }
}
