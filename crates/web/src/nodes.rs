//! Nodes: what there is, and taking one out of use.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use dovetail_control::JobNo;
use dovetail_control::book::Book;
use dovetail_model::NodeId;

use crate::users::User;
use crate::views::{Because, NodeView, may_see, node_state};
use crate::{Api, Problem};

fn views(api: &Api, user: &User, book: &Book) -> Vec<NodeView> {
    let mut used: BTreeMap<NodeId, (Vec<JobNo>, std::collections::BTreeSet<u32>)> = BTreeMap::new();
    for job in book.jobs_up() {
        for share in job.attempt().into_iter().flat_map(|a| &a.allocation.shares) {
            let (jobs, gpus) = used.entry(share.node).or_default();
            gpus.extend(share.gpus.iter());
            if may_see(user, job) {
                jobs.push(job.no);
            }
        }
    }
    let view = |(id, node): (NodeId, &dovetail_control::book::NodeRecord)| {
        let (jobs, gpus) = used.remove(&id).unwrap_or_default();
        let (state, detail) = node_state(&node.state);
        NodeView {
            name: node.spec.name.clone(),
            state: state.to_owned(),
            detail,
            since: node.since,
            connected: api.nodes.is_connected(id),
            gpu_type: node.gpu_type.clone(),
            gpus: node.spec.gpus,
            used_gpus: gpus.len() as u32,
            cpu_milli: node.spec.cpu_milli,
            memory_mib: node.spec.memory_mib,
            rack: node.rack.clone(),
            address: node.address.clone(),
            jobs,
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
    let views = api.handle.read(|book| views(&api, &user, book));
    let view = views.into_iter().find(|node| node.name == name);
    view.map(Json)
        .ok_or_else(|| Problem::not_found(format!("there is no node {name:?}")))
}
