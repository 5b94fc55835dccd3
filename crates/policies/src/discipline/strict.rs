//! Strict: the first queued job that does not fit blocks all behind it.

use dovetail_engine::{Discipline, Feature, Part, Round};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "strict",
    what: "the first job that does not fit blocks all behind it; running jobs are not preempted",
    source: "rule",
    key: "stop at the first job that does not fit",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Strict)),
};

/// Blocks at the first job that does not fit.
#[derive(Debug, Clone)]
struct Strict;

impl Part for Strict {
    fn name(&self) -> String {
        "strict".to_owned()
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::TenancyLimits]
    }
}

impl Discipline for Strict {
    fn walk(&mut self, round: &mut Round<'_>) {
        while let Some(candidate) = round.next_queued() {
            if round.start(&candidate).is_err() {
                return;
            }
        }
    }

    fn needs_holders(&self) -> bool {
        false
    }

    fn passes_over(&self) -> bool {
        false
    }

    fn preempts(&self) -> bool {
        false
    }
}
