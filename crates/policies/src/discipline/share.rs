//! Share: a job starts alone if it fits, else beside running jobs where the grouping finds room; the rest is passed over.
//!
//! Without `preempt` no job is preempted. With it, jobs behind are preempted before any job shares, as under discipline
//! `preempt`, but only those with enough work left to be worth a restart.

use std::collections::BTreeSet;

use dovetail_engine::{Candidate, Discipline, Feature, Job, Need, NeedSet, Part, Round};
use dovetail_model::{Time, Work};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "share",
    what: "start jobs that fit alone, else beside others where the grouping finds room; pass over the rest",
    source: "SJF-FFS and SJF-BSBF (wise resource sharing, 2024), AntMan (OSDI'20)",
    key: "alone, then by preemption if preempt=true, then beside others, in order",
    companions: &[],
    knobs: &[
        Knob {
            name: "preempt",
            default: "false",
            what: "true: jobs preempt running jobs behind them before they share",
        },
        Knob {
            name: "min_left",
            default: "1m",
            what: "jobs with less work left than this are not preempted; a span",
        },
        Knob {
            name: "depth",
            default: "200",
            what: "number of jobs for which room beside others is sought in vain before the search ends; a whole number",
        },
    ],
    build: |knobs| {
        Ok(Box::new(ShareDiscipline {
            preempt: knobs.get("preempt", "true or false")?,
            min_left: knobs.span("min_left")?,
            depth: knobs.get("depth", "a whole number")?,
            name: knobs.name(),
        }))
    },
};

/// Starts jobs alone or beside others.
#[derive(Debug, Clone)]
struct ShareDiscipline {
    preempt: bool,
    min_left: Time,
    depth: usize,
    name: String,
}

impl Part for ShareDiscipline {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn hints(&self) -> NeedSet {
        NeedSet::EMPTY
            .and_if(self.preempt, Need::RemainingTime)
            .and_if(self.preempt, Need::Rate)
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::SharedStarts]
    }
}

impl Discipline for ShareDiscipline {
    fn walk(&mut self, round: &mut Round<'_>) {
        // Shapes that do not fit alone. Jobs of one shape differ in which jobs they may share with.
        let mut full = BTreeSet::new();
        let mut failed_searches = 0;
        while let Some(candidate) = round.next_queued() {
            if failed_searches >= self.depth {
                round.pass_over(&candidate);
                return super::backfill::fill(round);
            }
            let is_hopeless = candidate.shape.is_some_and(|shape| full.contains(&shape));
            if !is_hopeless && round.start(&candidate).is_ok() {
                continue;
            }
            if !is_hopeless && self.preempt_for(round, &candidate) {
                // More GPUs than it needed may be free now.
                full.clear();
                continue;
            }
            full.extend(candidate.shape);
            if let Some(place) = round.find_beside(&candidate) {
                round.start_beside(&candidate, place);
            } else {
                failed_searches += 1;
                if candidate.shape.is_none() {
                    round.pass_over(&candidate);
                }
            }
        }
    }

    fn needs_holders(&self) -> bool {
        self.preempt
    }

    fn preempts(&self) -> bool {
        self.preempt
    }
}

impl ShareDiscipline {
    /// Evicts holders behind the candidate, last first, until it fits; evicts none if it never does.
    fn preempt_for(&self, round: &mut Round<'_>, candidate: &Candidate) -> bool {
        let (now, min_left) = (round.now(), Work(self.min_left.0.max(0) as u64));
        let may_evict = move |job: &Job| job.remaining(now).is_none_or(|left| left >= min_left);
        if !self.preempt || !round.has_enough_gpus_behind(candidate, may_evict) {
            return false;
        }
        let here = round.checkpoint();
        while let Some(victim) = round.last_holder_behind(candidate, may_evict) {
            round.evict(victim);
            if round.start(candidate).is_ok() {
                return true;
            }
        }
        round.rollback(here);
        false
    }
}
