//! Backfill: pass over what does not fit.
//!
//! Large gangs can starve. Where run times are known [`super::Easy`] keeps GPUs for them; where they are not, `patience`
//! bounds how long the head of the line is passed over.

use dovetail_engine::{Discipline, Knowledge, Part, Round};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "backfill",
    what: "pass over jobs that do not fit; running jobs run to their end",
    source: "first fit with skip",
    key: "every job that fits starts, in order",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "patience",
        default: "0",
        what: "once a job has waited so long nothing behind it passes it any more; a span, 0 is never",
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
pub struct Backfill {
    patience: Time,
    name: String,
}

impl Part for Backfill {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Discipline for Backfill {
    fn walk(&mut self, round: &mut Round<'_>) {
        if self.patience == Time::ZERO {
            return fill(round);
        }
        while let Some(candidate) = round.next_in_line() {
            if round.start(&candidate).is_err() {
                let due = round.job(candidate.job).waiting_since + self.patience;
                if due <= round.now() {
                    return round.keep_for(&candidate, None);
                }
                round.wake_at(due);
                round.pass_over(&candidate);
            }
        }
    }

    fn looks_at_holders(&self) -> bool {
        false
    }

    fn fills_up(&self) -> bool {
        self.patience == Time::ZERO
    }

    fn preempts(&self) -> bool {
        false
    }
}

/// Starts everything that fits, in order.
pub(super) fn fill(round: &mut Round<'_>) {
    while let Some(candidate) = round.next_that_may_fit() {
        if round.start(&candidate).is_err() {
            round.pass_over(&candidate);
        }
    }
}
