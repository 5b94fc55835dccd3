//! Jobs: submitting, listing, showing, stopping and tagging them.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use dovetail_cluster::{Actor, JobId};
use dovetail_jobfile::JobFile;
use dovetail_openpai::{Mode, Remark};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::PaiError;
use super::model::{PaiJob, TAG};
use super::past::PastRecords;
use super::shapes::{detail, ms, summary};
use super::{PaiCaller, message};
use crate::Api;
use crate::events::past_events;
use crate::views::EventView;

pub(super) async fn submit(
    State(api): State<Api>,
    caller: PaiCaller,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), PaiError> {
    let invalid = |what: String| PaiError::new(StatusCode::BAD_REQUEST, "InvalidProtocolError", what);
    let text = std::str::from_utf8(&body).map_err(|_| invalid("the job file is not UTF-8".to_owned()))?;
    let converted =
        JobFile::from_openpai(text, Mode::Strict).map_err(|faults| invalid(faults.to_string()))?;
    let user = caller.user();
    let (name, cluster) = (converted.job.name.clone(), converted.job.tenant.clone());
    let past = PastRecords::named(&api, user, &format!("{}~{name}", user.name)).await?;
    let (is_taken, vc_exists) = api.handle.read(|state| {
        let exists = state.virtual_clusters().get(&cluster).is_some();
        (PaiJob::is_taken(state, &past, &user.name, &name), exists)
    });
    if is_taken {
        let what = format!("Job {}~{name} already exists.", user.name);
        return Err(PaiError::new(StatusCode::CONFLICT, "ConflictJobError", what));
    }
    if !vc_exists {
        let what = format!("Virtual cluster {cluster} is not found.");
        return Err(PaiError::new(
            StatusCode::NOT_FOUND,
            "NoVirtualClusterError",
            what,
        ));
    }
    let ignored: Vec<String> = converted.ignored.iter().map(Remark::to_string).collect();
    let submitted = crate::submit::submit_job(&api, user, converted.job, converted.array, None).await;
    submitted.map_err(PaiError::from_submission)?;
    let body = json!({
        "message": format!("Update job {}~{name} successfully.", user.name),
        "ignored": ignored,
    });
    Ok((StatusCode::ACCEPTED, Json(body)))
}

/// Which jobs to list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PaiJobFilter {
    username: Option<String>,
    vc: Option<String>,
    state: Option<String>,
    #[serde(rename = "jobPriority")]
    priority: Option<String>,
    #[serde(rename = "tagsContain")]
    tags: Option<String>,
    #[serde(rename = "tagsNotContain")]
    not_tags: Option<String>,
    keyword: Option<String>,
    offset: usize,
    limit: Option<usize>,
    order: Option<String>,
    #[serde(rename = "withTotalCount")]
    with_total: bool,
}

/// Maximum number of jobs on a page.
const MAX_LIMIT: usize = 50_000;

impl PaiJobFilter {
    fn matches(&self, job: &PaiJob<'_>) -> bool {
        let first = job.first();
        let is_in = |list: &Option<String>, value: &str| {
            list.as_ref()
                .is_none_or(|list| list.split(',').any(|item| item.trim() == value))
        };
        let tags: BTreeSet<&str> = job.tags().into_iter().collect();
        let has_any = |list: &String| list.split(',').any(|tag| tags.contains(tag.trim()));
        let contains = |word: &String| {
            let name = job.name();
            [first.user.as_str(), name.as_str(), first.request.tenant.as_str()]
                .iter()
                .any(|text| text.contains(word.as_str()))
        };
        is_in(&self.username, &first.user)
            && is_in(&self.vc, &first.request.tenant)
            && is_in(&self.state, job.state())
            && is_in(&self.priority, job.class().unwrap_or("default"))
            && self.tags.as_ref().is_none_or(has_any)
            && !self.not_tags.as_ref().is_some_and(has_any)
            && self.keyword.as_ref().is_none_or(contains)
    }

    /// Returns the user and the virtual cluster of all jobs of the list, if there is only one.
    fn one_owner(&self) -> (Option<String>, Option<String>) {
        let one = |list: &Option<String>| {
            let list = list.as_ref().filter(|list| !list.contains(','));
            list.map(|item| item.trim().to_owned())
        };
        (one(&self.username), one(&self.vc))
    }

    /// Returns the field to sort by, and whether in descending order.
    fn order(&self) -> Result<(&'static str, bool), PaiError> {
        const FIELDS: [(&str, &str); 11] = [
            ("jobName", "name"),
            ("username", "username"),
            ("vc", "virtualCluster"),
            ("retries", "retries"),
            ("totalTaskNumber", "totalTaskNumber"),
            ("totalGpuNumber", "totalGpuNumber"),
            ("state", "state"),
            ("submissionTime", "submissionTime"),
            ("launchedTime", "launchedTime"),
            ("completionTime", "completedTime"),
            ("completedTime", "completedTime"),
        ];
        let Some(order) = &self.order else {
            return Ok(("submissionTime", true));
        };
        let (field, direction) = order.split_once(',').unwrap_or((order, "ASC"));
        let known = FIELDS.iter().find(|(name, _)| *name == field);
        match (known, direction) {
            (Some((_, key)), "ASC") => Ok((key, false)),
            (Some((_, key)), "DESC") => Ok((key, true)),
            _ => {
                let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
                Err(PaiError::parameters(format!(
                    "order: invalid value {order:?}: expected FIELD,ASC or FIELD,DESC, where FIELD is one of {}",
                    names.join(", ")
                )))
            }
        }
    }
}

fn compare(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => a.as_i64().cmp(&b.as_i64()),
        // Missing values come first.
        (a, b) => b.is_null().cmp(&a.is_null()),
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    caller: PaiCaller,
    filter: Result<Query<PaiJobFilter>, QueryRejection>,
) -> Result<Json<Value>, PaiError> {
    let Query(filter) = filter.map_err(|e| PaiError::parameters(e.body_text()))?;
    let (field, descending) = filter.order()?;
    let limit = filter.limit.unwrap_or(5_000);
    if limit > MAX_LIMIT {
        return Err(PaiError::parameters(format!(
            "limit: {limit} exceeds the maximum of {MAX_LIMIT}"
        )));
    }
    let past = PastRecords::newest(&api, caller.user(), filter.one_owner()).await?;
    let mut found: Vec<Value> = api.handle.read(|state| {
        let all = PaiJob::all(state, &past, caller.user());
        all.iter()
            .filter(|job| filter.matches(job))
            .map(summary)
            .collect()
    });
    found.sort_by(|a, b| {
        let order = compare(&a[field], &b[field]);
        if descending { order.reverse() } else { order }
    });
    let total = found.len();
    let page: Vec<Value> = found.into_iter().skip(filter.offset).take(limit).collect();
    Ok(Json(match filter.with_total {
        true => json!({ "totalCount": total, "data": page }),
        false => Value::Array(page),
    }))
}

pub(super) async fn show(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
) -> Result<Json<Value>, PaiError> {
    let past = PastRecords::named(&api, caller.user(), &name).await?;
    api.handle.read(|state| {
        let job = PaiJob::find(state, &past, caller.user(), &name).ok_or_else(|| PaiError::no_job(&name))?;
        Ok(Json(detail(state, &job, None)))
    })
}

pub(super) async fn show_attempt(
    State(api): State<Api>,
    caller: PaiCaller,
    Path((name, attempt)): Path<(String, usize)>,
) -> Result<Json<Value>, PaiError> {
    let past = PastRecords::named(&api, caller.user(), &name).await?;
    api.handle.read(|state| {
        let job = PaiJob::find(state, &past, caller.user(), &name).ok_or_else(|| PaiError::no_job(&name))?;
        if job.first().attempts.get(attempt).is_none() {
            let what = format!("Attempt {attempt} of job {name} is not found.");
            return Err(PaiError::new(StatusCode::NOT_FOUND, "NoJobError", what));
        }
        Ok(Json(detail(state, &job, Some(attempt))))
    })
}

pub(super) async fn config(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, PaiError> {
    let past = PastRecords::named(&api, caller.user(), &name).await?;
    let text = api.handle.read(|state| {
        let job = PaiJob::find(state, &past, caller.user(), &name).ok_or_else(|| PaiError::no_job(&name))?;
        let first = job.first();
        if !caller.user().may_control(state, first) {
            return Err(PaiError::forbidden(format!(
                "Only the owner may see the configuration of job {name}."
            )));
        }
        match &first.request.file {
            Some(file) => Ok(file.clone()),
            None => {
                let file = JobFile {
                    job: first.request.without_secrets(),
                    array: None,
                    ignored: Vec::new(),
                };
                Ok(serde_saphyr::to_string(&file.keys()).unwrap_or_default())
            }
        }
    })?;
    Ok(([(CONTENT_TYPE, "text/yaml")], text))
}

/// A value to set.
#[derive(Debug, Deserialize)]
pub(super) struct Setting {
    value: String,
}

/// Returns the ids of a job's members, and whether each has ended, if the user may control it.
async fn controlled_members(
    api: &Api,
    caller: &PaiCaller,
    name: &str,
) -> Result<Vec<(JobId, bool)>, PaiError> {
    let past = PastRecords::named(api, caller.user(), name).await?;
    api.handle.read(|state| {
        let job = PaiJob::find(state, &past, caller.user(), name).ok_or_else(|| PaiError::no_job(name))?;
        if !caller.user().may_control(state, job.first()) {
            return Err(PaiError::forbidden(format!(
                "User {} is not allowed to do operation on {name}.",
                caller.user().name
            )));
        }
        Ok(job.members.iter().map(|j| (j.id, j.state.has_ended())).collect())
    })
}

pub(super) async fn execute(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
    body: Result<Json<Setting>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), PaiError> {
    let Json(Setting { value }) = body.map_err(|e| PaiError::parameters(e.body_text()))?;
    let members = controlled_members(&api, &caller, &name).await?;
    match value.as_str() {
        "STOP" => {
            for (id, has_ended) in members {
                if !has_ended {
                    // A member that ended in the meantime is no error.
                    let _ = crate::jobs::stop(&api, id, &caller.user().name).await;
                }
            }
        }
        "START" => {}
        other => {
            return Err(PaiError::parameters(format!(
                "value: invalid value {other:?}: expected START or STOP"
            )));
        }
    }
    Ok((
        StatusCode::ACCEPTED,
        message(format!("Execute job {name} successfully.")),
    ))
}

pub(super) async fn tag(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
    body: Result<Json<Setting>, JsonRejection>,
) -> Result<Json<Value>, PaiError> {
    set_tag(&api, &caller, &name, body, true).await
}

pub(super) async fn untag(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
    body: Result<Json<Setting>, JsonRejection>,
) -> Result<Json<Value>, PaiError> {
    set_tag(&api, &caller, &name, body, false).await
}

async fn set_tag(
    api: &Api,
    caller: &PaiCaller,
    name: &str,
    body: Result<Json<Setting>, JsonRejection>,
    is_set: bool,
) -> Result<Json<Value>, PaiError> {
    let Json(Setting { value }) = body.map_err(|e| PaiError::parameters(e.body_text()))?;
    if value.is_empty() || value.len() > 100 || value.contains(',') {
        return Err(PaiError::parameters(
            "value: expected a tag of up to 100 bytes without commas",
        ));
    }
    let members = controlled_members(api, caller, name).await?;
    let Some((first, _)) = members.first() else {
        return Err(PaiError::no_job(name));
    };
    let key = format!("{TAG}{value}");
    let call = api.handle.label(
        *first,
        &key,
        is_set.then(String::new),
        Actor::user(&caller.user().name),
    );
    api.call(call).await?;
    Ok(message(format!(
        "Tag {value} of job {name} is {}.",
        if is_set { "added" } else { "removed" }
    )))
}

/// Which events to list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EventFilter {
    #[serde(rename = "type")]
    kind: Option<String>,
}

pub(super) async fn events(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
    filter: Result<Query<EventFilter>, QueryRejection>,
) -> Result<Json<Value>, PaiError> {
    let Query(filter) = filter.map_err(|e| PaiError::parameters(e.body_text()))?;
    let past = PastRecords::named(&api, caller.user(), &name).await?;
    let (ids, mut views) = api.handle.read(|state| {
        let job = PaiJob::find(state, &past, caller.user(), &name).ok_or_else(|| PaiError::no_job(&name))?;
        let ids: BTreeSet<JobId> = job.members.iter().map(|j| j.id).collect();
        let events = state.events_after(0);
        let own_events = events.filter(|e| e.job.is_some_and(|id| ids.contains(&id)));
        let views: Vec<EventView> = own_events.map(|event| EventView::new(state, event)).collect();
        Ok::<_, PaiError>((ids, views))
    })?;
    let oldest = api.handle.read(|state| state.oldest_event());
    for id in ids.into_iter().take(MAX_EVENT_JOBS) {
        let (past, _) = past_events(&api, caller.user(), (0, oldest), Some(id)).await?;
        views.extend(past.into_iter().filter_map(|(_, view)| view));
    }
    views.sort_unstable_by_key(|view| view.number);
    views.dedup_by_key(|view| view.number);
    let all = views.into_iter().map(|view| event_json(&view));
    let is_wanted = |event: &Value| filter.kind.as_ref().is_none_or(|kind| event["type"] == **kind);
    let data: Vec<Value> = all.filter(is_wanted).collect();
    Ok(Json(json!({ "totalCount": data.len(), "data": data })))
}

/// Number of jobs of an array whose older events are listed.
const MAX_EVENT_JOBS: usize = 100;

fn event_json(view: &EventView) -> Value {
    const WARNINGS: [&str; 6] = [
        "failed",
        "requeued",
        "stopping",
        "rejected",
        "time-limit",
        "dependency-failed",
    ];
    let is_warning = WARNINGS.contains(&view.kind.as_str());
    json!({
        "uid": view.number.to_string(),
        "podUid": Value::Null,
        "taskroleName": Value::Null,
        "taskIndex": Value::Null,
        "type": if is_warning { "Warning" } else { "Normal" },
        "reason": view.kind,
        "message": view.text,
        "firstTimestamp": ms(Some(view.at)),
        "lastTimestamp": ms(Some(view.at)),
        "count": 1,
        "sourceComponent": "dovetail",
    })
}
