//! Utilization of nodes over time, from the heartbeats of their agents.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use dovetail_cluster::LoadPoint;
use dovetail_model::{NodeId, Time};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::accounts::User;
use crate::views::NodeUtilization;
use crate::{Api, Problem};

/// Most intervals in an answer.
const MAX_INTERVALS: usize = 50_000;

/// Which intervals to return.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UtilizationQuery {
    /// Only intervals that ended after this time, in microseconds since 1970.
    from: i64,
    /// Only this node.
    node: Option<String>,
}

pub(crate) async fn utilization(
    State(api): State<Api>,
    _user: User,
    query: Result<Query<UtilizationQuery>, QueryRejection>,
) -> Result<Json<Vec<NodeUtilization>>, Problem> {
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let nodes: Vec<(NodeId, String)> = api.handle.read(|state| {
        let all = state.nodes().map(|(id, node)| (id, node.spec.name.clone()));
        all.filter(|(_, name)| query.node.as_ref().is_none_or(|only| only == name))
            .collect()
    });
    if let Some(name) = query.node.filter(|_| nodes.is_empty()) {
        return Err(Problem::not_found(format!("unknown node {name:?}")));
    }
    let mut intervals = Vec::new();
    for (id, name) in nodes {
        let points = api.runtime.loads(id, Time(query.from));
        intervals.extend(points.into_iter().map(|point| view(&name, point)));
        if intervals.len() > MAX_INTERVALS {
            return Err(Problem::invalid(format!(
                "more than {MAX_INTERVALS} intervals: state a later `from`, or a `node`"
            )));
        }
    }
    intervals.sort_by_key(|interval| interval.at);
    Ok(Json(intervals))
}

fn view(node: &str, point: LoadPoint) -> NodeUtilization {
    let percents = |values: Vec<u8>| values.into_iter().map(f64::from).collect();
    NodeUtilization {
        node: node.to_owned(),
        at: point.at,
        interval_s: u32::try_from(LoadPoint::INTERVAL.0 / 1_000_000).unwrap_or(0),
        cpu: point.cpu_busy.into(),
        memory_mib: point.memory_mib,
        gpu: percents(point.gpu_busy),
        sm: percents(point.sm_active),
        gpu_memory_mib: point.gpu_memory_mib,
        disk_read_bytes: point.disk_read_bytes,
        disk_written_bytes: point.disk_written_bytes,
        network_received_bytes: point.network_received_bytes,
        network_sent_bytes: point.network_sent_bytes,
    }
}
