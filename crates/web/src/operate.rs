//! The cluster at a glance, and changing how it is run.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use dovetail_control::book::NodeState;
use dovetail_control::{KnownPolicy, known_policies};
use serde_json::json;

use crate::people::User;
use crate::views::{ClusterView, Info, Operation, PolicyView, state_word};
use crate::{Api, Problem};

pub(crate) async fn health(State(api): State<Api>) -> (StatusCode, String) {
    match api.nodes.trouble() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// What a server is, for whoever has not signed in.
pub(crate) async fn info(State(api): State<Api>) -> Json<Info> {
    let elsewhere = api.config.oidc.is_some();
    let mut sign_in = vec!["password".to_owned()];
    sign_in.extend(elsewhere.then(|| "oidc".to_owned()));
    Json(Info {
        name: "dovetail".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api: "v1".to_owned(),
        sign_in,
        oidc_url: elsewhere.then(|| "/api/v1/session/oidc".to_owned()),
    })
}

pub(crate) async fn policies(_user: User) -> Json<Vec<PolicyView>> {
    let one = |p: KnownPolicy| PolicyView {
        name: p.name.to_owned(),
        what: p.what.to_owned(),
        paper: p.source.to_owned(),
        key: p.key.to_owned(),
    };
    Json(known_policies().into_iter().map(one).collect())
}

pub(crate) async fn cluster(State(api): State<Api>, _user: User) -> Json<ClusterView> {
    let trouble = api.nodes.trouble();
    Json(api.handle.read(|book| {
        let there = || book.nodes().filter(|(_, n)| n.state != NodeState::Lost);
        let mut jobs: BTreeMap<String, u64> = BTreeMap::new();
        for job in book.jobs_live() {
            *jobs.entry(state_word(job).to_owned()).or_default() += 1;
        }
        let held = |job: &dovetail_control::book::JobRecord| job.attempt().map_or(0, |a| a.allocation.gpus());
        ClusterView {
            now: book.now(),
            policy: book.policy().policy.clone(),
            parts: book.policy().parts.clone(),
            clock: book.clock(),
            paused: book.is_paused(),
            nodes: there().count() as u32,
            gpus: there().map(|(_, n)| n.spec.gpus).sum(),
            used_gpus: book.jobs_up().map(held).sum(),
            jobs,
            trouble,
            last_event: book.last_notice(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }))
}

pub(crate) async fn operate(
    State(api): State<Api>,
    user: User,
    body: Result<Json<Operation>, JsonRejection>,
) -> Result<Json<ClusterView>, Problem> {
    user.must_be_admin()?;
    api.needs_agents("a SchedulingPolicy says so: `kubectl edit schedulingpolicies`")?;
    let Json(operation) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let before = api
        .handle
        .read(|book| json!({"policy": book.policy(), "clock": book.clock(), "paused": book.is_paused()}));
    let after = json!(operation.operate);
    api.ask(api.handle.operate(operation.operate, &user.name)).await?;
    api.audit
        .note(&user.name, "operate", "cluster", Some(before), Some(after));
    Ok(cluster(State(api), user).await)
}
