//! Tiresias: discretised two-dimensional least attained service.
//!
//! A job's GPU time puts it into one of a few queues; within a queue jobs are served in order of submission. A job that has
//! waited `promote` times as long as it was served returns to the first queue, as if it had used nothing.

use dovetail_engine::{Job, Part, QueueKey, QueueOrder, RunState};
use dovetail_model::Time;

use super::las::reaches;
use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "tiresias",
    what: "discretised 2-D LAS: queues by GPU time used, first come first served within a queue",
    source: "Tiresias (NSDI'19)",
    key: "queue of the GPU time used, then time of submission",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[
        Knob {
            name: "limits",
            default: "3250/7200",
            what: "GPU-seconds at which a job moves to the next queue; 3250*3: ten limits, each three times the one before",
        },
        Knob {
            name: "promote",
            default: "0",
            what: "a job returns to the first queue after waiting this many times the time it was served; 0: never",
        },
    ],
    build: |knobs| {
        let limits = knobs
            .increasing("limits")?
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

/// Least attained service in queues.
#[derive(Debug, Clone)]
struct Tiresias {
    limits: Vec<i128>,
    promote: f64,
    name: String,
}

impl Part for Tiresias {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl QueueOrder for Tiresias {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        let service = job.service(now);
        let queue = self.limits.partition_point(|limit| *limit <= service);
        let key = QueueKey::fixed(i128::from(job.spec.submit.0));
        let speed = if job.holds_gpus() {
            i64::from(job.width())
        } else {
            0
        };
        if job.run_state == RunState::Idle && job.allocation.is_none() && queue > 0 && self.promote > 0.0 {
            let served = service as f64 / f64::from(job.spec.gpus.max(1));
            let due = job
                .waiting_since
                .saturating_add(Time((self.promote * served) as i64));
            if due <= now {
                return key.in_band(0).with_fresh_start();
            }
            return key.in_band(queue as i32).until(Some(due));
        }
        let falls = self
            .limits
            .get(queue)
            .and_then(|limit| reaches(limit - service, speed, now));
        key.in_band(queue as i32).until(falls)
    }

    fn time_slice(&self, gpus: u32) -> Option<Time> {
        let limit = self.limits.first()? / i128::from(gpus.max(1));
        Some(Time(i64::try_from(limit).unwrap_or(i64::MAX)))
    }
}
