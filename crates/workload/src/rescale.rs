//! Changes to a whole workload: denser or sparser arrivals, fewer jobs.

use dovetail_model::Time;

use crate::job::Workload;

/// A workload that cannot be rescaled as requested.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RescaleError {
    /// The target is not a positive number.
    #[error("{target}: found {found}, expected a number above 0")]
    Target {
        /// The target.
        target: &'static str,
        /// Its value.
        found: f64,
    },
    /// All jobs arrive at once.
    #[error("{source_name}: cannot rescale arrivals: all {jobs} jobs arrive at the same time")]
    NoSpan {
        /// The workload.
        source_name: String,
        /// Number of its jobs.
        jobs: usize,
    },
    /// The stretched times are out of range.
    #[error("{source_name}: stretched by {factor:e}, submit times are out of range")]
    TooLong {
        /// The workload.
        source_name: String,
        /// Factor by which it would have been stretched.
        factor: f64,
    },
}

impl Workload {
    /// Stretches arrivals so that jobs ask for `load` times `gpus` GPUs on average from the first arrival to the last.
    pub fn rescale_load(&mut self, load: f64, gpus: u32) -> Result<(), RescaleError> {
        let target = positive("load", load)? * positive("GPUs of the cluster", f64::from(gpus))?;
        self.stretch(self.gpu_seconds() / target)
    }

    /// Stretches arrivals so that this many jobs arrive each hour on average.
    pub fn rescale_rate(&mut self, jobs_per_hour: f64) -> Result<(), RescaleError> {
        let rate = positive("jobs per hour", jobs_per_hour)?;
        self.stretch(self.jobs.len().saturating_sub(1) as f64 * 3600.0 / rate)
    }

    /// Keeps the first `jobs` jobs in order of submission.
    pub fn truncate(&mut self, jobs: usize) {
        if jobs < self.jobs.len() {
            self.notes
                .push(format!("kept the first {jobs} of {} jobs", self.jobs.len()));
            self.jobs.truncate(jobs);
        }
    }

    /// Stretches the time between arrivals so that they span `span_s` seconds. The submission of the first job and the
    /// distances of deadlines from submissions do not change.
    fn stretch(&mut self, span_s: f64) -> Result<(), RescaleError> {
        let (source_name, jobs) = (self.source.clone(), self.jobs.len());
        let span = self.span();
        if span == Time::ZERO {
            return if jobs <= 1 {
                Ok(())
            } else {
                Err(RescaleError::NoSpan { source_name, jobs })
            };
        }
        let first = self.jobs[0].submit;
        let factor = span_s / span.as_secs_f64();
        if !factor.is_finite() || first.as_secs_f64() + span_s > crate::decimal::MAX_SECONDS as f64 {
            return Err(RescaleError::TooLong { source_name, factor });
        }
        for job in &mut self.jobs {
            let submit = first + Time((job.submit.since(first).0 as f64 * factor).round() as i64);
            job.deadline = job.deadline.map(|d| d - job.submit + submit);
            job.submit = submit;
        }
        Ok(())
    }
}

fn positive(target: &'static str, found: f64) -> Result<f64, RescaleError> {
    if found.is_finite() && found > 0.0 {
        Ok(found)
    } else {
        Err(RescaleError::Target { target, found })
    }
}
