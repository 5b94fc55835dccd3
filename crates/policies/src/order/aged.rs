//! Any order with protection against starvation: a job that has waited too long moves to the front and stays there.

use dovetail_engine::{ClusterLoad, Job, Knowledge, LoadError, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::Time;
use serde_json::Value;

/// Another order with ageing, as in Blox: after `after` without GPUs a job precedes all jobs that have not aged.
#[derive(Debug, Clone)]
pub struct Aged {
    inner: Box<dyn QueueOrder>,
    after: Time,
}

/// The band of jobs that have aged.
const FRONT: i32 = i32::MIN;
/// The value that marks a job as aged.
const AGED: u32 = 1;

impl Aged {
    /// Wraps `inner` so that jobs age after waiting this long.
    pub fn new(inner: Box<dyn QueueOrder>, after: Time) -> Self {
        Self { inner, after }
    }

    fn aged(&self, key: QueueKey, job: &Job, now: Time) -> QueueKey {
        if job.order_note == AGED {
            return key.in_band(FRONT);
        }
        if !job.is_queued() {
            return key;
        }
        let due = job.waiting_since + self.after;
        if due <= now {
            return key.in_band(FRONT).with_note(AGED);
        }
        let until = key.until.map_or(due, |u| u.min(due));
        key.until(Some(until))
    }
}

impl Part for Aged {
    fn name(&self) -> String {
        format!(
            "{} (aged after {} s)",
            self.inner.name(),
            self.after.as_secs_f64()
        )
    }

    fn needs(&self) -> NeedSet {
        self.inner.needs()
    }

    fn hints(&self) -> NeedSet {
        self.inner.hints()
    }

    fn knowledge(&self) -> Knowledge {
        self.inner.knowledge()
    }

    fn save(&self) -> Value {
        self.inner.save()
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.inner.load(saved)
    }
}

impl QueueOrder for Aged {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        self.aged(self.inner.key(job, now), job, now)
    }

    fn key_under_load(&self, job: &Job, load: &ClusterLoad, now: Time) -> QueueKey {
        self.aged(self.inner.key_under_load(job, load, now), job, now)
    }

    fn depends_on_all_jobs(&self) -> bool {
        self.inner.depends_on_all_jobs()
    }

    fn job_finished(&mut self, job: &Job, now: Time) -> bool {
        self.inner.job_finished(job, now)
    }
}
