//! Shortest job first. Key: the total run time, regardless of progress.

use dovetail_engine::{Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::Time;

use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "sjf",
    what: "shortest job first; usually without preemption",
    source: "rule",
    key: "total run time",
    companions: &[(Kind::Discipline, "backfill")],
    knobs: &[],
    build: |_| Ok(Box::new(Sjf)),
};

/// Shortest job first.
#[derive(Debug, Clone)]
struct Sjf;

impl Part for Sjf {
    fn name(&self) -> String {
        "sjf".to_owned()
    }

    fn needs(&self) -> NeedSet {
        Need::RemainingTime.into()
    }
}

impl QueueOrder for Sjf {
    fn key(&self, job: &Job, _now: Time) -> QueueKey {
        match job.spec.expected {
            Some(work) => QueueKey::fixed(i128::from(work.0)),
            None => QueueKey::fixed(i128::from(job.spec.submit.0)).in_band(1),
        }
    }
}
