//! Changing a workload as a whole: denser or sparser arrivals, fewer jobs.

use dovetail_model::Time;

use crate::job::{TraceJob, Workload};

/// A workload that cannot be brought to what is asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RescaleError {
    /// The target makes no sense.
    #[error("{what}: found {found}, expected a number above 0")]
    Target {
        /// What was set.
        what: &'static str,
        /// To what.
        found: f64,
    },
    /// All jobs arrive at once, so there is nothing to stretch.
    #[error(
        "{source_name}: all {jobs} jobs come in at the same time, so arrivals cannot be made denser or sparser"
    )]
    NoSpan {
        /// The workload.
        source_name: String,
        /// Its jobs.
        jobs: usize,
    },
    /// The stretched times do not fit.
    #[error("{source_name}: stretched by {factor:e}, submit times are out of range")]
    TooLong {
        /// The workload.
        source_name: String,
        /// How far it would have been stretched.
        factor: f64,
    },
}

impl TraceJob {
    /// Run time times GPUs.
    pub fn gpu_seconds(&self) -> f64 {
        self.work.as_secs_f64() * f64::from(self.gpus) * f64::from(self.gpu_milli) / 1000.0
    }
}

impl Workload {
    /// From the first submission to the last.
    pub fn span(&self) -> Time {
        match (self.jobs.first(), self.jobs.last()) {
            (Some(first), Some(last)) => last.submit.since(first.submit),
            _ => Time::ZERO,
        }
    }

    /// Run time times GPUs of all jobs.
    pub fn gpu_seconds(&self) -> f64 {
        self.jobs.iter().map(TraceJob::gpu_seconds).sum()
    }

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

    /// Keeps the first so many jobs in order of submission.
    pub fn truncate(&mut self, jobs: usize) {
        if jobs < self.jobs.len() {
            self.notes
                .push(format!("kept the first {jobs} of {} jobs", self.jobs.len()));
            self.jobs.truncate(jobs);
        }
    }

    /// Stretches the time between arrivals until they span so many seconds. The first job stays where it is, and
    /// deadlines keep their distance from the submission.
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

fn positive(what: &'static str, found: f64) -> Result<f64, RescaleError> {
    if found.is_finite() && found > 0.0 {
        Ok(found)
    } else {
        Err(RescaleError::Target { what, found })
    }
}
