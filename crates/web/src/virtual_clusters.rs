//! Virtual clusters: guaranteed and used GPUs, and changes while jobs run.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use dovetail_cluster::state::{ClusterState, JobRecord, JobState, NodeState, VirtualClusterChange};
use dovetail_cluster::{Actor, GuaranteeMode, OperatorAction, VirtualCluster, VirtualClusters};
use serde_json::{Value, json};

use crate::accounts::{Role, User};
use crate::cells::cells_by_vc;
use crate::query::DryRunQuery;
use crate::views::{FieldChange, VcDiff, VcEdit, VcFile, VcList, VcView};
use crate::{Api, Problem};

/// Usage of a virtual cluster.
#[derive(Default)]
struct Usage {
    used_gpus: u32,
    borrowed_gpus: u32,
    running_jobs: u64,
    waiting_jobs: u64,
}

fn usage_by_vc(state: &ClusterState) -> BTreeMap<&str, Usage> {
    let mut usages: BTreeMap<&str, Usage> = BTreeMap::new();
    for job in state.unfinished_jobs() {
        let usage = usages.entry(job.request.tenant.as_str()).or_default();
        let held = |job: &JobRecord| job.attempt().map_or(0, |a| a.allocation.gpus());
        match &job.state {
            state if state.holds_gpus() => {
                let gpus = if job.request.priority < 0 {
                    &mut usage.borrowed_gpus
                } else {
                    &mut usage.used_gpus
                };
                *gpus += held(job);
                usage.running_jobs += 1;
            }
            JobState::Queued | JobState::Held(_) => usage.waiting_jobs += 1,
            _ => {}
        }
    }
    usages
}

pub(crate) fn view(state: &ClusterState, user: &User) -> VcList {
    let clusters = state.virtual_clusters();
    let mut usages = usage_by_vc(state);
    let mut names = clusters.names();
    if clusters.any_name() {
        names.extend(usages.keys().map(|name| (*name).to_owned()));
        names.sort();
        names.dedup();
    }
    let present = state.nodes().filter(|(_, n)| n.state != NodeState::Lost);
    let mut cells = cells_by_vc(state);
    let vc_view = |name: String| {
        let settings = clusters.get(&name).unwrap_or_default();
        let usage = usages.remove(name.as_str()).unwrap_or_default();
        let cells = cells.remove(&name).unwrap_or_default();
        let guaranteed = match clusters.mode {
            GuaranteeMode::Open => 0,
            GuaranteeMode::Quota => settings.guaranteed_gpus,
            GuaranteeMode::Cells => cells.iter().map(|c| c.gpus).sum(),
        };
        VcView {
            guaranteed_gpus: guaranteed,
            most_borrowed: settings.most_borrowed,
            used_gpus: usage.used_gpus,
            borrowed_gpus: usage.borrowed_gpus,
            lent_gpus: cells.iter().map(|c| c.lent_gpus).sum(),
            running_jobs: usage.running_jobs,
            waiting_jobs: usage.waiting_jobs,
            user_cap_gpus: settings.user_cap_gpus,
            max_priority: settings.max_priority,
            everyone: settings.everyone,
            order: settings.order.clone(),
            role: user.role_in(state, &name),
            cells,
            name,
        }
    };
    VcList {
        mode: clusters.mode,
        gpus: present.map(|(_, n)| n.spec.gpus).sum(),
        vcs: names.into_iter().map(vc_view).collect(),
    }
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Json<VcList> {
    Json(api.handle.read(|state| view(state, &user)))
}

/// Returns every field of every virtual cluster that differs.
fn changes(before: &VirtualClusters, after: &VirtualClusters) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    let mut compare = |vc: &str, field: &str, before: Value, after: Value| {
        if before != after {
            let (vc, field) = (vc.to_owned(), field.to_owned());
            changes.push(FieldChange {
                vc,
                field,
                before,
                after,
            });
        }
    };
    compare("", "mode", json!(before.mode), json!(after.mode));
    let mut names = before.names();
    names.extend(after.names());
    names.sort();
    names.dedup();
    for name in names {
        let exists = |all: &VirtualClusters| all.names().contains(&name);
        compare(&name, "exists", json!(exists(before)), json!(exists(after)));
        let fields = |all: &VirtualClusters| json!(all.get(&name).unwrap_or_default());
        let (old, new) = (fields(before), fields(after));
        for (field, value) in old.as_object().into_iter().flatten() {
            compare(&name, field, value.clone(), new[field].clone());
        }
        let own_cells = |all: &VirtualClusters| {
            let cells = all.cells.as_ref().filter(|_| all.mode == GuaranteeMode::Cells)?;
            cells.virtual_clusters.get(&name).map(|cells| json!(cells))
        };
        compare(&name, "cells", json!(own_cells(before)), json!(own_cells(after)));
    }
    changes
}

/// Describes the immediate effects of a change.
fn effects(change: &VirtualClusterChange) -> Vec<String> {
    let list = |jobs: &[u64]| {
        let shown: Vec<String> = jobs.iter().take(20).map(u64::to_string).collect();
        let more = jobs.len().saturating_sub(20);
        let rest = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("{}{rest}", shown.join(", "))
    };
    let mut effects = Vec::new();
    let mut add = |jobs: &[u64], effect: &str| {
        if !jobs.is_empty() {
            effects.push(format!("{effect}: {}", list(jobs)));
        }
    };
    add(&change.starts, "jobs that start");
    add(&change.stops, "jobs that are preempted and queued again");
    add(
        &change.lent,
        "running jobs that become borrowers, to be preempted when their GPUs are needed",
    );
    add(&change.stranded, "queued jobs that can no longer start");
    effects.extend(change.remarks.iter().cloned());
    if effects.is_empty() {
        effects.push("no job starts or stops".to_owned());
    }
    effects
}

/// Previews a change, and applies it unless it is a dry run.
async fn change(
    api: &Api,
    user: &User,
    dry_run: bool,
    target: &str,
    edit: impl FnOnce(&VirtualClusters) -> Result<VirtualClusters, Problem>,
) -> Result<Json<VcDiff>, Problem> {
    if !dry_run {
        api.require_agents(
            "virtual clusters are objects there: use `kubectl edit vc`, or `dovetail kube convert` for a file",
        )?;
    }
    let (before, after, preview) = api.handle.read(|state| {
        let before = state.virtual_clusters().clone();
        let after = edit(&before)?;
        let preview = state.preview_virtual_clusters(&after);
        Ok::<_, Problem>((before, after, preview))
    })?;
    let mut diff = VcDiff {
        changes: changes(&before, &after),
        ..VcDiff::default()
    };
    match preview {
        Ok(change) => {
            diff.effects = effects(&change);
            (diff.starts, diff.stops) = (change.starts, change.stops);
        }
        Err(error) if dry_run => diff.refused = Some(error.to_string()),
        Err(error) => return Err(Problem::invalid(error.to_string())),
    }
    if !dry_run {
        let what = OperatorAction::VirtualClusters(Box::new(after.clone()));
        api.call(api.handle.operate(what, Actor::user(&user.name)))
            .await?;
        let (was, is) = (json!(before), json!(after));
        api.audit
            .record(&user.name, "virtual-clusters", target, Some(was), Some(is));
    }
    Ok(Json(diff))
}

/// Returns an error unless the user is an administrator of the virtual cluster.
fn require_vc_admin(api: &Api, user: &User, name: &str) -> Result<(), Problem> {
    let role = api.handle.read(|state| user.role_in(state, name));
    match role >= Some(Role::Administrator) {
        true => Ok(()),
        false => Err(Problem::forbidden(format!(
            "only administrators of virtual cluster {name} may do this"
        ))),
    }
}

pub(crate) async fn set(
    State(api): State<Api>,
    user: User,
    Path(name): Path<String>,
    query: Result<Query<DryRunQuery>, QueryRejection>,
    body: Result<Json<VcEdit>, JsonRejection>,
) -> Result<Json<VcDiff>, Problem> {
    require_vc_admin(&api, &user, &name)?;
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let Json(edit) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let changes_guarantee = edit.guaranteed_gpus.is_some() || edit.most_borrowed.is_some();
    let (is_new, gpus) = api.handle.read(|state| {
        let present = state.nodes().filter(|(_, n)| n.state != NodeState::Lost);
        let gpus: u32 = present.map(|(_, n)| n.spec.gpus).sum();
        (!state.virtual_clusters().names().contains(&name), gpus)
    });
    if (changes_guarantee || is_new) && !user.admin {
        return Err(Problem::forbidden(
            "only administrators of the cluster may create virtual clusters or change guarantees",
        ));
    }
    change(&api, &user, query.dry_run, &name.clone(), |before| {
        let mut after = before.clone();
        if changes_guarantee && after.mode == GuaranteeMode::Cells {
            return Err(Problem::conflict(
                "guaranteed_gpus: follows from the cells; change the cells instead (PUT /vcs)",
            ));
        }
        if changes_guarantee {
            after.mode = GuaranteeMode::Quota;
        }
        let settings = after
            .named
            .entry(name.clone())
            .or_insert_with(|| before.get(&name).unwrap_or_default());
        edit.apply(settings);
        // With the first guarantee, the default virtual cluster gets the remaining GPUs.
        if before.mode == GuaranteeMode::Open && after.mode == GuaranteeMode::Quota {
            let guaranteed: u32 = after.named.values().map(|c| c.guaranteed_gpus).sum();
            let default = after
                .named
                .entry(dovetail_cluster::DEFAULT_VIRTUAL_CLUSTER.to_owned());
            let default = default.or_insert_with(VirtualCluster::default);
            if default.guaranteed_gpus == 0 && name != dovetail_cluster::DEFAULT_VIRTUAL_CLUSTER {
                default.guaranteed_gpus = gpus.saturating_sub(guaranteed);
            }
        }
        Ok(after)
    })
    .await
}

pub(crate) async fn remove(
    State(api): State<Api>,
    user: User,
    Path(name): Path<String>,
    query: Result<Query<DryRunQuery>, QueryRejection>,
) -> Result<Json<VcDiff>, Problem> {
    user.require_admin()?;
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    change(&api, &user, query.dry_run, &name.clone(), |before| {
        let mut after = before.clone();
        let has_cells = after
            .cells
            .as_mut()
            .and_then(|c| c.virtual_clusters.remove(&name))
            .is_some();
        if after.named.remove(&name).is_none() && !has_cells {
            return Err(Problem::not_found(format!("unknown virtual cluster {name:?}")));
        }
        if after.named.is_empty() && after.mode == GuaranteeMode::Quota {
            after.mode = GuaranteeMode::Open;
        }
        Ok(after)
    })
    .await
}

pub(crate) async fn set_all(
    State(api): State<Api>,
    user: User,
    query: Result<Query<DryRunQuery>, QueryRejection>,
    body: Result<Json<VcFile>, JsonRejection>,
) -> Result<Json<VcDiff>, Problem> {
    user.require_admin()?;
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let Json(file) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let cells = match &file.cells {
        None => None,
        Some(text) => {
            let config = dovetail_hived::parse_config(text, "cells");
            Some(config.map_err(|e| Problem::invalid(e.to_string()))?)
        }
    };
    change(&api, &user, query.dry_run, "", |before| {
        Ok(VirtualClusters {
            mode: file.mode,
            named: file.vcs,
            cells: cells.or_else(|| before.cells.clone()),
        })
    })
    .await
}
