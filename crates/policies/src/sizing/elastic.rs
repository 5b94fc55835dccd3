//! Elastic: shrink jobs so that others start sooner, and grow them on idle GPUs.
//!
//! In queue order every job first gets its minimum; the rest is given out in the same order up to what was asked for, and
//! then up to the maximum.

use dovetail_engine::{Feature, Job, Need, NeedSet, Part, Sizing, Widths};
use dovetail_model::{JobSpec, Time};

use super::resizing::{OVERHEAD, Resizing, SizedQueue};
use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "elastic",
    what: "elastic jobs shrink to their minimum before others wait, and grow to their maximum on idle GPUs",
    source: "rule",
    key: "minimum for all in order, then what was asked for, then maximum",
    companions: &[(Kind::Discipline, "replan")],
    knobs: &[
        Knob {
            name: "interval",
            default: "5m",
            what: "how long a running job keeps its size after each change, at least; a span",
        },
        OVERHEAD,
    ],
    build: |knobs| {
        Ok(Box::new(Elastic {
            resizing: Resizing::of(knobs, false)?,
            name: knobs.name(),
        }))
    },
};

/// Elastic sizes in queue order.
#[derive(Debug, Clone)]
struct Elastic {
    resizing: Resizing,
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
        let distribute = |queue: &SizedQueue<'_>, widths: &mut [u32], left: &mut u32| {
            for most in [|job: &Job| job.spec.gpus, |job: &Job| job.spec.max_gpus] {
                for (i, (width, job)) in widths.iter_mut().zip(queue.jobs).enumerate() {
                    if *width > 0 && queue.may_change(i) {
                        let more = most(job).saturating_sub(*width).min(*left);
                        *width += more;
                        *left -= more;
                    }
                }
            }
        };
        Some(self.resizing.widths(queue, gpus, now, distribute))
    }
}
