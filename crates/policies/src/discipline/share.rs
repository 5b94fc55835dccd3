//! Share: what fits starts alone; what does not moves in beside others if the grouping finds a place; the rest is
//! passed over.
//!
//! Without `preempt` running jobs run to their end. With it, jobs that stand behind give way first, as under
//! [`super::Preempt`], but only those that have enough work left to be worth a restart.

use std::collections::BTreeSet;

use dovetail_engine::{Candidate, Discipline, Job, Knowledge, Part, Round};
use dovetail_model::{Time, Work};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "share",
    what: "start what fits alone, else beside others where the grouping finds a place; pass over the rest",
    source: "SJF-FFS and SJF-BSBF (wise resource sharing, 2024), AntMan (OSDI'20)",
    key: "alone, then by giving way if preempt=true, then beside others, in order",
    knowledge: Knowledge::None,
    knobs: &[
        Knob {
            name: "preempt",
            default: "false",
            what: "true: running jobs give way to jobs ahead of them before anyone shares",
        },
        Knob {
            name: "min_left",
            default: "1m",
            what: "jobs with less work left than this do not give way; a span",
        },
        Knob {
            name: "depth",
            default: "200",
            what: "for so many jobs in line a place beside others is looked for in vain; a whole number",
        },
    ],
    build: |knobs| {
        Ok(Box::new(Share {
            preempt: knobs.get("preempt", "true or false")?,
            min_left: knobs.span("min_left")?,
            depth: knobs.get("depth", "a whole number")?,
            name: knobs.name(),
        }))
    },
};

/// Alone, or beside others.
#[derive(Debug, Clone)]
pub struct Share {
    preempt: bool,
    min_left: Time,
    depth: usize,
    name: String,
}

impl Part for Share {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Discipline for Share {
    fn walk(&mut self, round: &mut Round<'_>) {
        // Shapes for which there is no place alone. Jobs of one shape differ in whom they get along with.
        let mut full = BTreeSet::new();
        let mut in_vain = 0;
        while let Some(candidate) = round.next_in_line() {
            if in_vain >= self.depth {
                round.pass_over(&candidate);
                return super::backfill::fill(round);
            }
            let hopeless = candidate.shape.is_some_and(|shape| full.contains(&shape));
            if !hopeless && round.start(&candidate).is_ok() {
                continue;
            }
            if !hopeless && self.make_way(round, &candidate) {
                // More may have been given up than it needed.
                full.clear();
                continue;
            }
            full.extend(candidate.shape);
            if let Some(place) = round.beside(&candidate) {
                round.start_beside(&candidate, place);
            } else {
                in_vain += 1;
                if candidate.shape.is_none() {
                    round.pass_over(&candidate);
                }
            }
        }
    }

    fn looks_at_holders(&self) -> bool {
        self.preempt
    }

    fn preempts(&self) -> bool {
        self.preempt
    }
}

impl Share {
    /// Throws out holders behind the candidate, last first, until it fits; nobody if it never does.
    fn make_way(&self, round: &mut Round<'_>, candidate: &Candidate) -> bool {
        let (now, min_left) = (round.now(), Work(self.min_left.0.max(0) as u64));
        let may_go = move |job: &Job| job.remaining(now).is_none_or(|left| left >= min_left);
        if !self.preempt || !round.enough_behind(candidate, may_go) {
            return false;
        }
        let here = round.checkpoint();
        while let Some(victim) = round.last_behind(candidate, may_go) {
            round.evict(victim);
            if round.start(candidate).is_ok() {
                return true;
            }
        }
        round.rollback(here);
        false
    }
}
