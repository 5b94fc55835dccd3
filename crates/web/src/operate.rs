//! The cluster at a glance, and changing how it is run.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use dovetail_control::book::NodeState;

use crate::users::User;
use crate::views::{ClusterView, Operation, state_word};
use crate::{Api, Problem};

pub(crate) async fn health(State(api): State<Api>) -> (StatusCode, String) {
    match api.nodes.trouble() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

pub(crate) async fn cluster(State(api): State<Api>, _user: User) -> Json<ClusterView> {
    let trouble = api.nodes.trouble();
    Json(api.handle.read(|book| {
        let there = || book.nodes().filter(|(_, n)| n.state != NodeState::Lost);
        let mut jobs: BTreeMap<String, u64> = BTreeMap::new();
        for job in book.jobs().filter(|job| !job.state.is_over()) {
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
    let Json(operation) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    api.ask(api.handle.operate(operation.operate, &user.name)).await?;
    Ok(cluster(State(api), user).await)
}
