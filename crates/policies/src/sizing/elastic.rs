//! Elastic: shrink jobs so that others start sooner, and grow them on idle GPUs.
//!
//! In queue order every job first gets its minimum; the rest is given out in the same order up to what was asked for, and
//! then up to the maximum.

use dovetail_engine::{Feature, Job, Need, NeedSet, Part, Sizing, Widths};
use dovetail_model::{JobSpec, Time};

use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "elastic",
    what: "elastic jobs shrink to their minimum before others wait, and grow to their maximum on idle GPUs",
    source: "rule",
    key: "minimum for all in order, then what was asked for, then maximum",
    companions: &[(Kind::Discipline, "replan")],
    knobs: &[Knob {
        name: "interval",
        default: "5m",
        what: "how long a running job keeps its size after each change; a span",
    }],
    build: |knobs| {
        Ok(Box::new(Elastic {
            interval: knobs.span("interval")?,
            name: knobs.name(),
        }))
    },
};

/// Elastic sizes in queue order.
#[derive(Debug, Clone)]
struct Elastic {
    interval: Time,
    name: String,
}

impl Part for Elastic {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        Need::Width.into()
    }

    fn requires(&self) -> &'static [Feature] {
        &[Feature::JointPlanning]
    }
}

impl Sizing for Elastic {
    fn min_gpus(&self, job: &JobSpec) -> u32 {
        job.min_gpus
    }

    fn widths(&mut self, queue: &[&Job], gpus: u32, now: Time) -> Option<Widths> {
        let mut left = gpus;
        let mut widths = floor(queue, &mut left, now, self.interval);
        for most in [|job: &Job| job.spec.gpus, |job: &Job| job.spec.max_gpus] {
            for (width, job) in widths.iter_mut().zip(queue) {
                if *width > 0 && !is_settled(job, now, self.interval) {
                    let more = most(job).saturating_sub(*width).min(left);
                    *width += more;
                    left -= more;
                }
            }
        }
        Some(Widths {
            gpus: widths,
            valid_until: settled_until(queue, now, self.interval),
        })
    }
}

/// Whether the job's size changed so recently that it must not change again yet.
pub(super) fn is_settled(job: &Job, now: Time, interval: Time) -> bool {
    job.holds_gpus() && job.allocation.is_some() && now.since(job.held_since) < interval
}

/// When the first elastic job that keeps its size for now may be resized again.
pub(super) fn settled_until(queue: &[&Job], now: Time, interval: Time) -> Option<Time> {
    let elastic = queue.iter().filter(|job| job.spec.min_gpus < job.spec.max_gpus);
    let settled = elastic.filter(|job| is_settled(job, now, interval));
    settled.map(|job| job.held_since + interval).min()
}

/// The minimum for every job, in order, while GPUs last; a settled job keeps its size.
pub(super) fn floor(queue: &[&Job], left: &mut u32, now: Time, interval: Time) -> Vec<u32> {
    queue
        .iter()
        .map(|job| {
            let least = if is_settled(job, now, interval) {
                job.width()
            } else {
                job.spec.min_gpus
            };
            if least > *left {
                return 0;
            }
            *left -= least;
            least
        })
        .collect()
}
