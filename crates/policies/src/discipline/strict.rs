//! Strict: the first job in line that does not fit blocks all behind it.

use dovetail_engine::{Discipline, Knowledge, Part, Round};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "strict",
    what: "the first job that does not fit blocks all behind it; running jobs run to their end",
    source: "rule",
    key: "stop at the first job that does not fit",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Strict)),
};

/// Head-of-line blocking.
#[derive(Debug, Clone)]
pub struct Strict;

impl Part for Strict {
    fn name(&self) -> String {
        "strict".to_owned()
    }
}

impl Discipline for Strict {
    fn walk(&mut self, round: &mut Round<'_>) {
        while let Some(candidate) = round.next_in_line() {
            if round.start(&candidate).is_err() {
                return;
            }
        }
    }

    fn looks_at_holders(&self) -> bool {
        false
    }

    fn passes_over(&self) -> bool {
        false
    }

    fn preempts(&self) -> bool {
        false
    }
}
