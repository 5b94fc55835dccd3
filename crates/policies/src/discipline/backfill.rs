//! Backfill: pass over jobs that do not fit.
//!
//! Large gangs can starve. Where run times are known, discipline `easy` reserves GPUs for them; where they are not,
//! `patience` bounds how long the head of the queue is passed over.

use dovetail_engine::{Discipline, Feature, Part, Round};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "backfill",
    what: "pass over jobs that do not fit; running jobs are not preempted",
    source: "first fit with skip",
    key: "every job that fits starts, in order",
    companions: &[],
    knobs: &[Knob {
        name: "patience",
        default: "0",
        what: "how long a job may be passed over before it blocks the queue; a span, 0: forever",
    }],
    build: |knobs| {
        Ok(Box::new(Backfill {
            patience: knobs.span("patience")?,
            name: knobs.name(),
        }))
    },
};

/// First fit with skip.
#[derive(Debug, Clone)]
struct Backfill {
    patience: Time,
    name: String,
}

impl Part for Backfill {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::TenancyLimits]
    }
}

impl Discipline for Backfill {
    fn walk(&mut self, round: &mut Round<'_>) {
        if self.patience == Time::ZERO {
            return fill(round);
        }
        while let Some(candidate) = round.next_queued() {
            if round.start(&candidate).is_err() {
                let due = round.job(candidate.job).waiting_since + self.patience;
                if due <= round.now() {
                    return round.reserve_for(&candidate, None);
                }
                round.wake_at(due);
                round.pass_over(&candidate);
            }
        }
    }

    fn needs_holders(&self) -> bool {
        false
    }

    fn starts_all_that_fit(&self) -> bool {
        self.patience == Time::ZERO
    }

    fn preempts(&self) -> bool {
        false
    }
}

/// Starts every job that fits, in order.
pub(super) fn fill(round: &mut Round<'_>) {
    while let Some(candidate) = round.next_fitting() {
        if round.start(&candidate).is_err() {
            round.pass_over(&candidate);
        }
    }
}
