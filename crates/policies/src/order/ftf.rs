//! Finish-time fairness relative to exclusive use of the GPUs: the job with the largest delay for its length comes first.
//! Key: −ρ to a hundredth, with ρ = (time since submission + run time left) ÷ total run time.
//!
//! `themis` compares with an equal share of the cluster instead; both serve the *largest* ρ first, as Themis intends.

use dovetail_engine::{ClusterLoad, Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::Time;

use super::themis::Themis;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "ftf",
    what: "finish-time fairness relative to running alone: the job with the largest delay for its length first",
    source: "Themis (NSDI'20), as Synergy (OSDI'22) states it, largest first",
    key: "−ρ = −(time since submission + run time left) / total run time",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[],
    build: |_| Ok(Box::new(Ftf)),
};

/// Largest delay relative to length first.
#[derive(Debug, Clone)]
struct Ftf;

impl Part for Ftf {
    fn name(&self) -> String {
        "ftf".to_owned()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate].into()
    }
}

impl QueueOrder for Ftf {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        Themis.key(job, now)
    }

    fn key_under_load(&self, job: &Job, _load: &ClusterLoad, now: Time) -> QueueKey {
        self.key(job, now)
    }

    /// All keys change as time passes.
    fn depends_on_all_jobs(&self) -> bool {
        true
    }
}
