//! Elastic: shrink to start sooner, grow where GPUs are left over.
//!
//! In the order of the line every job first gets the least it can run on; what is left is dealt out in the same order
//! up to what was asked for, and then up to the most it can use.

use dovetail_engine::{Job, Knowledge, Part, Sizing};
use dovetail_model::{JobSpec, Time};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "elastic",
    what: "elastic jobs shrink to their minimum before others wait, and grow to their maximum on idle GPUs",
    source: "rule; needs discipline replan",
    key: "min for all in order, then asked, then max",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "interval",
        default: "5m",
        what: "a running job keeps its size for so long; a span",
    }],
    build: |knobs| {
        Ok(Box::new(Elastic {
            interval: knobs.span("interval")?,
            name: knobs.name(),
        }))
    },
};

/// Elastic sizing.
#[derive(Debug, Clone)]
pub struct Elastic {
    interval: Time,
    name: String,
}

impl Part for Elastic {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Sizing for Elastic {
    fn least(&self, job: &JobSpec) -> u32 {
        job.min_gpus
    }

    fn widths(&mut self, line: &[&Job], gpus: u32, now: Time) -> Option<Vec<u32>> {
        let mut left = gpus;
        let mut widths = floor(line, &mut left, now, self.interval);
        for most in [|job: &Job| job.spec.gpus, |job: &Job| job.spec.max_gpus] {
            for (width, job) in widths.iter_mut().zip(line) {
                if *width > 0 && !is_settled(job, now, self.interval) {
                    let more = most(job).saturating_sub(*width).min(left);
                    *width += more;
                    left -= more;
                }
            }
        }
        Some(widths)
    }

    fn changes_at(&self, line: &[&Job], now: Time) -> Option<Time> {
        settled_until(line, now, self.interval)
    }
}

/// Whether the job's size was changed so lately that it should stay.
pub(super) fn is_settled(job: &Job, now: Time, interval: Time) -> bool {
    job.is_up() && job.allocation.is_some() && now.since(job.held_since) < interval
}

/// When the first of the elastic jobs that keep their size for now may be looked at again.
pub(super) fn settled_until(line: &[&Job], now: Time, interval: Time) -> Option<Time> {
    let elastic = line.iter().filter(|job| job.spec.min_gpus < job.spec.max_gpus);
    let settled = elastic.filter(|job| is_settled(job, now, interval));
    settled.map(|job| job.held_since + interval).min()
}

/// The least for every job, in order, while it lasts; a settled job keeps what it has.
pub(super) fn floor(line: &[&Job], left: &mut u32, now: Time, interval: Time) -> Vec<u32> {
    line.iter()
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
