//! Jobs: sending, looking at, stopping and reordering them.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use dovetail_control::book::{Book, JobRecord};
use dovetail_control::{JobNo, JobRequest};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::job_file::JobFile;
use crate::people::{Role, User};
use crate::views::{
    ActionDone, Actions, ArrayRequest, FileCheck, JobView, NewPriority, ProgressPoint, Submission, Submitted,
};
use crate::{Api, Makes, Problem};

/// The job of this number, if the user may know of it.
pub(crate) fn find<'a>(book: &'a Book, user: &User, id: JobNo) -> Result<&'a JobRecord, Problem> {
    let job = book.job(id).filter(|job| user.may_see(book, job));
    job.ok_or_else(|| Problem::not_found(format!("there is no job {id}")))
}

/// The job of this number, if the user may do something to it.
pub(crate) fn find_own<'a>(book: &'a Book, user: &User, id: JobNo) -> Result<&'a JobRecord, Problem> {
    let job = find(book, user, id)?;
    match user.may_touch(book, job) {
        true => Ok(job),
        false => Err(Problem::forbidden(format!(
            "job {id} belongs to {}; only its owner, operators of {} and administrators may do that",
            job.user, job.request.tenant
        ))),
    }
}

/// How a job is sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HowSent {
    /// Only say what would happen.
    dry_run: bool,
}

/// What a request brings: JSON, or a job file.
fn read(headers: &HeaderMap, body: &Bytes) -> Result<(Submission, Vec<String>), Problem> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind == "application/json" {
        let submission = serde_json::from_slice(body);
        return submission
            .map(|s| (s, Vec::new()))
            .map_err(|e| Problem::invalid(format!("the request: {e}")));
    }
    if !TEXTS.contains(&kind) {
        return Err(Problem::unsupported(format!(
            "Content-Type: {kind:?} is none; expected application/json, or {} for a job file",
            TEXTS.join(", ")
        )));
    }
    let text = std::str::from_utf8(body).map_err(|_| Problem::invalid("the job file is not UTF-8"))?;
    let file = JobFile::parse(text, "the job file").map_err(|e| Problem::invalid(e.to_string()))?;
    let ignored = file.ignored.iter().map(ToString::to_string).collect();
    Ok((file.submission(false), ignored))
}

/// What a job file may be sent as.
pub(crate) const TEXTS: &[&str] = &[
    "application/yaml",
    "text/yaml",
    "application/x-yaml",
    "text/plain",
];
/// What a job may be sent as.
pub(crate) const KINDS: &[&str] = &["application/json", "application/yaml", "text/yaml", "text/plain"];

pub(crate) async fn submit(
    State(api): State<Api>,
    user: User,
    how: Result<Query<HowSent>, QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Submitted>), Problem> {
    let Query(how) = how.map_err(|e| Problem::invalid(e.body_text()))?;
    let (submission, ignored) = read(&headers, &body)?;
    let Submission {
        mut job,
        array,
        dry_run,
    } = submission;
    may_send(&api, &user, &mut job)?;
    let key = headers
        .get("idempotency-key")
        .map(|v| v.to_str().unwrap_or_default().to_owned());
    if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
        return Err(Problem::invalid(
            "Idempotency-Key: expected 1 to 200 letters, digits or signs",
        ));
    }
    if dry_run || how.dry_run {
        job.validate().map_err(Problem::invalid)?;
        let look = api.handle.clone();
        let name = user.name.clone();
        let outlook = tokio::task::spawn_blocking(move || look.would_come(&name, &job));
        let outlook = outlook.await.map_err(|e| Problem::unavailable(e.to_string()))??;
        let dry = Submitted {
            id: None,
            last: None,
            outlook: Some(outlook),
            ignored,
        };
        return Ok((StatusCode::OK, Json(dry)));
    }
    let (id, last) = send(&api, &user, job, array, key).await?;
    let submitted = Submitted {
        id: Some(id),
        last,
        outlook: None,
        ignored,
    };
    Ok((StatusCode::CREATED, Json(submitted)))
}

/// Whether somebody may send a job; it is told whose account it runs under.
fn may_send(api: &Api, user: &User, job: &mut JobRequest) -> Result<(), Problem> {
    if job.array.is_some() {
        return Err(Problem::invalid(
            "job.array: is set by the scheduler; use `array` beside `job`",
        ));
    }
    // Whose account a job has is no matter of what its sender writes.
    match &job.run_as {
        Some(account) if *account != user.name && !user.admin => {
            return Err(Problem::forbidden(format!(
                "run_as: only an administrator may run jobs as {account}"
            )));
        }
        None if api.config.run_as_user => job.run_as = Some(user.name.clone()),
        Some(_) | None => {}
    }
    let role = api.handle.read(|book| user.role_in(book, &job.tenant));
    if role < Some(Role::Member) {
        return Err(Problem::forbidden(format!(
            "tenant: you may not run jobs in virtual cluster {}; ask an administrator for the role member",
            job.tenant
        )));
    }
    Ok(())
}

/// Takes a job in, or an array of them: the first number, and the last of an array.
pub(crate) async fn send(
    api: &Api,
    user: &User,
    mut job: JobRequest,
    array: Option<ArrayRequest>,
    key: Option<String>,
) -> Result<(JobNo, Option<JobNo>), Problem> {
    may_send(api, user, &mut job)?;
    if let Some(makes) = &api.config.makes {
        return made_by_others(api, makes, user, job, array, key).await;
    }
    Ok(match array {
        None => (api.ask(api.handle.submit_once(&user.name, job, key)).await?, None),
        Some(array) => {
            const MOST: usize = 100_000;
            if array.indices.len() > MOST {
                return Err(Problem::invalid(format!("array: at most {MOST} jobs at once")));
            }
            let ask = api
                .handle
                .submit_array(&user.name, job, array.indices, array.at_most, key);
            let (first, last) = api.ask(ask).await?;
            (first, Some(last))
        }
    })
}

/// The same, where others make the parts of jobs: the book gives it a number, and waits for its parts.
async fn made_by_others(
    api: &Api,
    makes: &Arc<dyn Makes>,
    user: &User,
    mut job: JobRequest,
    array: Option<ArrayRequest>,
    key: Option<String>,
) -> Result<(JobNo, Option<JobNo>), Problem> {
    let remarks = makes
        .check(&user.name, &job, array.as_ref())
        .map_err(Problem::invalid)?;
    job.remarks.extend(remarks);
    let indices = array.clone().map(|a| (a.indices, a.at_most));
    let announced = api.handle.announce(&user.name, job.clone(), indices, key);
    let (first, last, is_new) = api.ask(announced).await?;
    if is_new && let Err(why) = makes.make(&user.name, first, job, array.clone()).await {
        for job in first..=last {
            api.ask(api.handle.cancel(job, "kubernetes: it could not be made"))
                .await?;
        }
        return Err(Problem::unavailable(format!(
            "job {first} could not be made: {why}"
        )));
    }
    Ok((first, array.map(|_| last)))
}

/// What kind of job file a text is.
fn kind(text: &str) -> &'static str {
    match dovetail_openpai::is_openpai(text) {
        true => "openpai",
        false => "native",
    }
}

/// Reads a job file and says what it finds, without sending it.
pub(crate) async fn check(_user: User, body: Bytes) -> Json<FileCheck> {
    let wrong = |what: String| FileCheck {
        kind: "native".to_owned(),
        errors: vec![what],
        ..FileCheck::default()
    };
    let Ok(text) = std::str::from_utf8(&body) else {
        return Json(wrong("the job file is not UTF-8".to_owned()));
    };
    Json(match JobFile::parse(text, "the job file") {
        Err(error) => FileCheck {
            kind: kind(text).to_owned(),
            errors: error.what.lines().map(str::to_owned).collect(),
            ..FileCheck::default()
        },
        Ok(file) => FileCheck {
            kind: kind(text).to_owned(),
            ignored: file.ignored.iter().map(ToString::to_string).collect(),
            job: Some(file.job.without_secrets()),
            array: file.array,
            errors: Vec::new(),
        },
    })
}

pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
) -> Result<Json<JobView>, Problem> {
    api.handle.read(|book| {
        let job = find(book, &user, id)?;
        Ok(Json(JobView::of(book, job, &user, true)))
    })
}

/// Does it, and says so in the list of changes if it is another's job.
async fn do_to(api: &Api, user: &User, id: JobNo, action: &str) -> Result<(), Problem> {
    let owner = api
        .handle
        .read(|book| find_own(book, user, id).map(|job| job.user.clone()))?;
    if action != "stop" {
        api.needs_agents("stop it, or suspend its Jobs with `kubectl`")?;
    }
    let ask = match action {
        "stop" => {
            stop(api, id, &user.name).await?;
            note_if_anothers(api, user, &owner, id, action);
            return Ok(());
        }
        "hold" => api.handle.hold(id, &user.name),
        "release" => api.handle.release(id, &user.name),
        _ => {
            return Err(Problem::not_found(format!(
                "{action:?} cannot be done to a job; stop, hold and release can"
            )));
        }
    };
    api.ask(ask).await?;
    note_if_anothers(api, user, &owner, id, action);
    Ok(())
}

fn note_if_anothers(api: &Api, user: &User, owner: &str, id: JobNo, action: &str) {
    if owner != user.name {
        api.audit
            .note(&user.name, &format!("job-{action}"), &id.to_string(), None, None);
    }
}

/// Ends a job, and whatever others have made of it.
pub(crate) async fn stop(api: &Api, id: JobNo, by: &str) -> Result<(), Problem> {
    api.ask(api.handle.cancel(id, by)).await?;
    match &api.config.makes {
        Some(makes) => makes.unmake(id, by).await.map_err(Problem::unavailable),
        None => Ok(()),
    }
}

pub(crate) async fn act(
    State(api): State<Api>,
    user: User,
    Path((id, action)): Path<(JobNo, String)>,
) -> Result<Json<JobView>, Problem> {
    do_to(&api, &user, id, &action).await?;
    show(State(api), user, Path(id)).await
}

pub(crate) async fn prioritize(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
    body: Result<Json<NewPriority>, JsonRejection>,
) -> Result<Json<JobView>, Problem> {
    api.needs_agents("send it again with another priority")?;
    let Json(new) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let before = api
        .handle
        .read(|book| find_own(book, &user, id).map(|job| job.request.priority))?;
    api.ask(api.handle.prioritize(id, new.priority, &user.name))
        .await?;
    let (was, is) = (before.into(), new.priority.into());
    api.audit
        .note(&user.name, "job-priority", &id.to_string(), Some(was), Some(is));
    show(State(api), user, Path(id)).await
}

/// The most jobs at a time.
const MOST_ACTIONS: usize = 1_000;

pub(crate) async fn act_on_many(
    State(api): State<Api>,
    user: User,
    body: Result<Json<Actions>, JsonRejection>,
) -> Result<Json<Vec<ActionDone>>, Problem> {
    let Json(actions) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    if actions.ids.len() > MOST_ACTIONS {
        return Err(Problem::invalid(format!(
            "ids: at most {MOST_ACTIONS} jobs at a time"
        )));
    }
    if !["stop", "hold", "release"].contains(&actions.action.as_str()) {
        return Err(Problem::invalid(format!(
            "action: {:?} is none; expected stop, hold or release",
            actions.action
        )));
    }
    let mut done = Vec::new();
    for id in actions.ids {
        let result = do_to(&api, &user, id, &actions.action).await;
        done.push(ActionDone {
            id,
            ok: result.is_ok(),
            detail: result.err().map(|p| p.detail).unwrap_or_default(),
        });
    }
    Ok(Json(done))
}

pub(crate) async fn progress(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
) -> Result<Json<Vec<ProgressPoint>>, Problem> {
    api.handle.read(|book| {
        let job = find(book, &user, id)?;
        let point = |mark: &dovetail_control::book::Mark| ProgressPoint {
            at: mark.at,
            step: mark.step,
            total: job.steps.total,
            step_time_us: mark.step_time.0,
            checkpoint: job.steps.checkpoint.min(mark.step),
        };
        Ok(Json(job.trail.iter().map(point).collect()))
    })
}
