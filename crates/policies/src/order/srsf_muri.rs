//! Shortest remaining service first as Muri's simulator counts it: a job that has not run yet counts with the run time that
//! the trace states, not with the sum of its iterations.

use dovetail_engine::{Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::{Time, Work};

/// Shortest remaining service first, by stated run times until a job has run. Not in the registry: it needs the run times
/// that the trace states, so it is built only for a comparison with Muri's simulator.
#[derive(Debug, Clone)]
pub struct SrsfMuri {
    stated: Vec<Work>,
}

impl SrsfMuri {
    /// Takes the stated run time of each job, by id.
    pub fn new(stated: Vec<Work>) -> Self {
        Self { stated }
    }
}

impl Part for SrsfMuri {
    fn name(&self) -> String {
        "srsf-muri".to_owned()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate].into()
    }
}

impl QueueOrder for SrsfMuri {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        match (job.first_start, self.stated.get(job.spec.id.0 as usize)) {
            (None, Some(stated)) => {
                QueueKey::fixed(i128::from(stated.0) * i128::from(job.spec.gpus) * 1_000_000)
            }
            _ => super::remaining_work(job, now, job.spec.gpus),
        }
    }
}
