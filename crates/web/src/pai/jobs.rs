//! Jobs: sending, listing, looking at, stopping and tagging them.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use dovetail_control::JobNo;
use dovetail_openpai::{Mode, Remark};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::Error;
use super::model::{PaiJob, TAG};
use super::shapes::{detail, ms, summary};
use super::{Asker, message};
use crate::Api;
use crate::job_file::JobFile;
use crate::openpai::convert;
use crate::views::EventView;

pub(super) async fn submit(
    State(api): State<Api>,
    asker: Asker,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Error> {
    let bad = |what: String| Error::new(StatusCode::BAD_REQUEST, "InvalidProtocolError", what);
    let text = std::str::from_utf8(&body).map_err(|_| bad("the job file is not UTF-8".to_owned()))?;
    let converted = convert(text, Mode::Strict).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(Remark::to_string).collect();
        bad(lines.join("\n"))
    })?;
    let user = asker.user();
    let (name, cluster) = (converted.job.name.clone(), converted.job.tenant.clone());
    let (taken, there) = api.handle.read(|book| {
        let there = book.clusters().get(&cluster).is_some();
        (PaiJob::is_taken(book, &user.name, &name), there)
    });
    if taken {
        let what = format!("Job {}~{name} already exists.", user.name);
        return Err(Error::new(StatusCode::CONFLICT, "ConflictJobError", what));
    }
    if !there {
        let what = format!("Virtual cluster {cluster} is not found.");
        return Err(Error::new(StatusCode::NOT_FOUND, "NoVirtualClusterError", what));
    }
    let ignored: Vec<String> = converted.remarks.iter().map(Remark::to_string).collect();
    let sent = crate::jobs::send(&api, user, converted.job, converted.array, None).await;
    sent.map_err(Error::of_job)?;
    let body = json!({
        "message": format!("Update job {}~{name} successfully.", user.name),
        "ignored": ignored,
    });
    Ok((StatusCode::ACCEPTED, Json(body)))
}

/// Which jobs are listed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
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

const MOST: usize = 50_000;

impl Filter {
    fn takes(&self, job: &PaiJob<'_>) -> bool {
        let first = job.first();
        let among = |list: &Option<String>, value: &str| {
            list.as_ref()
                .is_none_or(|list| list.split(',').any(|item| item.trim() == value))
        };
        let tags: BTreeSet<&str> = job.tags().into_iter().collect();
        let has_any = |list: &String| list.split(',').any(|tag| tags.contains(tag.trim()));
        let found = |word: &String| {
            let name = job.name();
            [first.user.as_str(), name.as_str(), first.request.tenant.as_str()]
                .iter()
                .any(|text| text.contains(word.as_str()))
        };
        among(&self.username, &first.user)
            && among(&self.vc, &first.request.tenant)
            && among(&self.state, job.state())
            && among(&self.priority, job.class().unwrap_or("default"))
            && self.tags.as_ref().is_none_or(has_any)
            && !self.not_tags.as_ref().is_some_and(has_any)
            && self.keyword.as_ref().is_none_or(found)
    }

    /// The field to sort by and whether the greatest comes first.
    fn order(&self) -> Result<(&'static str, bool), Error> {
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
        let (field, way) = order.split_once(',').unwrap_or((order, "ASC"));
        let known = FIELDS.iter().find(|(name, _)| *name == field);
        match (known, way) {
            (Some((_, key)), "ASC") => Ok((key, false)),
            (Some((_, key)), "DESC") => Ok((key, true)),
            _ => {
                let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
                Err(Error::parameters(format!(
                    "order: {order:?} is none; expected FIELD,ASC or FIELD,DESC with one of {}",
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
        // What is not there comes first.
        (a, b) => b.is_null().cmp(&a.is_null()),
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    asker: Asker,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(filter) = filter.map_err(|e| Error::parameters(e.body_text()))?;
    let (field, descending) = filter.order()?;
    let limit = filter.limit.unwrap_or(5_000);
    if limit > MOST {
        return Err(Error::parameters(format!("limit: at most {MOST}")));
    }
    let mut found: Vec<Value> = api.handle.read(|book| {
        let all = PaiJob::all(book, asker.user());
        all.iter().filter(|job| filter.takes(job)).map(summary).collect()
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
    asker: Asker,
    Path(name): Path<String>,
) -> Result<Json<Value>, Error> {
    api.handle.read(|book| {
        let job = PaiJob::find(book, asker.user(), &name).ok_or_else(|| Error::no_job(&name))?;
        Ok(Json(detail(book, &job, None)))
    })
}

pub(super) async fn show_attempt(
    State(api): State<Api>,
    asker: Asker,
    Path((name, attempt)): Path<(String, usize)>,
) -> Result<Json<Value>, Error> {
    api.handle.read(|book| {
        let job = PaiJob::find(book, asker.user(), &name).ok_or_else(|| Error::no_job(&name))?;
        if job.first().attempts.get(attempt).is_none() {
            let what = format!("Attempt {attempt} of job {name} is not found.");
            return Err(Error::new(StatusCode::NOT_FOUND, "NoJobError", what));
        }
        Ok(Json(detail(book, &job, Some(attempt))))
    })
}

pub(super) async fn config(
    State(api): State<Api>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, Error> {
    let text = api.handle.read(|book| {
        let job = PaiJob::find(book, asker.user(), &name).ok_or_else(|| Error::no_job(&name))?;
        let first = job.first();
        if !asker.user().may_touch(book, first) {
            return Err(Error::forbidden(format!(
                "The configuration of job {name} is its owner's."
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

/// A value to be set.
#[derive(Debug, Deserialize)]
pub(super) struct Setting {
    value: String,
}

/// The numbers of a job's members, if the user may do something to it.
fn own(api: &Api, asker: &Asker, name: &str) -> Result<Vec<(JobNo, bool)>, Error> {
    api.handle.read(|book| {
        let job = PaiJob::find(book, asker.user(), name).ok_or_else(|| Error::no_job(name))?;
        if !asker.user().may_touch(book, job.first()) {
            return Err(Error::forbidden(format!(
                "User {} is not allowed to do operation on {name}.",
                asker.user().name
            )));
        }
        Ok(job.members.iter().map(|j| (j.no, j.state.is_over())).collect())
    })
}

pub(super) async fn execute(
    State(api): State<Api>,
    asker: Asker,
    Path(name): Path<String>,
    body: Result<Json<Setting>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), Error> {
    let Json(Setting { value }) = body.map_err(|e| Error::parameters(e.body_text()))?;
    let members = own(&api, &asker, &name)?;
    match value.as_str() {
        "STOP" => {
            for (no, over) in members {
                if !over {
                    // One may have ended meanwhile, which is just as well.
                    let _ = crate::jobs::stop(&api, no, &asker.user().name).await;
                }
            }
        }
        "START" => {}
        other => {
            return Err(Error::parameters(format!(
                "value: {other:?} is none; expected START or STOP"
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
    asker: Asker,
    Path(name): Path<String>,
    body: Result<Json<Setting>, JsonRejection>,
) -> Result<Json<Value>, Error> {
    mark(&api, &asker, &name, body, true).await
}

pub(super) async fn untag(
    State(api): State<Api>,
    asker: Asker,
    Path(name): Path<String>,
    body: Result<Json<Setting>, JsonRejection>,
) -> Result<Json<Value>, Error> {
    mark(&api, &asker, &name, body, false).await
}

async fn mark(
    api: &Api,
    asker: &Asker,
    name: &str,
    body: Result<Json<Setting>, JsonRejection>,
    set: bool,
) -> Result<Json<Value>, Error> {
    let Json(Setting { value }) = body.map_err(|e| Error::parameters(e.body_text()))?;
    if value.is_empty() || value.len() > 100 || value.contains(',') {
        return Err(Error::parameters(
            "value: expected a tag of up to 100 bytes without commas",
        ));
    }
    let members = own(api, asker, name)?;
    let Some((first, _)) = members.first() else {
        return Err(Error::no_job(name));
    };
    let key = format!("{TAG}{value}");
    let ask = api
        .handle
        .label(*first, &key, set.then(String::new), &asker.user().name);
    api.ask(ask).await?;
    Ok(message(format!(
        "Tag {value} of job {name} is {}.",
        if set { "added" } else { "removed" }
    )))
}

/// Which events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EventFilter {
    #[serde(rename = "type")]
    kind: Option<String>,
}

pub(super) async fn events(
    State(api): State<Api>,
    asker: Asker,
    Path(name): Path<String>,
    wanted: Result<Query<EventFilter>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(wanted) = wanted.map_err(|e| Error::parameters(e.body_text()))?;
    const BAD: [&str; 6] = [
        "failed",
        "preempted",
        "stopping",
        "rejected",
        "time-limit",
        "dependency-failed",
    ];
    let data: Vec<Value> = api.handle.read(|book| {
        let job = PaiJob::find(book, asker.user(), &name).ok_or_else(|| Error::no_job(&name))?;
        let numbers: BTreeSet<JobNo> = job.members.iter().map(|j| j.no).collect();
        let own = book
            .notices_after(0)
            .filter(|n| n.job.is_some_and(|no| numbers.contains(&no)));
        let event = |notice| {
            let view = EventView::of(book, notice);
            let kind = if BAD.contains(&view.kind.as_str()) {
                "Warning"
            } else {
                "Normal"
            };
            json!({
                "uid": view.number.to_string(),
                "podUid": Value::Null,
                "taskroleName": Value::Null,
                "taskIndex": Value::Null,
                "type": kind,
                "reason": view.kind,
                "message": view.text,
                "firstTimestamp": ms(Some(view.at)),
                "lastTimestamp": ms(Some(view.at)),
                "count": 1,
                "sourceComponent": "dovetail",
            })
        };
        let all = own.map(event);
        Ok::<_, Error>(
            all.filter(|e| wanted.kind.as_ref().is_none_or(|k| e["type"] == **k))
                .collect(),
        )
    })?;
    Ok(Json(json!({ "totalCount": data.len(), "data": data })))
}
