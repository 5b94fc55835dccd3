//! Jobs: showing, stopping, holding and reprioritizing them.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use dovetail_cluster::state::ProgressSample;
use dovetail_cluster::{Actor, JobId};

use crate::accounts::User;
use crate::views::{ActionResult, BulkAction, JobView, NewPriority, ProgressPoint};
use crate::{Api, Problem};

pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobId>,
) -> Result<Json<JobView>, Problem> {
    api.with_job(&user, id, |state, job| Ok(Json(JobView::full(state, job, &user))))
        .await
}

/// Performs an action on a job, and records it in the audit log if the job belongs to another user.
async fn perform(api: &Api, user: &User, id: JobId, action: &str) -> Result<(), Problem> {
    let owner = api
        .with_controlled_job(user, id, |_, job| Ok(job.user.clone()))
        .await?;
    if action != "stop" {
        api.require_agents("stop the job, or suspend its Jobs with `kubectl`")?;
    }
    match action {
        "stop" => stop(api, id, &user.name).await?,
        "hold" => api.call(api.handle.hold(id, Actor::user(&user.name))).await?,
        "release" => api.call(api.handle.release(id, Actor::user(&user.name))).await?,
        _ => {
            return Err(Problem::not_found(format!(
                "unknown action {action:?}: expected stop, hold or release"
            )));
        }
    }
    if owner != user.name {
        api.audit
            .record(&user.name, &format!("job-{action}"), &id.to_string(), None, None);
    }
    Ok(())
}

/// Stops a job, and deletes its workload.
pub(crate) async fn stop(api: &Api, id: JobId, by: &str) -> Result<(), Problem> {
    api.call(api.handle.cancel(id, Actor::user(by))).await?;
    let deleted = api.runtime.delete_workload(id, by).await;
    deleted.map_err(|e| Problem::unavailable(e.to_string()))
}

pub(crate) async fn act(
    State(api): State<Api>,
    user: User,
    Path((id, action)): Path<(JobId, String)>,
) -> Result<Json<JobView>, Problem> {
    perform(&api, &user, id, &action).await?;
    show(State(api), user, Path(id)).await
}

pub(crate) async fn prioritize(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobId>,
    body: Result<Json<NewPriority>, JsonRejection>,
) -> Result<Json<JobView>, Problem> {
    api.require_agents("resubmit the job with another priority")?;
    let Json(new) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let before = api
        .with_controlled_job(&user, id, |_, job| Ok(job.request.priority))
        .await?;
    let actor = Actor::user(&user.name);
    api.call(api.handle.prioritize(id, new.priority, actor)).await?;
    let (before, after) = (before.into(), new.priority.into());
    api.audit.record(
        &user.name,
        "job-priority",
        &id.to_string(),
        Some(before),
        Some(after),
    );
    show(State(api), user, Path(id)).await
}

/// Maximum number of jobs in a bulk action.
const MAX_BULK: usize = 1_000;

pub(crate) async fn act_on_many(
    State(api): State<Api>,
    user: User,
    body: Result<Json<BulkAction>, JsonRejection>,
) -> Result<Json<Vec<ActionResult>>, Problem> {
    let Json(request) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    if request.ids.len() > MAX_BULK {
        return Err(Problem::invalid(format!(
            "ids: {} jobs exceed the limit of {MAX_BULK}",
            request.ids.len()
        )));
    }
    if !["stop", "hold", "release"].contains(&request.action.as_str()) {
        return Err(Problem::invalid(format!(
            "action: invalid value {:?}: expected stop, hold or release",
            request.action
        )));
    }
    let mut results = Vec::new();
    for id in request.ids {
        let result = perform(&api, &user, id, &request.action).await;
        results.push(ActionResult {
            id,
            ok: result.is_ok(),
            detail: result.err().map(|p| p.detail).unwrap_or_default(),
        });
    }
    Ok(Json(results))
}

pub(crate) async fn progress(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobId>,
) -> Result<Json<Vec<ProgressPoint>>, Problem> {
    api.with_job(&user, id, |_, job| {
        let point = |sample: &ProgressSample| ProgressPoint {
            at: sample.at,
            step: sample.step,
            total: job.progress.total,
            step_time_us: sample.step_time.0,
            checkpoint: job.progress.checkpoint.min(sample.step),
        };
        Ok(Json(job.progress_samples.iter().map(point).collect()))
    })
    .await
}
