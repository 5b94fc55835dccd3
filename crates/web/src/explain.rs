//! Why a job is pending, and the queue.

use axum::Json;
use axum::extract::{Path, State};
use dovetail_cluster::JobId;
use dovetail_cluster::state::{ClusterState, JobExplanation, JobRecord, JobState, explain_end};
use dovetail_forecast::{ForecastError, check_queued};

use crate::accounts::{Role, User};
use crate::views::{ExplanationView, JobAhead, QueueEntry, state_of};
use crate::{Api, Problem, job_list};

/// Maximum number of jobs ahead that are listed.
const MAX_AHEAD: usize = 10;

pub(crate) async fn explain(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobId>,
) -> Result<Json<ExplanationView>, Problem> {
    if let Some(job) = api.past_job(id).await? {
        let ended = |_: &ClusterState, _: &JobRecord| {
            let explanation = match &job.state {
                JobState::Ended(end) => explain_end(end),
                _ => JobExplanation::default(),
            };
            Ok(Json(ExplanationView {
                explanation,
                jobs_ahead: Vec::new(),
                alternatives: Vec::new(),
                eta: None,
                no_eta_reason: ForecastError::NotPending.to_string(),
            }))
        };
        return api.with_job(&user, id, ended).await;
    }
    // The forecast runs many simulations on a copy of the state, so that no other request waits for it.
    let explained = tokio::task::spawn_blocking(move || {
        let (mut view, snapshot) = api.handle.read(|state| {
            let job = state.job(id).filter(|job| user.may_see(state, job));
            let job = job.ok_or_else(|| Problem::not_found(format!("unknown job {id}")))?;
            let (clusters, ahead) = match job_list::is_queued(job) {
                true => (usable_clusters(state, &user), jobs_ahead(state, &user, id)),
                false => Default::default(),
            };
            let view = ExplanationView {
                explanation: state.explain(id).unwrap_or_default(),
                jobs_ahead: ahead,
                alternatives: state.alternatives(id, &clusters),
                eta: None,
                no_eta_reason: String::new(),
            };
            let snapshot = check_queued(state, id).map(|()| api.forecaster.look(state));
            Ok::<_, Problem>((view, snapshot))
        })?;
        match snapshot.and_then(|snapshot| api.forecaster.eta(&snapshot, id)) {
            Ok(eta) => view.eta = Some(eta),
            Err(reason) => view.no_eta_reason = reason.to_string(),
        }
        Ok(Json(view))
    });
    explained.await.map_err(|e| Problem::unavailable(e.to_string()))?
}

/// Returns the virtual clusters in which the user may run jobs.
fn usable_clusters(state: &ClusterState, user: &User) -> Vec<String> {
    let names = state.virtual_clusters().names().into_iter();
    names
        .filter(|name| user.role_in(state, name) >= Some(Role::Member))
        .collect()
}

/// Returns the first jobs ahead of a job in the queue.
fn jobs_ahead(state: &ClusterState, user: &User, id: JobId) -> Vec<JobAhead> {
    let ahead = state.queue().into_iter().take_while(|job| job.id != id);
    let view = |job: &JobRecord| {
        let if_visible = |text: &String| {
            if user.may_see(state, job) {
                text.clone()
            } else {
                String::new()
            }
        };
        JobAhead {
            id: job.id,
            name: if_visible(&job.request.name),
            user: if_visible(&job.user),
            gpus: job.request.gpus,
            state: state_of(job).0.to_owned(),
        }
    };
    ahead.take(MAX_AHEAD).map(view).collect()
}

/// Maximum number of queued jobs that are listed.
const MAX_ENTRIES: usize = 1_000;
/// Maximum number of queued jobs that are listed with a reason, which takes time to compute.
const MAX_EXPLAINED: usize = 100;

pub(crate) async fn queue(State(api): State<Api>, user: User) -> Json<Vec<QueueEntry>> {
    Json(api.handle.read(|state| {
        let queue = state.queue();
        let visible = queue
            .iter()
            .enumerate()
            .filter(|(_, job)| user.may_see(state, job));
        let entry = |(ahead, job): (usize, &&JobRecord)| QueueEntry {
            id: job.id,
            name: job.request.name.clone(),
            user: job.user.clone(),
            tenant: job.request.tenant.clone(),
            gpus: job.request.gpus,
            priority: job.request.priority,
            since: job.since,
            ahead: ahead as u32,
            reason: match ahead < MAX_EXPLAINED {
                true => state
                    .explain(job.id)
                    .and_then(|explanation| explanation.reasons.into_iter().next())
                    .unwrap_or_default(),
                false => String::new(),
            },
        };
        visible.take(MAX_ENTRIES).map(entry).collect()
    }))
}
