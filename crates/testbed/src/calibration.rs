//! Each model alone on the GPUs that its jobs ask for: what the cluster measures is what the forecast is based on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dovetail_cluster::PolicyText;
use dovetail_report::format::counted;
use dovetail_web::views::{JobView, ProfileView};
use serde::Serialize;
use serde_json::json;

use crate::cluster::{LiveCluster, POLL};
use crate::live::failure_of;
use crate::plan::{Kind, SelectedJob, profile_of};
use crate::trainer::Trainer;
use crate::{LiveOptions, TestbedError};

/// Policy under which the models are measured: nothing is shared or preempted.
const POLICY: &str = "fifo-backfill";
/// Bound on the measurement of one model.
const LIMIT: Duration = Duration::from_secs(120);

/// A model on a number of GPUs, measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ModelProfile {
    /// Duration of a step.
    pub(crate) step_ms: f64,
    /// Part of it that waits for data.
    pub(crate) data_ms: f64,
    /// Part of it that communicates.
    pub(crate) net_ms: f64,
    /// Time from the allocation of GPUs to the end that steps do not account for: start and exit of the processes.
    pub(crate) start_s: f64,
}

/// Number of jobs after which a model that reports no steps is an error.
const ATTEMPTS: u32 = 4;

/// What was measured.
pub(crate) type Profiles = BTreeMap<Kind, ModelProfile>;

/// Returns the median start over all models, in seconds.
pub(crate) fn start_s(profiles: &Profiles) -> f64 {
    let mut starts: Vec<f64> = profiles.values().map(|profile| profile.start_s).collect();
    starts.sort_by(f64::total_cmp);
    dovetail_report::stats::quantile(&starts, 0.5).unwrap_or(0.0)
}

/// Runs each model of these jobs alone.
pub(crate) async fn measure(
    options: &LiveOptions,
    cluster: &LiveCluster,
    trainer: &Trainer,
    jobs: &[SelectedJob],
) -> Result<Profiles, TestbedError> {
    let mut kinds: BTreeMap<&Kind, &SelectedJob> = BTreeMap::new();
    for job in jobs {
        kinds.entry(&job.kind).or_insert(job);
    }
    options.note(&format!(
        "measuring {} alone",
        counted(kinds.len() as u64, "model")
    ));
    cluster
        .set_policy(PolicyText {
            policy: POLICY.to_owned(),
            parts: BTreeMap::new(),
        })
        .await?;
    let mut profiles = Profiles::new();
    // One after the other: the machine may have fewer CPUs than virtual GPUs.
    for (kind, job) in kinds {
        let profile = measure_alone(cluster, trainer, job).await?;
        options.note(&format!(
            "  {} on {}: {:.1} ms per step (data {:.1}, net {:.1}), start {:.2} s",
            kind.model,
            counted(kind.gpus.into(), "GPU"),
            profile.step_ms,
            profile.data_ms,
            profile.net_ms,
            profile.start_s
        ));
        profiles.insert(kind.clone(), profile);
    }
    for job in jobs {
        profile_of(&profiles, &job.kind)?;
    }
    Ok(profiles)
}

/// Runs jobs of the model, each longer than the one before, until the cluster has measured it. On a busy machine a job of a few
/// seconds may end before its first report.
async fn measure_alone(
    cluster: &LiveCluster,
    trainer: &Trainer,
    job: &SelectedJob,
) -> Result<ModelProfile, TestbedError> {
    let mut steps = trainer.calibration_steps(job);
    for _ in 1..ATTEMPTS {
        let view = run_alone(cluster, trainer, job, steps).await?;
        match profile(&job.kind, &view, &cluster.profiles().await?) {
            Err(TestbedError::NoProfile { .. }) => steps *= 2,
            result => return result,
        }
    }
    let view = run_alone(cluster, trainer, job, steps).await?;
    profile(&job.kind, &view, &cluster.profiles().await?)
}

/// Runs a job of the model to its end.
async fn run_alone(
    cluster: &LiveCluster,
    trainer: &Trainer,
    job: &SelectedJob,
    steps: u64,
) -> Result<JobView, TestbedError> {
    let keys = json!({
        "name": format!("measure-{}", job.kind.model),
        "command": trainer.command(job, steps),
        "gpus": job.kind.gpus,
        "model": job.kind.model,
        "total_steps": steps,
    });
    let id = cluster.submit(&job.job, keys).await?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let view = cluster.job(id).await?;
        if view.state == "completed" {
            return Ok(view);
        }
        if view.has_ended() {
            return Err(failure_of(job, &view));
        }
        if Instant::now() > deadline {
            return Err(TestbedError::Timeout {
                unfinished: 1,
                jobs: 1,
                limit_s: LIMIT.as_secs(),
                policy: format!("{POLICY}, which measures {} alone", job.kind.model),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Returns what the cluster measured.
fn profile(kind: &Kind, view: &JobView, profiles: &[ProfileView]) -> Result<ModelProfile, TestbedError> {
    let missing = || TestbedError::NoProfile {
        model: kind.model.clone(),
        gpus: kind.gpus,
    };
    let measured = profiles.iter().find(|profile| profile.model == kind.model);
    let alone = measured
        .into_iter()
        .flat_map(|profile| &profile.measurements)
        .filter(|m| m.gpus == kind.gpus && m.beside.is_none() && m.step_ms > 0.0);
    let measured = alone.max_by_key(|m| m.samples).ok_or_else(missing)?;
    let steps = view.steps.ok_or_else(missing)?;
    let allocated = view.attempts.last().map_or(view.submitted, |a| a.since);
    let held_s = view
        .ended
        .map_or(0.0, |ended| ended.since(allocated).as_secs_f64());
    Ok(ModelProfile {
        step_ms: measured.step_ms,
        data_ms: measured.data_ms,
        net_ms: measured.net_ms,
        start_s: (held_s - steps.step as f64 * measured.step_ms / 1e3).max(0.0),
    })
}
