//! Optimus: one more GPU at a time to the job whose remaining time it shortens most.
//!
//! Every job first gets its minimum, in queue order. Then, while GPUs are left, the next one goes to the job with the
//! largest decrease in remaining time by its speed-up curve: left(w) − left(w + 1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dovetail_engine::{Feature, Job, Need, NeedSet, Part, Sizing, Widths};
use dovetail_model::{JobSpec, Time, Work};

use super::resizing::{OVERHEAD, Resizing, SizedQueue};
use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "optimus",
    what: "one more GPU at a time to the job whose remaining time it shortens most, by its speed-up curve",
    source: "Optimus (EuroSys'18)",
    key: "largest left(w) − left(w+1) first",
    companions: &[(Kind::Discipline, "replan")],
    knobs: &[
        Knob {
            name: "interval",
            default: "10m",
            what: "how long a running job keeps its size after each change, at least; a span",
        },
        OVERHEAD,
    ],
    build: |knobs| {
        Ok(Box::new(Optimus {
            resizing: Resizing::of(knobs, true)?,
            name: knobs.name(),
        }))
    },
};

/// Sizes by marginal gains.
#[derive(Debug, Clone)]
struct Optimus {
    resizing: Resizing,
    name: String,
}

impl Part for Optimus {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate, Need::Scaling, Need::Width].into()
    }

    fn without(&self, need: Need) -> &'static str {
        match need {
            Need::RemainingTime => "given no GPUs beyond the minimum",
            _ => need.without(),
        }
    }

    fn requires(&self) -> &'static [Feature] {
        &[Feature::JointPlanning]
    }
}

impl Sizing for Optimus {
    fn min_gpus(&self, job: &JobSpec) -> u32 {
        job.min_gpus
    }

    fn widths(&mut self, queue: &[&Job], gpus: u32, now: Time) -> Option<Widths> {
        let distribute = |queue: &SizedQueue<'_>, widths: &mut [u32], left: &mut u32| {
            let mut gains: BinaryHeap<(i64, Reverse<usize>)> = queue
                .jobs
                .iter()
                .enumerate()
                .filter(|(i, _)| widths[*i] > 0 && queue.may_change(*i))
                .filter_map(|(i, job)| Some((gain(job, widths[i], queue.now)?, Reverse(i))))
                .collect();
            while *left > 0 {
                let Some((_, Reverse(i))) = gains.pop() else {
                    break;
                };
                widths[i] += 1;
                *left -= 1;
                if let Some(next) = gain(queue.jobs[i], widths[i], queue.now) {
                    gains.push((next, Reverse(i)));
                }
            }
        };
        Some(self.resizing.widths(queue, gpus, now, distribute))
    }
}

/// How much sooner the job would finish with one more GPU; `None` if it cannot use one, or its length is unknown.
fn gain(job: &Job, width: u32, now: Time) -> Option<i64> {
    if width >= job.spec.max_gpus {
        return None;
    }
    let left: Work = job.remaining(now)?;
    let time = |gpus| job.spec.scaling.rate(gpus, job.spec.gpus).time_for(left).0;
    Some(time(width) - time(width + 1)).filter(|gain| *gain > 0)
}
