//! Stages of an iteration, from the extra columns of a trace.

use dovetail_model::Stages;

use crate::job::{TraceJob, Workload};

/// The columns with stage times: Muri's `resource_time_0`, `resource_time_1`, ... in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageColumns {
    columns: Vec<usize>,
}

impl StageColumns {
    /// Finds the columns of a workload: three (data, GPU, network) or four (storage, CPU, GPU, network); `None` otherwise.
    pub fn find(workload: &Workload) -> Option<Self> {
        let columns: Vec<usize> = (0..4)
            .map_while(|i| workload.extra_column(&format!("resource_time_{i}")))
            .collect();
        (columns.len() >= 3).then_some(Self { columns })
    }

    /// Returns the stages of one job; `None` if a number or the count of iterations is missing.
    pub fn stages(&self, job: &TraceJob) -> Option<Stages> {
        let mut times_us = [0; 4];
        for (time, column) in times_us.iter_mut().zip(&self.columns) {
            *time = micros(job.extra_text(*column)?)?;
        }
        let iterations = job.iterations.filter(|n| *n > 0)?;
        let iteration_us = u32::try_from((job.work.0 + iterations / 2) / iterations).ok()?;
        Some(Stages {
            times_us,
            four: self.columns.len() == 4,
            iteration_us,
        })
    }
}

/// Converts milliseconds as text to microseconds.
fn micros(text: &str) -> Option<u32> {
    let millis: f64 = text.trim().parse().ok()?;
    let micros = (millis * 1000.0).round();
    (0.0..=f64::from(u32::MAX))
        .contains(&micros)
        .then_some(micros as u32)
}
