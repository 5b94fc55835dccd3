//! Preempt: whoever stands behind gives way to whoever stands ahead, and what does not fit is passed over.
//!
//! Exactly the jobs run that a walk over an empty cluster would choose (first fit with skip), but the walk starts from
//! what is running: the last in line give way until the job ahead fits, and those who gave way come up again in their
//! turn, on their own GPUs where these are still free.

use dovetail_engine::{Candidate, Discipline, Job, Knowledge, Part, Round};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "preempt",
    what: "running jobs give way to jobs ahead of them in line; what does not fit is passed over",
    source: "first fit with skip over all jobs, as in Tiresias and Muri",
    key: "every job that fits runs, in order, running or not",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "min_run",
        default: "0",
        what: "a job is left alone for so long after each start; a span",
    }],
    build: |knobs| {
        Ok(Box::new(Preempt {
            min_run: knobs.span("min_run")?,
            name: knobs.name(),
        }))
    },
};

/// For a job that would rather wait than start without enough CPU and memory, so many give way after there are GPUs for it,
/// at most.
const MOST_IN_VAIN: u32 = 64;

/// Preemption by order.
#[derive(Debug, Clone)]
pub struct Preempt {
    min_run: Time,
    name: String,
}

impl Part for Preempt {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Discipline for Preempt {
    fn walk(&mut self, round: &mut Round<'_>) {
        loop {
            let before = round.checkpoint();
            self.walk_once(round);
            if !round.look_again(&before) {
                break;
            }
        }
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn fills_up(&self) -> bool {
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
        let (now, mut wanted) = (round.now(), false);
        let min_run = self.min_run;
        let may_go =
            move |job: &Job| min_run == Time::ZERO || !job.is_up() || now.since(job.held_since) >= min_run;
        while let Some(candidate) = round.next_in_line() {
            if round.start(&candidate).is_ok() {
                continue;
            }
            if !round.anyone_behind(&candidate) {
                // Nobody gives way to this one, nor to any behind it: only what fits can start now.
                round.pass_over(&candidate);
                super::backfill::fill(round);
                break;
            }
            let here = round.checkpoint();
            let mut started = false;
            if round.enough_behind(&candidate, may_go) {
                let mut in_vain = 0;
                while let Some(victim) = round.last_behind(&candidate, may_go) {
                    round.evict(victim);
                    started = round.start(&candidate).is_ok();
                    in_vain += u32::from(round.is_choosy() && has_gpus(round, &candidate));
                    if started || in_vain == MOST_IN_VAIN {
                        break;
                    }
                }
            }
            if !started {
                round.rollback(here);
                round.pass_over(&candidate);
                wanted = true;
            }
        }
        if wanted {
            self.wake_when_someone_may_go(round);
        }
    }

    /// A job that nobody gave way to may be luckier as soon as one of the holders has run for long enough.
    fn wake_when_someone_may_go(&self, round: &mut Round<'_>) {
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
