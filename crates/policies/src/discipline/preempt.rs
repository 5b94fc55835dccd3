//! Preempt: jobs ahead in the queue preempt those behind them, and jobs that do not fit are passed over.
//!
//! The jobs that run are exactly those that a walk over an empty cluster would choose (first fit with skip), but the walk
//! starts from what is running: holders are evicted from the end of the queue until the job ahead fits, and each evicted
//! job is considered again in its turn, on its own GPUs if these are still free.

use dovetail_engine::{Candidate, Discipline, Feature, Job, Part, Round};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "preempt",
    what: "jobs ahead in the queue preempt running jobs behind them; jobs that do not fit are passed over",
    source: "first fit with skip over all jobs, as in Tiresias and Muri",
    key: "every job that fits runs, in order, whether it was running or not",
    companions: &[],
    knobs: &[Knob {
        name: "min_run",
        default: "0",
        what: "how long a job is safe from preemption after each start; a span",
    }],
    build: |knobs| {
        Ok(Box::new(Preempt {
            min_run: knobs.span("min_run")?,
            name: knobs.name(),
        }))
    },
};

/// Most evictions for a job that has enough free GPUs but waits for more CPU and memory than they come with.
const MOST_ATTEMPTS: u32 = 64;

/// Preemption by order.
#[derive(Debug, Clone)]
struct Preempt {
    min_run: Time,
    name: String,
}

impl Part for Preempt {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::TenancyLimits]
    }
}

impl Discipline for Preempt {
    fn walk(&mut self, round: &mut Round<'_>) {
        loop {
            let before = round.checkpoint();
            self.walk_once(round);
            if !round.revisit(&before) {
                break;
            }
        }
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn starts_all_that_fit(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

fn has_gpus(round: &Round<'_>, candidate: &Candidate) -> bool {
    let spec = &round.job(candidate.job).spec;
    round.cluster().free_gpus(spec.gpu_type) >= spec.gpus
}

impl Preempt {
    fn walk_once(&self, round: &mut Round<'_>) {
        let (now, mut refused) = (round.now(), false);
        let min_run = self.min_run;
        let may_evict = move |job: &Job| {
            min_run == Time::ZERO || !job.holds_gpus() || now.since(job.held_since) >= min_run
        };
        while let Some(candidate) = round.next_queued() {
            if round.start(&candidate).is_ok() {
                continue;
            }
            if !round.has_holder_behind(&candidate) {
                // It cannot preempt any job, nor can those behind it: only jobs that fit can start now.
                round.pass_over(&candidate);
                super::backfill::fill(round);
                break;
            }
            let here = round.checkpoint();
            let mut started = false;
            if round.has_enough_gpus_behind(&candidate, may_evict) {
                let mut attempts = 0;
                while let Some(victim) = round.last_holder_behind(&candidate, may_evict) {
                    round.evict(victim);
                    started = round.start(&candidate).is_ok();
                    attempts += u32::from(round.requires_headroom() && has_gpus(round, &candidate));
                    if started || attempts == MOST_ATTEMPTS {
                        break;
                    }
                }
            }
            if !started {
                round.rollback(here);
                round.pass_over(&candidate);
                refused = true;
            }
        }
        if refused {
            self.wake_when_a_holder_may_be_evicted(round);
        }
    }

    /// Requests a decision as soon as one of the holders has run for `min_run`: a job that could not preempt it may then.
    fn wake_when_a_holder_may_be_evicted(&self, round: &mut Round<'_>) {
        if self.min_run == Time::ZERO {
            return;
        }
        let now = round.now();
        let ends = round
            .holders()
            .into_iter()
            .map(|rank| round.job(rank.job).held_since + self.min_run);
        if let Some(at) = ends.filter(|at| *at > now).min() {
            round.wake_at(at);
        }
    }
}
