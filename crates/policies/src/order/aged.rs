//! Any order, with a guard against starvation: a job that has waited too long goes to the front, and stays there.

use dovetail_engine::{Crowd, Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;
use serde_json::Value;

/// Another order with ageing, as Blox has it: after `after` without GPUs a job goes ahead of all that have not aged.
#[derive(Debug, Clone)]
pub struct Aged {
    inner: Box<dyn Order>,
    after: Time,
}

/// The band of those who have aged.
const FRONT: i32 = i32::MIN;
/// The note in a job that has aged.
const AGED: u32 = 1;

impl Aged {
    /// `inner`, with ageing after so long.
    pub fn new(inner: Box<dyn Order>, after: Time) -> Self {
        Self { inner, after }
    }

    fn aged(&self, line: Line, job: &Job, now: Time) -> Line {
        if job.remembered == AGED {
            return line.in_band(FRONT);
        }
        if !job.is_waiting() {
            return line;
        }
        let due = job.waiting_since + self.after;
        if due <= now {
            return line.in_band(FRONT).remembering(AGED);
        }
        let until = line.until.map_or(due, |u| u.min(due));
        line.until(Some(until))
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

    fn save(&self) -> Value {
        self.inner.save()
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        self.inner.load(saved)
    }
}

impl Order for Aged {
    fn line(&self, job: &Job, now: Time) -> Line {
        self.aged(self.inner.line(job, now), job, now)
    }

    fn line_among(&self, job: &Job, crowd: &Crowd, now: Time) -> Line {
        self.aged(self.inner.line_among(job, crowd, now), job, now)
    }

    fn looks_at_crowd(&self) -> bool {
        self.inner.looks_at_crowd()
    }

    fn knowledge(&self) -> Knowledge {
        self.inner.knowledge()
    }

    fn finished(&mut self, job: &Job, now: Time) -> bool {
        self.inner.finished(job, now)
    }
}
