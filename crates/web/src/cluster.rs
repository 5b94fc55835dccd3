//! The cluster as a whole: health, overview and operation.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use dovetail_cluster::state::NodeState;
use dovetail_cluster::{Actor, PolicySummary, policy_summaries};
use serde_json::json;

use crate::accounts::User;
use crate::views::{ClusterView, Operation, PolicyView, PolicyWarning, ServerInfo, state_of};
use crate::{Api, Problem};

/// Answers health checks: the server is healthy while it can write the journal.
pub(crate) async fn health(State(api): State<Api>) -> (StatusCode, String) {
    match api.handle.journal_error() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

/// Describes the server to callers that have not signed in.
pub(crate) async fn info(State(api): State<Api>) -> Json<ServerInfo> {
    let has_oidc = api.config.oidc.is_some();
    let mut sign_in = vec!["password".to_owned()];
    sign_in.extend(has_oidc.then(|| "oidc".to_owned()));
    Json(ServerInfo {
        name: "dovetail".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api: "v1".to_owned(),
        sign_in,
        oidc_url: has_oidc.then(|| "/api/v1/session/oidc".to_owned()),
    })
}

pub(crate) async fn policies(State(api): State<Api>, _user: User) -> Json<Vec<PolicyView>> {
    let view = |p: PolicySummary| PolicyView {
        name: p.name.to_owned(),
        what: p.what.to_owned(),
        paper: p.source.to_owned(),
        key: p.key.to_owned(),
        needs: p.needs.iter().map(|need| need.code().to_owned()).collect(),
        refused: p.refused,
    };
    let runtime = api.handle.read(|state| *state.runtime());
    Json(policy_summaries(&runtime).into_iter().map(view).collect())
}

pub(crate) async fn cluster(State(api): State<Api>, _user: User) -> Json<ClusterView> {
    let journal_error = api.handle.journal_error();
    Json(api.handle.read(|state| {
        let present_nodes = || state.nodes().filter(|(_, n)| n.state != NodeState::Lost);
        let mut jobs: BTreeMap<String, u64> = BTreeMap::new();
        for job in state.unfinished_jobs() {
            *jobs.entry(state_of(job).0.to_owned()).or_default() += 1;
        }
        let held_gpus =
            |job: &dovetail_cluster::state::JobRecord| job.attempt().map_or(0, |a| a.allocation.gpus());
        ClusterView {
            now: state.now(),
            policy: state.policy().policy.clone(),
            parts: state.policy().parts.clone(),
            clock: state.clock(),
            paused: state.is_paused(),
            nodes: present_nodes().count() as u32,
            gpus: present_nodes().map(|(_, n)| n.spec.gpus).sum(),
            used_gpus: state.active_jobs().map(held_gpus).sum(),
            jobs,
            journal_error,
            runtime: state.runtime().runtime.to_owned(),
            warnings: state.data_warnings().iter().map(PolicyWarning::new).collect(),
            last_event: state.last_event(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }))
}

pub(crate) async fn operate(
    State(api): State<Api>,
    user: User,
    body: Result<Json<Operation>, JsonRejection>,
) -> Result<Json<ClusterView>, Problem> {
    user.require_admin()?;
    api.require_agents("edit the SchedulingPolicy: `kubectl edit schedulingpolicies`")?;
    let Json(operation) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let before = api
        .handle
        .read(|state| json!({"policy": state.policy(), "clock": state.clock(), "paused": state.is_paused()}));
    let after = json!(operation.operate);
    api.call(api.handle.operate(operation.operate, Actor::user(&user.name)))
        .await?;
    api.audit
        .record(&user.name, "operate", "cluster", Some(before), Some(after));
    Ok(cluster(State(api), user).await)
}
