//! Replan: sizes and groups for all jobs at once, then the best claims that fit. A job whose claim is unchanged keeps its
//! GPUs.

use dovetail_engine::{Discipline, Feature, Part, Round};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "replan",
    what: "plan from scratch at each decision, for sizings and groupings that look at all jobs at once",
    source: "Optimus, Muri",
    key: "every claim that fits runs, in order; unchanged ones keep their GPUs",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Replan)),
};

/// Plans all jobs at once.
#[derive(Debug, Clone)]
struct Replan;

impl Part for Replan {
    fn name(&self) -> String {
        "replan".to_owned()
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::JointPlanning, Feature::TenancyLimits]
    }
}

impl Discipline for Replan {
    fn walk(&mut self, round: &mut Round<'_>) {
        round.replan();
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}
