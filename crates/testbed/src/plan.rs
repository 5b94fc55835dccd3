//! Which jobs of the trace run, and how long they are.

use std::collections::BTreeMap;

use dovetail_workload::{TraceJob, Workload};
use serde::Serialize;

use crate::TestbedError;
use crate::calibration::{ModelProfile, Profiles};

/// Fewest steps of a job.
const MIN_STEPS: u64 = 20;
/// Most steps of a job.
const MAX_STEPS: u64 = 10_000_000;
/// Run time of a policy without sharing, in seconds, for which the scale is chosen if none is given.
const TARGET_S: f64 = 30.0;

/// A model on a number of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Kind {
    pub(crate) model: String,
    pub(crate) gpus: u32,
}

/// A job of the trace.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SelectedJob {
    /// Its id in the trace.
    pub(crate) job: String,
    #[serde(flatten)]
    pub(crate) kind: Kind,
    /// Its GPUs in the trace.
    pub(crate) trace_gpus: u32,
    pub(crate) batch_size: Option<u64>,
    /// When it is submitted, in seconds of the trace after the first job.
    pub(crate) trace_submit_s: f64,
    /// Its run time in the trace, in seconds.
    pub(crate) trace_run_s: f64,
    /// Its stages in the trace, in milliseconds.
    pub(crate) trace_stages_ms: [f64; 3],
}

/// Returns the first jobs of the trace, with no more GPUs than the cluster has.
pub(crate) fn select(trace: &Workload, count: u32, gpus: u32) -> Result<Vec<SelectedJob>, TestbedError> {
    let first = trace.jobs.first().map_or(0.0, |job| job.submit.as_secs_f64());
    let jobs = trace.jobs.iter().take(count as usize);
    jobs.map(|job| {
        let missing = |column| TestbedError::Incomplete {
            file: trace.source.clone(),
            job: job.label.to_string(),
            column,
        };
        let model = job.model.ok_or_else(|| missing("model_name"))?;
        Ok(SelectedJob {
            job: job.label.to_string(),
            kind: Kind {
                model: trace.names.models[model].clone(),
                gpus: job.gpus.min(gpus),
            },
            trace_gpus: job.gpus,
            batch_size: trace.extra_f64(job, "batch_size").map(|n| n as u64),
            trace_submit_s: job.submit.as_secs_f64() - first,
            trace_run_s: job.work.as_secs_f64(),
            trace_stages_ms: stages(trace, job).ok_or_else(|| missing("resource_time_0 to _2"))?,
        })
    })
    .collect()
}

fn stages(trace: &Workload, job: &TraceJob) -> Option<[f64; 3]> {
    let stage = |name| trace.extra_f64(job, name).filter(|ms| (0.0..=1e7).contains(ms));
    let times = [
        stage("resource_time_0")?,
        stage("resource_time_1")?,
        stage("resource_time_2")?,
    ];
    (times.iter().sum::<f64>() > 0.0).then_some(times)
}

/// A job as it is submitted.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlannedJob {
    #[serde(flatten)]
    pub(crate) selected: SelectedJob,
    /// When it is submitted, in seconds after the first job.
    pub(crate) submit_s: f64,
    pub(crate) steps: u64,
    /// Its run time alone, start included, in seconds.
    pub(crate) run_s: f64,
}

/// All jobs as they are submitted.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plan {
    /// Factor on the times of the trace.
    pub(crate) scale: f64,
    pub(crate) jobs: Vec<PlannedJob>,
}

impl Plan {
    /// Scales submissions and run times; the steps of a job follow from the duration of a step of its model here.
    pub(crate) fn new(
        jobs: Vec<SelectedJob>,
        profiles: &Profiles,
        scale: Option<f64>,
        gpus: u32,
    ) -> Result<Self, TestbedError> {
        let work: f64 = jobs
            .iter()
            .map(|job| job.trace_run_s * f64::from(job.kind.gpus))
            .sum();
        let scale = scale.unwrap_or_else(|| (TARGET_S * f64::from(gpus) / work.max(1e-6)).min(1.0));
        let planned = jobs.into_iter().map(|job| {
            let profile = profile_of(profiles, &job.kind)?;
            let step_s = profile.step_ms / 1e3;
            let steps = (job.trace_run_s * scale / step_s).round() as u64;
            let steps = steps.clamp(MIN_STEPS, MAX_STEPS);
            Ok(PlannedJob {
                submit_s: job.trace_submit_s * scale,
                steps,
                run_s: profile.start_s + steps as f64 * step_s,
                selected: job,
            })
        });
        Ok(Self {
            scale,
            jobs: planned.collect::<Result<_, TestbedError>>()?,
        })
    }

    /// Returns a generous bound on the time from the first submission to the last end, in seconds.
    pub(crate) fn limit_s(&self, gpus: u32) -> u64 {
        let work = |job: &PlannedJob| job.run_s * f64::from(job.selected.kind.gpus);
        let serial = self.jobs.iter().map(work).sum::<f64>() / f64::from(gpus.max(1));
        let last = self.jobs.iter().map(|job| job.submit_s).fold(0.0, f64::max);
        (120.0 + last + 6.0 * serial).ceil() as u64
    }

    /// Returns how many jobs have fewer GPUs than in the trace.
    pub(crate) fn clipped(&self) -> usize {
        let is_clipped = |job: &&PlannedJob| job.selected.kind.gpus < job.selected.trace_gpus;
        self.jobs.iter().filter(is_clipped).count()
    }

    /// Returns how many jobs have more steps than their scaled run time, because no job has fewer than the minimum.
    pub(crate) fn lengthened(&self) -> usize {
        self.jobs.iter().filter(|job| job.steps == MIN_STEPS).count()
    }
}

/// Returns the profile of a model on a number of GPUs.
pub(crate) fn profile_of<'a>(
    profiles: &'a BTreeMap<Kind, ModelProfile>,
    kind: &Kind,
) -> Result<&'a ModelProfile, TestbedError> {
    profiles.get(kind).ok_or_else(|| TestbedError::NoProfile {
        model: kind.model.clone(),
        gpus: kind.gpus,
    })
}
