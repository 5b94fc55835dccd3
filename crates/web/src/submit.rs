//! Submission of jobs, as JSON or as job files.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use dovetail_cluster::{Actor, JobId, JobRequest, Refusal};
use dovetail_jobfile::{ArrayRequest, JobFile};

use crate::accounts::{Role, User};
use crate::query::DryRunQuery;
use crate::views::{FileCheck, Submission, SubmitResponse};
use crate::{Api, Problem};

/// Media types of job files.
pub(crate) const FILE_TYPES: &[&str] = &[
    "application/yaml",
    "text/yaml",
    "application/x-yaml",
    "text/plain",
];
/// Media types of submissions.
pub(crate) const SUBMISSION_TYPES: &[&str] =
    &["application/json", "application/yaml", "text/yaml", "text/plain"];

/// How often the history is read for a submission, if ended jobs leave memory meanwhile.
const MAX_RECALLS: usize = 5;
/// Maximum number of jobs in an array.
const MAX_ARRAY: usize = 100_000;

/// Reads the body of a submission, and returns it with remarks on ignored parts.
fn read(headers: &HeaderMap, body: &Bytes) -> Result<(Submission, Vec<String>), Problem> {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if media_type == "application/json" {
        let submission = serde_json::from_slice(body);
        return submission
            .map(|s| (s, Vec::new()))
            .map_err(|e| Problem::invalid(format!("invalid request body: {e}")));
    }
    if !FILE_TYPES.contains(&media_type) {
        return Err(Problem::unsupported(format!(
            "Content-Type: unsupported value {media_type:?}: expected application/json, or {} for a job file",
            FILE_TYPES.join(", ")
        )));
    }
    let text = std::str::from_utf8(body).map_err(|_| Problem::invalid("the job file is not UTF-8"))?;
    let file = JobFile::parse(text, "job file").map_err(|e| Problem::invalid(e.to_string()))?;
    let ignored = file.ignored.iter().map(ToString::to_string).collect();
    Ok((Submission::new(file, false), ignored))
}

/// Submits a job or an array, or returns a preview.
pub(crate) async fn submit(
    State(api): State<Api>,
    user: User,
    query: Result<Query<DryRunQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<SubmitResponse>), Problem> {
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let (submission, ignored) = read(&headers, &body)?;
    let Submission {
        mut job,
        array,
        dry_run,
    } = submission;
    authorize(&api, &user, &mut job)?;
    let key = headers
        .get("idempotency-key")
        .map(|v| v.to_str().unwrap_or_default().to_owned());
    if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
        return Err(Problem::invalid(
            "Idempotency-Key: invalid value: expected 1 to 200 printable ASCII characters",
        ));
    }
    if dry_run || query.dry_run {
        job.validate().map_err(|e| Problem::invalid(e.to_string()))?;
        let name = user.name.clone();
        let preview = api.read_history(move |handle| {
            let past = handle.recall(&name, &job, None)?;
            Ok(handle.preview_submission(&name, &job, &past))
        });
        let preview = preview.await??;
        let response = SubmitResponse {
            id: None,
            last: None,
            preview: Some(preview),
            ignored,
        };
        return Ok((StatusCode::OK, Json(response)));
    }
    let (id, last) = submit_job(&api, &user, job, array, key).await?;
    let response = SubmitResponse {
        id: Some(id),
        last,
        preview: None,
        ignored,
    };
    Ok((StatusCode::CREATED, Json(response)))
}

/// Checks that a user may submit a job, and sets the account that it runs under.
fn authorize(api: &Api, user: &User, job: &mut JobRequest) -> Result<(), Problem> {
    if job.array.is_some() {
        return Err(Problem::invalid(
            "job.array: set by the scheduler; use `array` beside `job`",
        ));
    }
    // Users must not choose the account of another user.
    match &job.run_as {
        Some(account) if *account != user.name && !user.admin => {
            return Err(Problem::forbidden(format!(
                "run_as: only administrators may run jobs as {account}"
            )));
        }
        None if api.config.run_as_user => job.run_as = Some(user.name.clone()),
        Some(_) | None => {}
    }
    let role = api.handle.read(|state| user.role_in(state, &job.tenant));
    if role < Some(Role::Member) {
        return Err(Problem::forbidden(format!(
            "tenant: you may not run jobs in virtual cluster {}; ask an administrator for the role member",
            job.tenant
        )));
    }
    Ok(())
}

/// Submits a job, or an array of jobs. Returns the id of the first job, and that of the last job of an array.
pub(crate) async fn submit_job(
    api: &Api,
    user: &User,
    mut job: JobRequest,
    array: Option<ArrayRequest>,
    key: Option<String>,
) -> Result<(JobId, Option<JobId>), Problem> {
    authorize(api, user, &mut job)?;
    if api.runtime.has_workloads() {
        return submit_workload(api, user, job, array, key).await;
    }
    if let Some(array) = array.as_ref().filter(|array| array.indices.len() > MAX_ARRAY) {
        return Err(Problem::invalid(format!(
            "array: {} jobs exceed the limit of {MAX_ARRAY}",
            array.indices.len()
        )));
    }
    for _ in 0..MAX_RECALLS {
        let (job, array, key) = (job.clone(), array.clone(), key.clone());
        let (name, request, given) = (user.name.clone(), job.clone(), key.clone());
        let past = api.read_history(move |handle| handle.recall(&name, &request, given.as_deref()));
        let past = past.await?;
        let submitted = match array {
            None => api
                .ask(api.handle.submit_once(&user.name, job, key, past))
                .await
                .map(|id| (id, None)),
            Some(array) => {
                let array = (array.indices, array.at_most);
                let call = api.handle.submit_array(&user.name, job, array, key, past);
                api.ask(call).await.map(|(first, last)| (first, Some(last)))
            }
        };
        if submitted != Err(Refusal::HistoryMoved) {
            return submitted.map_err(Problem::from);
        }
    }
    Err(Refusal::HistoryMoved.into())
}

/// Submits a job whose workload the runtime creates. The job gets its id first, and is held until its workload exists.
async fn submit_workload(
    api: &Api,
    user: &User,
    mut job: JobRequest,
    array: Option<ArrayRequest>,
    key: Option<String>,
) -> Result<(JobId, Option<JobId>), Problem> {
    let indices = array.as_ref().map(ArrayRequest::indices);
    let remarks = api
        .runtime
        .check_workload(&user.name, &job, indices)
        .map_err(|e| Problem::invalid(e.to_string()))?;
    job.remarks.extend(remarks);
    let owned = array.clone().map(|a| (a.indices, a.at_most));
    let announced = api.handle.announce(&user.name, job.clone(), owned, key);
    let (first, last, is_new) = api.call(announced).await?;
    if !is_new {
        return Ok((first, array.map(|_| last)));
    }
    let created = api.runtime.create_workload(&user.name, first, &job, indices);
    if let Err(error) = created.await {
        for job in first..=last {
            let actor = Actor::kubernetes("its workload could not be created");
            api.call(api.handle.cancel(job, actor)).await?;
        }
        return Err(Problem::unavailable(format!(
            "cannot create the workload of job {first}: {error}"
        )));
    }
    Ok((first, array.map(|_| last)))
}

/// Returns the format of a job file.
fn format_of(text: &str) -> &'static str {
    match dovetail_openpai::is_openpai(text) {
        true => "openpai",
        false => "native",
    }
}

/// Checks a job file without submitting it.
pub(crate) async fn check(_user: User, body: Bytes) -> Json<FileCheck> {
    let Ok(text) = std::str::from_utf8(&body) else {
        return Json(FileCheck {
            kind: "native".to_owned(),
            errors: vec!["the job file is not UTF-8".to_owned()],
            ..FileCheck::default()
        });
    };
    Json(match JobFile::parse(text, "job file") {
        Err(error) => FileCheck {
            kind: format_of(text).to_owned(),
            errors: error.fault.to_string().lines().map(str::to_owned).collect(),
            ..FileCheck::default()
        },
        Ok(file) => FileCheck {
            kind: format_of(text).to_owned(),
            ignored: file.ignored.iter().map(ToString::to_string).collect(),
            job: Some(file.job.without_secrets()),
            array: file.array,
            errors: Vec::new(),
        },
    })
}
