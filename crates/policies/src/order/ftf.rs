//! Finish-time fairness against having the GPUs alone: who would end latest for its length goes first. Key: −ρ to a
//! hundredth, with ρ = (time since submission + run time left) ÷ whole run time.
//!
//! `themis` measures against an equal share of the cluster instead; both serve the *largest* ρ first, as Themis means it.

use dovetail_engine::{Crowd, Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;

use super::Themis;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "ftf",
    what: "finish-time fairness against running alone: who is delayed most for its length goes first",
    source: "Themis (NSDI'20), as Synergy (OSDI'22) states it, largest first",
    key: "−ρ = −(time since submission + run time left) / whole run time",
    knowledge: Knowledge::Estimate,
    knobs: &[],
    build: |_| Ok(Box::new(Ftf)),
};

/// Most delayed for its length first.
#[derive(Debug, Clone)]
pub struct Ftf;

impl Part for Ftf {
    fn name(&self) -> String {
        "ftf".to_owned()
    }
}

impl Order for Ftf {
    fn line(&self, job: &Job, now: Time) -> Line {
        Themis.line(job, now)
    }

    fn line_among(&self, job: &Job, _crowd: &Crowd, now: Time) -> Line {
        self.line(job, now)
    }

    /// Every key moves as time goes by.
    fn looks_at_crowd(&self) -> bool {
        true
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge::Estimate
    }
}
