//! Virtual clusters and SKU types.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use dovetail_cluster::state::{ClusterState, NodeRecord, NodeState};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::PaiCaller;
use super::error::PaiError;
use crate::Api;
use crate::accounts::User;
use crate::views::VcView;

/// Returns the share of the resources that comes with a number of GPUs.
fn resources(gpus: f64, all: &Totals) -> Value {
    let part = if all.gpus > 0.0 { gpus / all.gpus } else { 0.0 };
    let (cpu, memory) = ((all.cpus * part).round(), (all.memory_mb * part).round());
    json!({ "cpu": cpu, "memory": memory, "gpu": gpus, "vCores": cpu, "GPUs": gpus })
}

struct Totals {
    gpus: f64,
    cpus: f64,
    memory_mb: f64,
}

fn totals(state: &ClusterState) -> Totals {
    let mut sum = Totals {
        gpus: 0.0,
        cpus: 0.0,
        memory_mb: 0.0,
    };
    for node in present_nodes(state) {
        sum.gpus += f64::from(node.spec.gpus);
        sum.cpus += f64::from(node.spec.cpu_milli) / 1000.0;
        sum.memory_mb += node.spec.memory_mib as f64;
    }
    sum
}

fn present_nodes(state: &ClusterState) -> impl Iterator<Item = &NodeRecord> {
    state
        .nodes()
        .map(|(_, n)| n)
        .filter(|n| n.state != NodeState::Lost)
}

fn shape(vc: &VcView, all: &Totals, open: bool) -> Value {
    // Without guarantees, each virtual cluster may use all GPUs.
    let guaranteed = if open {
        all.gpus
    } else {
        f64::from(vc.guaranteed_gpus)
    };
    let max = match (open, vc.most_borrowed) {
        (true, _) | (false, None) => all.gpus,
        (false, Some(borrowed)) => (guaranteed + f64::from(borrowed)).min(all.gpus),
    };
    let used = f64::from(vc.used_gpus + vc.borrowed_gpus);
    let percent = |gpus: f64| {
        if all.gpus > 0.0 {
            100.0 * gpus / all.gpus
        } else {
            0.0
        }
    };
    json!({
        "capacity": percent(guaranteed),
        "usedCapacity": if guaranteed > 0.0 { 100.0 * used / guaranteed } else { 0.0 },
        "maxCapacity": percent(max),
        "dedicated": false,
        "resourcesUsed": resources(used, all),
        "resourcesGuaranteed": resources(guaranteed, all),
        "resourcesTotal": resources(guaranteed, all),
        "runningJobs": vc.running_jobs,
        "pendingJobs": vc.waiting_jobs,
    })
}

fn all(state: &ClusterState, user: &User) -> Map<String, Value> {
    let view = crate::virtual_clusters::view(state, user);
    let totals = totals(state);
    let open = view.mode == dovetail_cluster::GuaranteeMode::Open;
    let visible = view.vcs.iter().filter(|vc| vc.role.is_some());
    visible
        .map(|vc| (vc.name.clone(), shape(vc, &totals, open)))
        .collect()
}

pub(super) async fn list(State(api): State<Api>, caller: PaiCaller) -> Json<Value> {
    Json(Value::Object(api.handle.read(|state| all(state, caller.user()))))
}

pub(super) async fn show(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
) -> Result<Json<Value>, PaiError> {
    let mut all = api.handle.read(|state| all(state, caller.user()));
    let found = all.remove(&name);
    found.map(Json).ok_or_else(|| unknown_vc(&name))
}

fn unknown_vc(name: &str) -> PaiError {
    let what = format!("Virtual cluster {name} is not found.");
    PaiError::new(StatusCode::NOT_FOUND, "NoVirtualClusterError", what)
}

/// Which virtual cluster to list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct VcQuery {
    vc: Option<String>,
}

pub(super) async fn sku_types(
    State(api): State<Api>,
    caller: PaiCaller,
    query: Result<Query<VcQuery>, QueryRejection>,
) -> Result<Json<Value>, PaiError> {
    let Query(query) = query.map_err(|e| PaiError::parameters(e.body_text()))?;
    let types: Map<String, Value> = api.handle.read(|state| {
        if let Some(name) = query
            .vc
            .filter(|name| !all(state, caller.user()).contains_key(name))
        {
            return Err(unknown_vc(&name));
        }
        let mut types = Map::new();
        for node in present_nodes(state).filter(|n| n.spec.gpus > 0) {
            let (cpu, memory) = (
                node.spec.cpu_milli / 1000 / node.spec.gpus,
                node.spec.memory_mib / u64::from(node.spec.gpus),
            );
            let sku = json!({ "gpu": 1, "cpu": cpu, "memory": memory });
            types.entry(node.gpu_type.clone()).or_insert(sku);
        }
        Ok(types)
    })?;
    Ok(Json(Value::Object(types)))
}
