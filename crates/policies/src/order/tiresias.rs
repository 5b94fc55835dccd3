//! Tiresias: discretised two-dimensional least attained service.
//!
//! A job's GPU time puts it into one of a few queues; inside a queue it is first come, first served. A job that has
//! waited `promote` times as long as it was served goes back to the first queue with its past forgiven.

use dovetail_engine::{Job, Knowledge, Line, Live, Order, Part};
use dovetail_model::Time;

use super::las::reaches;
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "tiresias",
    what: "discretised 2-D LAS: queues by GPU time used, first come first served inside a queue",
    source: "Tiresias (NSDI'19)",
    key: "queue of the GPU time used, then time of submission",
    knowledge: Knowledge::None,
    knobs: &[
        Knob {
            name: "limits",
            default: "3250/7200",
            what: "GPU-seconds at which a job falls to the next queue; 3250*3: ten of them, each three times the one before",
        },
        Knob {
            name: "promote",
            default: "0",
            what: "back to the first queue after waiting so many times the time served; 0 is never",
        },
    ],
    build: |knobs| {
        let limits = knobs
            .rising("limits")?
            .into_iter()
            .map(|s| i128::from(Time::from_secs_f64(s).0))
            .collect();
        Ok(Box::new(Tiresias {
            limits,
            promote: knobs.at_least("promote", 0.0)?,
            name: knobs.name(),
        }))
    },
};

/// Tiresias.
#[derive(Debug, Clone)]
pub struct Tiresias {
    limits: Vec<i128>,
    promote: f64,
    name: String,
}

impl Part for Tiresias {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Order for Tiresias {
    fn line(&self, job: &Job, now: Time) -> Line {
        let service = job.service(now);
        let queue = self.limits.partition_point(|limit| *limit <= service);
        let line = Line::fixed(i128::from(job.spec.submit.0));
        let speed = if job.is_up() { i64::from(job.width()) } else { 0 };
        if job.live == Live::Nothing && job.allocation.is_none() && queue > 0 && self.promote > 0.0 {
            let served = service as f64 / f64::from(job.spec.gpus.max(1));
            let due = job
                .waiting_since
                .saturating_add(Time((self.promote * served) as i64));
            if due <= now {
                return line.in_band(0).with_fresh_start();
            }
            return line.in_band(queue as i32).until(Some(due));
        }
        let falls = self
            .limits
            .get(queue)
            .and_then(|limit| reaches(limit - service, speed, now));
        line.in_band(queue as i32).until(falls)
    }

    fn turn(&self, gpus: u32) -> Option<Time> {
        let limit = self.limits.first()? / i128::from(gpus.max(1));
        Some(Time(i64::try_from(limit).unwrap_or(i64::MAX)))
    }
}
