//! Replan: sizes and groups for everyone at once, then the best claims that fit; who goes on unchanged stays in place.

use dovetail_engine::{Discipline, Knowledge, Part, Round};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "replan",
    what: "plan everything anew at each decision, for sizings and groupings that look at all jobs at once",
    source: "Optimus, Muri",
    key: "every claim that fits runs, in order; unchanged ones stay in place",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Replan)),
};

/// Planning from scratch.
#[derive(Debug, Clone)]
pub struct Replan;

impl Part for Replan {
    fn name(&self) -> String {
        "replan".to_owned()
    }
}

impl Discipline for Replan {
    fn walk(&mut self, round: &mut Round<'_>) {
        round.replan();
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}
