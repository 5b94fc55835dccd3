//! Search in the logs of a job, on its nodes.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use dovetail_cluster::{AttemptId, JobId, LogError, LogPiece, LogRequest};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::accounts::User;
use crate::logs::{LogSource, check_access};
use crate::views::LogMatch;
use crate::{Api, Problem};

/// What to search for, and where.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogSearchQuery {
    /// Text to search for.
    q: String,
    /// Attempt; the last one if not given.
    #[serde(alias = "launch")]
    attempt: Option<AttemptId>,
    /// Only the log of this node.
    node: Option<String>,
    /// Maximum number of matches; 100 if not given.
    limit: Option<u32>,
}

/// Time limit of a search; matches until then are returned.
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_TEXT_BYTES: usize = 1_000;
const MAX_MATCHES: u32 = 1_000;

pub(crate) async fn search(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobId>,
    query: Result<Query<LogSearchQuery>, QueryRejection>,
) -> Result<Json<Vec<LogMatch>>, Problem> {
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    check_access(&api, &user, id, query.attempt, query.node.as_deref()).await?;
    if query.q.is_empty() || query.q.len() > MAX_TEXT_BYTES || query.q.contains('\n') {
        return Err(Problem::invalid(format!(
            "q: expected one line of 1 to {MAX_TEXT_BYTES} bytes"
        )));
    }
    let limit = query.limit.unwrap_or(100).clamp(1, MAX_MATCHES);
    let deadline = Instant::now() + TIMEOUT;
    let mut matches = Vec::new();
    let mut failure = None;
    for source in sources(&api, id, &query).await? {
        let left = limit - matches.len() as u32;
        if left == 0 || Instant::now() >= deadline {
            break;
        }
        let request = LogRequest {
            job: id,
            attempt: source.attempt,
            node: source.node,
            offset: 0,
            most_bytes: 0,
            follow: false,
            find: query.q.clone(),
            most_found: left,
        };
        let searched =
            tokio::time::timeout_at(deadline, search_source(&api, request, &source.name, &mut matches));
        if let Ok(Err(error)) = searched.await {
            failure = Some(format!("{}: {error}", source.name));
        }
    }
    match failure {
        Some(failure) if matches.is_empty() => Err(Problem::unavailable(failure)),
        _ => Ok(Json(matches)),
    }
}

/// Returns the logs to search.
async fn sources(api: &Api, id: JobId, query: &LogSearchQuery) -> Result<Vec<LogSource>, Problem> {
    let Some(job) = api.find_job(id).await? else {
        return Ok(Vec::new());
    };
    Ok(api.handle.read(|state| {
        let attempt_id = query.attempt.or_else(|| job.attempt().map(|a| a.id));
        let attempt = job.attempts.iter().find(|a| Some(a.id) == attempt_id);
        let shares = attempt.map_or(&[][..], |a| &a.allocation.shares);
        let source = |node| LogSource {
            attempt: attempt_id.unwrap_or_default(),
            node,
            name: state.node(node).map(|n| n.spec.name.clone()).unwrap_or_default(),
        };
        let all = shares.iter().map(|share| source(share.node));
        all.filter(|s| query.node.as_ref().is_none_or(|n| *n == s.name))
            .collect()
    }))
}

async fn search_source(
    api: &Api,
    request: LogRequest,
    node: &str,
    matches: &mut Vec<LogMatch>,
) -> Result<(), LogError> {
    let mut pieces = api.runtime.read_log(&request)?;
    loop {
        match pieces.recv().await {
            Some(LogPiece::Found { line, offset }) => matches.push(LogMatch {
                node: node.to_owned(),
                offset,
                line: String::from_utf8_lossy(&line).into_owned(),
            }),
            Some(LogPiece::Data { .. }) => {
                return Err(LogError(
                    "the agent is of an older release, which cannot search logs".to_owned(),
                ));
            }
            Some(LogPiece::End) => return Ok(()),
            Some(LogPiece::Error(error)) => return Err(LogError(error)),
            None => return Err(LogError("the log ended unexpectedly".to_owned())),
        }
    }
}
