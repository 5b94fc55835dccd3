//! Nodes: what there is, and taking one out of use.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use dovetail_control::JobNo;
use dovetail_control::book::{Book, NodeState};
use dovetail_model::NodeId;

use crate::people::User;
use crate::views::{Because, NodeView, SlotView, node_state};
use crate::{Api, Problem};

fn views(api: &Api, user: &User, book: &Book) -> Vec<NodeView> {
    type Slots = BTreeMap<u32, (Vec<JobNo>, Option<String>)>;
    let mut used: BTreeMap<NodeId, (Vec<JobNo>, Slots)> = BTreeMap::new();
    for job in book.jobs_up() {
        for share in job.attempt().into_iter().flat_map(|a| &a.allocation.shares) {
            let (jobs, gpus) = used.entry(share.node).or_default();
            let seen = user.may_see(book, job);
            if seen {
                jobs.push(job.no);
            }
            for gpu in share.gpus.iter() {
                let slot = gpus.entry(gpu).or_default();
                slot.0.extend(seen.then_some(job.no));
                slot.1 = Some(job.request.tenant.clone());
            }
        }
    }
    let view = |(id, node): (NodeId, &dovetail_control::book::NodeRecord)| {
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
            connected: api.nodes.is_connected(id),
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
    book.nodes().map(view).collect()
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Json<Vec<NodeView>> {
    Json(api.handle.read(|book| views(&api, &user, book)))
}

pub(crate) async fn act(
    State(api): State<Api>,
    user: User,
    Path((name, action)): Path<(String, String)>,
    body: Option<Json<Because>>,
) -> Result<Json<NodeView>, Problem> {
    user.must_be_admin()?;
    api.needs_agents("`kubectl cordon` and `kubectl uncordon` do that")?;
    let why = body.map(|Json(b)| b.why).unwrap_or_default();
    let ask = match action.as_str() {
        "drain" => api.handle.set_draining(&name, Some(why), &user.name),
        "resume" => api.handle.set_draining(&name, None, &user.name),
        _ => {
            return Err(Problem::not_found(format!(
                "{action:?} cannot be done to a node; drain and resume can"
            )));
        }
    };
    api.ask(ask).await?;
    api.audit
        .note(&user.name, &format!("node-{action}"), &name, None, None);
    let views = api.handle.read(|book| views(&api, &user, book));
    let view = views.into_iter().find(|node| node.name == name);
    view.map(Json)
        .ok_or_else(|| Problem::not_found(format!("there is no node {name:?}")))
}
