//! Virtual clusters and kinds of GPUs.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use dovetail_control::book::{Book, NodeRecord, NodeState};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Asker;
use super::error::Error;
use crate::Api;
use crate::people::User;
use crate::views::VcView;

/// What a number of GPUs comes with, in OpenPAI's words.
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

fn totals(book: &Book) -> Totals {
    let mut sum = Totals {
        gpus: 0.0,
        cpus: 0.0,
        memory_mb: 0.0,
    };
    for node in there(book) {
        sum.gpus += f64::from(node.spec.gpus);
        sum.cpus += f64::from(node.spec.cpu_milli) / 1000.0;
        sum.memory_mb += node.spec.memory_mib as f64;
    }
    sum
}

fn there(book: &Book) -> impl Iterator<Item = &NodeRecord> {
    book.nodes()
        .map(|(_, n)| n)
        .filter(|n| n.state != NodeState::Lost)
}

fn shape(vc: &VcView, all: &Totals, open: bool) -> Value {
    // Where nobody is promised anything, everybody may have everything.
    let guaranteed = if open {
        all.gpus
    } else {
        f64::from(vc.guaranteed_gpus)
    };
    let most = match (open, vc.most_borrowed) {
        (true, _) | (false, None) => all.gpus,
        (false, Some(most)) => (guaranteed + f64::from(most)).min(all.gpus),
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
        "maxCapacity": percent(most),
        "dedicated": false,
        "resourcesUsed": resources(used, all),
        "resourcesGuaranteed": resources(guaranteed, all),
        "resourcesTotal": resources(guaranteed, all),
        "runningJobs": vc.running_jobs,
        "pendingJobs": vc.waiting_jobs,
    })
}

fn all(book: &Book, user: &User) -> Map<String, Value> {
    let view = crate::clusters::view(book, user);
    let totals = totals(book);
    let open = view.mode == dovetail_control::Promise::Open;
    let seen = view.vcs.iter().filter(|vc| vc.role.is_some());
    seen.map(|vc| (vc.name.clone(), shape(vc, &totals, open)))
        .collect()
}

pub(super) async fn list(State(api): State<Api>, asker: Asker) -> Json<Value> {
    Json(Value::Object(api.handle.read(|book| all(book, asker.user()))))
}

pub(super) async fn show(
    State(api): State<Api>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<Json<Value>, Error> {
    let mut all = api.handle.read(|book| all(book, asker.user()));
    let found = all.remove(&name);
    found.map(Json).ok_or_else(|| no_such(&name))
}

fn no_such(name: &str) -> Error {
    let what = format!("Virtual cluster {name} is not found.");
    Error::new(StatusCode::NOT_FOUND, "NoVirtualClusterError", what)
}

/// Of which virtual cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OfCluster {
    vc: Option<String>,
}

pub(super) async fn sku_types(
    State(api): State<Api>,
    asker: Asker,
    of: Result<Query<OfCluster>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(of) = of.map_err(|e| Error::parameters(e.body_text()))?;
    let kinds: Map<String, Value> = api.handle.read(|book| {
        if let Some(name) = of.vc.filter(|name| !all(book, asker.user()).contains_key(name)) {
            return Err(no_such(&name));
        }
        let mut kinds = Map::new();
        for node in there(book).filter(|n| n.spec.gpus > 0) {
            let (cpu, memory) = (
                node.spec.cpu_milli / 1000 / node.spec.gpus,
                node.spec.memory_mib / u64::from(node.spec.gpus),
            );
            let sku = json!({ "gpu": 1, "cpu": cpu, "memory": memory });
            kinds.entry(node.gpu_type.clone()).or_insert(sku);
        }
        Ok(kinds)
    })?;
    Ok(Json(Value::Object(kinds)))
}
