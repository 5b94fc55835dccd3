//! Virtual clusters: what each is promised and uses, and changing that while jobs run.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use dovetail_control::book::{Book, ClusterChange, JobRecord, JobState, NodeState};
use dovetail_control::{Operate, Promise, VirtualCluster, VirtualClusters};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cell_views::cells_of;
use crate::people::{Role, User};
use crate::views::{ClusterEdit, ClustersFile, ClustersView, FieldChange, VcDiff, VcView};
use crate::{Api, Problem};

/// Whether a change is only tried.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HowChanged {
    /// Only say what it would do.
    dry_run: bool,
}

#[derive(Default)]
struct Sums {
    used: u32,
    borrowed: u32,
    running: u64,
    waiting: u64,
}

fn sums(book: &Book) -> BTreeMap<&str, Sums> {
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for job in book.jobs_live() {
        let sum = sums.entry(job.request.tenant.as_str()).or_default();
        let held = |job: &JobRecord| job.attempt().map_or(0, |a| a.allocation.gpus());
        match &job.state {
            state if state.is_up() => {
                let place = if job.request.priority < 0 {
                    &mut sum.borrowed
                } else {
                    &mut sum.used
                };
                *place += held(job);
                sum.running += 1;
            }
            JobState::Queued | JobState::Held(_) => sum.waiting += 1,
            _ => {}
        }
    }
    sums
}

pub(crate) fn view(book: &Book, user: &User) -> ClustersView {
    let clusters = book.clusters();
    let mut sums = sums(book);
    let mut names = clusters.names();
    if clusters.any_name() {
        names.extend(sums.keys().map(|name| (*name).to_owned()));
        names.sort();
        names.dedup();
    }
    let there = book.nodes().filter(|(_, n)| n.state != NodeState::Lost);
    let mut cells = cells_of(book);
    let one = |name: String| {
        let own = clusters.get(&name).unwrap_or_default();
        let sum = sums.remove(name.as_str()).unwrap_or_default();
        let cells = cells.remove(&name).unwrap_or_default();
        let guaranteed = match clusters.promise {
            Promise::Open => 0,
            Promise::Quota => own.guaranteed_gpus,
            Promise::Cells => cells.iter().map(|c| c.gpus).sum(),
        };
        VcView {
            guaranteed_gpus: guaranteed,
            most_borrowed: own.most_borrowed,
            used_gpus: sum.used,
            borrowed_gpus: sum.borrowed,
            lent_gpus: cells.iter().map(|c| c.lent_gpus).sum(),
            running_jobs: sum.running,
            waiting_jobs: sum.waiting,
            user_cap_gpus: own.user_cap_gpus,
            max_priority: own.max_priority,
            everyone: own.everyone,
            order: own.order.clone(),
            role: user.role_in(book, &name),
            cells,
            name,
        }
    };
    ClustersView {
        mode: clusters.promise,
        gpus: there.map(|(_, n)| n.spec.gpus).sum(),
        vcs: names.into_iter().map(one).collect(),
    }
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Json<ClustersView> {
    Json(api.handle.read(|book| view(book, &user)))
}

/// Every field of every virtual cluster that differs.
fn changes(before: &VirtualClusters, after: &VirtualClusters) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    let mut differ = |vc: &str, field: &str, before: Value, after: Value| {
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
    differ("", "mode", json!(before.promise), json!(after.promise));
    let mut names = before.names();
    names.extend(after.names());
    names.sort();
    names.dedup();
    for name in names {
        let there = |all: &VirtualClusters| all.names().contains(&name);
        let (was, is) = (there(before), there(after));
        differ(&name, "there", json!(was), json!(is));
        let fields = |all: &VirtualClusters| json!(all.get(&name).unwrap_or_default());
        let (was, is) = (fields(before), fields(after));
        for (field, old) in was.as_object().into_iter().flatten() {
            differ(&name, field, old.clone(), is[field].clone());
        }
        let owned = |all: &VirtualClusters| {
            let cells = all.cells.as_ref().filter(|_| all.promise == Promise::Cells)?;
            cells.virtual_clusters.get(&name).map(|owned| json!(owned))
        };
        differ(&name, "cells", json!(owned(before)), json!(owned(after)));
    }
    changes
}

fn effects(change: &ClusterChange) -> Vec<String> {
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
    let mut say = |jobs: &[u64], what: &str| {
        if !jobs.is_empty() {
            effects.push(format!("{what}: {}", list(jobs)));
        }
    };
    say(&change.starts, "these jobs start");
    say(&change.stops, "these jobs stop and stand in line again");
    say(
        &change.lent,
        "these jobs run on, but give way as soon as others need their share",
    );
    say(&change.stranded, "these jobs wait and could not start any more");
    effects.extend(change.remarks.iter().cloned());
    if effects.is_empty() {
        effects.push("no job starts or stops at once".to_owned());
    }
    effects
}

/// Tries a change, and does it unless it is only tried.
async fn change(
    api: &Api,
    user: &User,
    dry_run: bool,
    target: &str,
    edit: impl FnOnce(&VirtualClusters) -> Result<VirtualClusters, Problem>,
) -> Result<Json<VcDiff>, Problem> {
    if !dry_run {
        api.needs_agents(
            "virtual clusters are objects: `kubectl edit vc`, or `dovetail kube convert` for a file",
        )?;
    }
    let (before, after, tried) = api.handle.read(|book| {
        let before = book.clusters().clone();
        let after = edit(&before)?;
        let tried = book.would_change_clusters(&after);
        Ok::<_, Problem>((before, after, tried))
    })?;
    let mut diff = VcDiff {
        changes: changes(&before, &after),
        ..VcDiff::default()
    };
    match tried {
        Ok(change) => {
            diff.effects = effects(&change);
            (diff.starts, diff.stops) = (change.starts, change.stops);
        }
        Err(why) if dry_run => diff.refused = Some(why),
        Err(why) => return Err(Problem::invalid(why)),
    }
    if !dry_run {
        let what = Operate::VirtualClusters(Box::new(after.clone()));
        api.ask(api.handle.operate(what, &user.name)).await?;
        let (was, is) = (json!(before), json!(after));
        api.audit
            .note(&user.name, "virtual-clusters", target, Some(was), Some(is));
    }
    Ok(Json(diff))
}

/// Whoever changes a virtual cluster must be its administrator; what it is promised is for those of all.
fn must_administer(api: &Api, user: &User, name: &str) -> Result<(), Problem> {
    let role = api.handle.read(|book| user.role_in(book, name));
    match role >= Some(Role::Administrator) {
        true => Ok(()),
        false => Err(Problem::forbidden(format!(
            "only an administrator of virtual cluster {name} may do that"
        ))),
    }
}

pub(crate) async fn set(
    State(api): State<Api>,
    user: User,
    Path(name): Path<String>,
    how: Result<Query<HowChanged>, QueryRejection>,
    body: Result<Json<ClusterEdit>, JsonRejection>,
) -> Result<Json<VcDiff>, Problem> {
    must_administer(&api, &user, &name)?;
    let Query(how) = how.map_err(|e| Problem::invalid(e.body_text()))?;
    let Json(edit) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let promises = edit.guaranteed_gpus.is_some() || edit.most_borrowed.is_some();
    let (is_new, gpus) = api.handle.read(|book| {
        let there = book.nodes().filter(|(_, n)| n.state != NodeState::Lost);
        let gpus: u32 = there.map(|(_, n)| n.spec.gpus).sum();
        (!book.clusters().names().contains(&name), gpus)
    });
    if (promises || is_new) && !user.admin {
        return Err(Problem::forbidden(
            "what a virtual cluster is promised is for administrators of the whole cluster to say",
        ));
    }
    change(&api, &user, how.dry_run, &name.clone(), |before| {
        let mut after = before.clone();
        if promises && after.promise == Promise::Cells {
            return Err(Problem::conflict(
                "guaranteed_gpus: GPUs are promised as cells here; change the cells instead (PUT /vcs)",
            ));
        }
        if promises {
            after.promise = Promise::Quota;
        }
        let own = after
            .named
            .entry(name.clone())
            .or_insert_with(|| before.get(&name).unwrap_or_default());
        edit.apply(own);
        // Where the first promise is made, everybody else goes on with what is left.
        if before.promise == Promise::Open && after.promise == Promise::Quota {
            let promised: u32 = after.named.values().map(|c| c.guaranteed_gpus).sum();
            let rest = after.named.entry(dovetail_control::DEFAULT_CLUSTER.to_owned());
            let rest = rest.or_insert_with(VirtualCluster::default);
            if rest.guaranteed_gpus == 0 && name != dovetail_control::DEFAULT_CLUSTER {
                rest.guaranteed_gpus = gpus.saturating_sub(promised);
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
    how: Result<Query<HowChanged>, QueryRejection>,
) -> Result<Json<VcDiff>, Problem> {
    user.must_be_admin()?;
    let Query(how) = how.map_err(|e| Problem::invalid(e.body_text()))?;
    change(&api, &user, how.dry_run, &name.clone(), |before| {
        let mut after = before.clone();
        let in_cells = after
            .cells
            .as_mut()
            .and_then(|c| c.virtual_clusters.remove(&name))
            .is_some();
        if after.named.remove(&name).is_none() && !in_cells {
            return Err(Problem::not_found(format!(
                "there is no virtual cluster {name:?}"
            )));
        }
        if after.named.is_empty() && after.promise == Promise::Quota {
            after.promise = Promise::Open;
        }
        Ok(after)
    })
    .await
}

pub(crate) async fn set_all(
    State(api): State<Api>,
    user: User,
    how: Result<Query<HowChanged>, QueryRejection>,
    body: Result<Json<ClustersFile>, JsonRejection>,
) -> Result<Json<VcDiff>, Problem> {
    user.must_be_admin()?;
    let Query(how) = how.map_err(|e| Problem::invalid(e.body_text()))?;
    let Json(file) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let cells = match &file.cells {
        None => None,
        Some(text) => {
            let config = dovetail_workload::parse_hived(text, "cells");
            Some(config.map_err(|e| Problem::invalid(e.to_string()))?)
        }
    };
    change(&api, &user, how.dry_run, "", |before| {
        Ok(VirtualClusters {
            promise: file.mode,
            named: file.vcs,
            cells: cells.or_else(|| before.cells.clone()),
        })
    })
    .await
}
