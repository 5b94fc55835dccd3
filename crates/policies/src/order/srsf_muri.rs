//! Shortest remaining service first as Muri's simulator counts it: a job that never ran counts with its run time as the
//! trace states it, not with the sum of its iterations.

use dovetail_engine::{Job, Knowledge, Line, Order, Part};
use dovetail_model::{Time, Work};

/// Shortest remaining service first, by stated run times until a job has run. Not in the registry: it needs to know
/// what the trace states, so only a comparison with Muri's simulator can make it.
#[derive(Debug, Clone)]
pub struct SrsfMuri {
    stated: Vec<Work>,
}

impl SrsfMuri {
    /// With the stated run time of each job, by id.
    pub fn new(stated: Vec<Work>) -> Self {
        Self { stated }
    }
}

impl Part for SrsfMuri {
    fn name(&self) -> String {
        "srsf-muri".to_owned()
    }
}

impl Order for SrsfMuri {
    fn line(&self, job: &Job, now: Time) -> Line {
        match (job.first_start, self.stated.get(job.spec.id.0 as usize)) {
            (None, Some(stated)) => Line::fixed(i128::from(stated.0) * i128::from(job.spec.gpus) * 1_000_000),
            _ => super::remaining_line(job, now, job.spec.gpus),
        }
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge::Estimate
    }
}
