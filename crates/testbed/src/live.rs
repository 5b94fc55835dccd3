//! The jobs of the trace under one policy on the live cluster.

use std::time::{Duration, Instant};

use dovetail_cluster::{JobId, PolicyText};
use dovetail_console as console;
use dovetail_model::Time;
use dovetail_report::stats::quantile;
use dovetail_web::views::JobView;
use serde::Serialize;
use serde_json::json;

use crate::calibration::Profiles;
use crate::cluster::{LiveCluster, POLL};
use crate::plan::{Plan, PlannedJob, SelectedJob, profile_of};
use crate::policy::RunPolicy;
use crate::trainer::Trainer;
use crate::{LiveOptions, TestbedError};

/// Number of lines of the output of a failed job in an error.
const LOG_LINES: usize = 5;

/// What happened to one job, or is forecast to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// Its id in the trace.
    pub(crate) job: String,
    /// Seconds after the first submission.
    pub(crate) submitted_s: f64,
    pub(crate) started_s: f64,
    pub(crate) ended_s: f64,
    /// How often it was stopped before its end.
    pub(crate) stops: u64,
}

/// The metrics of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Metrics {
    pub(crate) avg_jct_s: f64,
    pub(crate) makespan_s: f64,
    pub(crate) p99_jct_s: f64,
    /// Number of stops of all jobs before their ends.
    pub(crate) stops: u64,
}

impl Outcome {
    pub(crate) fn jct_s(&self) -> f64 {
        self.ended_s - self.submitted_s
    }

    /// Returns the metrics over all jobs of a run.
    pub(crate) fn metrics(outcomes: &[Outcome]) -> Metrics {
        let mut jcts: Vec<f64> = outcomes.iter().map(Outcome::jct_s).collect();
        jcts.sort_by(f64::total_cmp);
        Metrics {
            avg_jct_s: jcts.iter().sum::<f64>() / jcts.len().max(1) as f64,
            makespan_s: outcomes.iter().map(|o| o.ended_s).fold(0.0, f64::max),
            p99_jct_s: quantile(&jcts, 0.99).unwrap_or(0.0),
            stops: outcomes.iter().map(|o| o.stops).sum(),
        }
    }
}

/// Submits all jobs at their times and waits until they have completed.
pub(crate) async fn run(
    options: &LiveOptions,
    cluster: &LiveCluster,
    trainer: &Trainer,
    plan: &Plan,
    profiles: &Profiles,
    policy: &RunPolicy,
) -> Result<Vec<Outcome>, TestbedError> {
    cluster
        .set_policy(PolicyText {
            policy: policy.text.clone(),
            parts: std::collections::BTreeMap::new(),
        })
        .await?;
    options.note(&format!("running {} jobs under {}", plan.jobs.len(), policy.text));
    let limit_s = plan.limit_s(cluster.gpus());
    let begun = Instant::now();
    let bar = console::progress_bar(plan.jobs.len() as u64, &policy.name, options.quiet);
    let mut ids: Vec<JobId> = Vec::new();
    for job in &plan.jobs {
        let due = begun + Duration::from_secs_f64(job.submit_s);
        tokio::time::sleep_until(due.into()).await;
        let run_s = profile_of(profiles, &job.selected.kind).map(|_| job.run_s)?;
        ids.push(submit(cluster, trainer, job, run_s).await?);
    }
    loop {
        let unfinished = cluster.unfinished().await?;
        bar.set_position((ids.len() - unfinished.len().min(ids.len())) as u64);
        if unfinished.is_empty() {
            break;
        }
        if begun.elapsed().as_secs() > limit_s {
            return Err(TestbedError::Timeout {
                unfinished: unfinished.len(),
                jobs: ids.len(),
                limit_s,
                policy: policy.text.clone(),
            });
        }
        tokio::time::sleep(POLL).await;
    }
    bar.finish_and_clear();
    let mut views = Vec::new();
    for id in ids {
        views.push(cluster.job(id).await?);
    }
    outcomes(plan, &views)
}

async fn submit(
    cluster: &LiveCluster,
    trainer: &Trainer,
    job: &PlannedJob,
    run_s: f64,
) -> Result<JobId, TestbedError> {
    let selected = &job.selected;
    let mut keys = json!({
        "name": format!("muri-{}-{}", selected.job, selected.kind.model),
        "command": trainer.command(selected, job.steps),
        "gpus": selected.kind.gpus,
        "model": selected.kind.model,
        "total_steps": job.steps,
        "expected": format!("{run_s:.3}s"),
    });
    if let Some(stages) = trainer.stated_stages(selected) {
        keys["stages"] = json!(stages);
    }
    cluster.submit(&selected.job, keys).await
}

fn outcomes(plan: &Plan, views: &[JobView]) -> Result<Vec<Outcome>, TestbedError> {
    let first = views.iter().map(|view| view.submitted).min();
    let since = |at: Time| at.since(first.unwrap_or(at)).as_secs_f64();
    let jobs = plan.jobs.iter().zip(views);
    jobs.map(|(job, view)| match view.ended {
        Some(ended) if view.state == "completed" => Ok(Outcome {
            job: job.selected.job.clone(),
            submitted_s: since(view.submitted),
            started_s: since(view.started.unwrap_or(ended)),
            ended_s: since(ended),
            stops: view.attempt_count.saturating_sub(1),
        }),
        _ => Err(failure_of(&job.selected, view)),
    })
    .collect()
}

/// Returns the error of a job that did not complete.
pub(crate) fn failure_of(job: &SelectedJob, view: &JobView) -> TestbedError {
    let output = view
        .attempts
        .last()
        .map_or("", |attempt| attempt.last_output.as_str());
    let lines: Vec<&str> = output.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    TestbedError::JobFailed {
        job: job.job.clone(),
        model: job.kind.model.clone(),
        detail: format!("{}: {}", view.state, view.detail),
        log: last.iter().map(|line| format!("\n  {line}")).collect(),
    }
}
