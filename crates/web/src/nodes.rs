//! Nodes: listing, draining and resuming them.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use dovetail_cluster::state::{ClusterState, JobRecord, NodeState};
use dovetail_cluster::{Actor, JobId};
use dovetail_model::NodeId;

use crate::accounts::User;
use crate::views::{DrainRequest, NodeView, SlotView, node_state};
use crate::{Api, Problem};

fn views(api: &Api, user: &User, state: &ClusterState) -> Vec<NodeView> {
    type Slots = BTreeMap<u32, (Vec<JobId>, Option<String>)>;
    let mut used: BTreeMap<NodeId, (Vec<JobId>, Slots)> = BTreeMap::new();
    for job in state.active_jobs() {
        for share in job.attempt().into_iter().flat_map(|a| &a.allocation.shares) {
            let (jobs, gpus) = used.entry(share.node).or_default();
            let is_visible = user.may_see(state, job);
            if is_visible {
                jobs.push(job.id);
            }
            for gpu in share.gpus.iter() {
                let slot = gpus.entry(gpu).or_default();
                slot.0.extend(is_visible.then_some(job.id));
                slot.1 = Some(job.request.tenant.clone());
            }
        }
    }
    let view = |(id, node): (NodeId, &dovetail_cluster::state::NodeRecord)| {
        let (jobs, mut gpus) = used.remove(&id).unwrap_or_default();
        let used_gpus = gpus.len() as u32;
        let health = if node.state == NodeState::Lost {
            "bad"
        } else {
            "ok"
        };
        let slot = |index: u32| {
            let (jobs, vc) = gpus.remove(&index).unwrap_or_default();
            let health = health.to_owned();
            SlotView {
                index,
                jobs,
                vc,
                health,
            }
        };
        let (state, detail) = node_state(&node.state);
        NodeView {
            name: node.spec.name.clone(),
            state: state.to_owned(),
            detail,
            since: node.since,
            connected: api.runtime.is_connected(id),
            gpu_type: node.gpu_type.clone(),
            gpus: node.spec.gpus,
            used_gpus,
            cpu_milli: node.spec.cpu_milli,
            memory_mib: node.spec.memory_mib,
            rack: node.rack.clone(),
            address: node.address.clone(),
            jobs,
            slots: (0..node.spec.gpus).map(slot).collect(),
        }
    };
    state.nodes().map(view).collect()
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Json<Vec<NodeView>> {
    Json(api.handle.read(|state| views(&api, &user, state)))
}

pub(crate) async fn act(
    State(api): State<Api>,
    user: User,
    Path((name, action)): Path<(String, String)>,
    body: Option<Json<DrainRequest>>,
) -> Result<Json<NodeView>, Problem> {
    user.require_admin()?;
    api.require_agents("use `kubectl cordon` and `kubectl uncordon`")?;
    if let Some(is_on) = mps_action(&action) {
        switch_mps(&api, &user, &name, is_on).await?;
        return show(&api, &user, &name);
    }
    let reason = body.map(|Json(request)| request.reason).unwrap_or_default();
    let call = match action.as_str() {
        "drain" => api
            .handle
            .set_draining(&name, Some(reason), Actor::user(&user.name)),
        "resume" => api.handle.set_draining(&name, None, Actor::user(&user.name)),
        _ => {
            return Err(Problem::not_found(format!(
                "unknown action {action:?}: expected drain, resume, mps-start or mps-stop"
            )));
        }
    };
    api.call(call).await?;
    api.audit
        .record(&user.name, &format!("node-{action}"), &name, None, None);
    show(&api, &user, &name)
}

/// Returns whether an action starts or stops MPS.
fn mps_action(action: &str) -> Option<bool> {
    match action {
        "mps-start" => Some(true),
        "mps-stop" => Some(false),
        _ => None,
    }
}

/// Starts or stops MPS on a node that is drained: it changes the mode of the GPUs, and no job may start meanwhile.
async fn switch_mps(api: &Api, user: &User, name: &str, is_on: bool) -> Result<(), Problem> {
    let node = api.handle.read(|state| {
        let id = state
            .node_named(name)
            .ok_or_else(|| Problem::not_found(format!("unknown node {name:?}")))?;
        let holds = |job: &&JobRecord| {
            let shares = job.attempt().into_iter().flat_map(|a| &a.allocation.shares);
            shares
                .into_iter()
                .any(|s| s.node == id && s.gpus.iter().next().is_some())
        };
        if let Some(job) = state.active_jobs().find(holds) {
            return Err(Problem::conflict(format!(
                "job {} holds GPUs of {name}: drain the node and wait for its jobs, or stop them",
                job.id
            )));
        }
        let state = state.node(id).map(|node| &node.state);
        match state {
            Some(NodeState::Draining { .. }) => Ok(id),
            _ => Err(Problem::conflict(format!(
                "{name} must be drained first, so that no job starts meanwhile: `dovetail node drain {name}`"
            ))),
        }
    })?;
    let switched = api.runtime.set_mps(node, is_on).await;
    switched.map_err(|error| Problem::conflict(format!("{name}: {error}")))?;
    let action = if is_on { "node-mps-start" } else { "node-mps-stop" };
    api.audit.record(&user.name, action, name, None, None);
    Ok(())
}

fn show(api: &Api, user: &User, name: &str) -> Result<Json<NodeView>, Problem> {
    let views = api.handle.read(|state| views(api, user, state));
    let view = views.into_iter().find(|node| node.name == name);
    view.map(Json)
        .ok_or_else(|| Problem::not_found(format!("unknown node {name:?}")))
}
