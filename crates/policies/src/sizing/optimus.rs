//! Optimus: one more GPU at a time to the job whose remaining time it shortens most.
//!
//! Every job in line first gets the least it can run on. Then, while GPUs are left, the next one goes to the job with
//! the largest drop in remaining time by its speed-up curve: left(w) − left(w + 1).

use std::collections::BinaryHeap;

use dovetail_engine::{Job, Knowledge, Part, Sizing};
use dovetail_model::{JobSpec, Time, Work};

use super::elastic::{floor, is_settled, settled_until};
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "optimus",
    what: "one more GPU at a time to the job whose remaining time it shortens most, by its speed-up curve",
    source: "Optimus (EuroSys'18); needs discipline replan",
    key: "largest left(w) − left(w+1) first",
    knowledge: Knowledge::Estimate,
    knobs: &[Knob {
        name: "interval",
        default: "10m",
        what: "a running job keeps its size for so long; a span",
    }],
    build: |knobs| {
        Ok(Box::new(Optimus {
            interval: knobs.span("interval")?,
            name: knobs.name(),
        }))
    },
};

/// Optimus' marginal gains.
#[derive(Debug, Clone)]
pub struct Optimus {
    interval: Time,
    name: String,
}

impl Part for Optimus {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Sizing for Optimus {
    fn least(&self, job: &JobSpec) -> u32 {
        job.min_gpus
    }

    fn widths(&mut self, line: &[&Job], gpus: u32, now: Time) -> Option<Vec<u32>> {
        let mut left = gpus;
        let mut widths = floor(line, &mut left, now, self.interval);
        let mut gains: BinaryHeap<(i64, std::cmp::Reverse<usize>)> = line
            .iter()
            .enumerate()
            .filter(|(i, job)| widths[*i] > 0 && !is_settled(job, now, self.interval))
            .filter_map(|(i, job)| Some((gain(job, widths[i], now)?, std::cmp::Reverse(i))))
            .collect();
        while left > 0 {
            let Some((_, std::cmp::Reverse(i))) = gains.pop() else {
                break;
            };
            widths[i] += 1;
            left -= 1;
            if let Some(next) = gain(line[i], widths[i], now) {
                gains.push((next, std::cmp::Reverse(i)));
            }
        }
        Some(widths)
    }

    fn changes_at(&self, line: &[&Job], now: Time) -> Option<Time> {
        settled_until(line, now, self.interval)
    }
}

/// How much sooner the job would be done with one more GPU; none if it cannot use one, or nothing is known of it.
fn gain(job: &Job, width: u32, now: Time) -> Option<i64> {
    if width >= job.spec.max_gpus {
        return None;
    }
    let left: Work = job.remaining(now)?;
    let time = |gpus| job.spec.scaling.rate(gpus, job.spec.gpus).time_for(left).0;
    Some(time(width) - time(width + 1)).filter(|gain| *gain > 0)
}
