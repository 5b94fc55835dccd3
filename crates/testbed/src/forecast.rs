//! The same jobs in the simulator, from what the cluster measured.

use std::num::NonZeroU64;
use std::sync::Arc;

use dovetail_experiment::{ExperimentError, Run, RunSpec};
use dovetail_model::{ClusterSpec, IdVec, ModelId, Time, Work};
use dovetail_workload::{JobLabel, Names, TraceJob, Workload};

use crate::TestbedError;
use crate::calibration::{ModelProfile, Profiles, start_s};
use crate::cluster::LiveCluster;
use crate::live::Outcome;
use crate::plan::{Plan, PlannedJob, profile_of};
use crate::policy::RunPolicy;

/// Columns with the measured stages of a step, in milliseconds.
const STAGE_COLUMNS: [&str; 3] = ["resource_time_0", "resource_time_1", "resource_time_2"];

/// Simulates the run of a policy.
pub(crate) fn simulate(
    policy: &RunPolicy,
    plan: &Plan,
    profiles: &Profiles,
    cluster: &LiveCluster,
) -> Result<Vec<Outcome>, TestbedError> {
    let workload = Arc::new(workload(plan, profiles)?);
    let nodes = ClusterSpec::uniform(cluster.nodes, cluster.gpus_per_node);
    let mut run = Run::with_workload(&policy.text, &RunSpec::default(), Arc::clone(&workload), nodes, 1)?;
    run.config.restart_cost = Time::from_secs_f64(start_s(profiles));
    run.config.reports_steps = true;
    let record = run.simulate(None, &mut |_| {})?;
    let rows = record.rows.iter().filter_map(|row| {
        Some(Outcome {
            job: workload.jobs[row.job.0 as usize].label.to_string(),
            submitted_s: row.submit.as_secs_f64(),
            started_s: row.first_start?.as_secs_f64(),
            ended_s: row.finish?.as_secs_f64(),
            stops: u64::from(row.preemptions),
        })
    });
    let outcomes: Vec<Outcome> = rows.collect();
    match outcomes.len() == plan.jobs.len() {
        true => Ok(outcomes),
        false => Err(ExperimentError::NothingFinished.into()),
    }
}

/// Returns the jobs with the run times that follow from the profiles.
fn workload(plan: &Plan, profiles: &Profiles) -> Result<Workload, TestbedError> {
    let mut models: IdVec<ModelId, String> = IdVec::default();
    let mut jobs = Vec::new();
    for job in &plan.jobs {
        let kind = &job.selected.kind;
        let known = models.iter().find(|(_, name)| **name == kind.model);
        let model = match known.map(|(id, _)| id) {
            Some(id) => id,
            None => models.push(kind.model.clone()),
        };
        jobs.push(trace_job(job, model, profile_of(profiles, kind)?));
    }
    jobs.sort_by_key(|job: &TraceJob| job.submit);
    Ok(Workload {
        source: "forecast".to_owned(),
        jobs,
        names: Names {
            models,
            ..Names::default()
        },
        extra_columns: STAGE_COLUMNS.map(str::to_owned).to_vec(),
        notes: Vec::new(),
    })
}

fn trace_job(job: &PlannedJob, model: ModelId, profile: &ModelProfile) -> TraceJob {
    let work = Work::from_secs_f64(job.run_s).max(Work(1));
    let gpu_ms = (profile.step_ms - profile.data_ms - profile.net_ms).max(0.0);
    let stages = [profile.data_ms, gpu_ms, profile.net_ms];
    let submit = Time::from_secs_f64(job.submit_s);
    TraceJob {
        model: Some(model),
        iterations: Some(job.steps),
        expected_us: NonZeroU64::new(work.0),
        extra: Some(stages.map(|ms| ms.to_string().into_boxed_str()).into()),
        ..TraceJob::new(
            JobLabel::from_text(&job.selected.job),
            submit,
            work,
            job.selected.kind.gpus,
        )
    }
}
