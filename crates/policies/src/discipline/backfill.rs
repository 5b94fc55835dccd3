//! Backfill: pass over what does not fit. Large gangs can starve; [`super::Easy`] keeps GPUs for them.

use dovetail_engine::{Discipline, Knowledge, Part, Round};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "backfill",
    what: "pass over jobs that do not fit; running jobs run to their end",
    source: "first fit with skip",
    key: "every job that fits starts, in order",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Backfill)),
};

/// First fit with skip.
#[derive(Debug, Clone)]
pub struct Backfill;

impl Part for Backfill {
    fn name(&self) -> String {
        "backfill".to_owned()
    }
}

impl Discipline for Backfill {
    fn walk(&mut self, round: &mut Round<'_>) {
        fill(round);
    }

    fn looks_at_holders(&self) -> bool {
        false
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
