//! Looking for words in what a job printed, on its nodes.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use dovetail_control::{JobNo, Launch, LogPiece, LogRequest};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::logs::{Target, must_be_there};
use crate::people::User;
use crate::views::Found;
use crate::{Api, Problem};

/// What is looked for, and where.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wanted {
    /// The words, as they are.
    q: String,
    /// In this launch; the last one if not given.
    launch: Option<Launch>,
    /// On this node alone.
    node: Option<String>,
    /// So many lines at most; 100 if not given.
    limit: Option<u32>,
}

/// How long it may take; what was found by then is told.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_WORDS: usize = 1_000;
const MOST: u32 = 1_000;

pub(crate) async fn search(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Vec<Found>>, Problem> {
    let Query(wanted) = wanted.map_err(|e| Problem::invalid(e.body_text()))?;
    must_be_there(&api, &user, id, wanted.launch, wanted.node.as_deref())?;
    if wanted.q.is_empty() || wanted.q.len() > LONGEST_WORDS || wanted.q.contains('\n') {
        return Err(Problem::invalid(format!(
            "q: expected 1 to {LONGEST_WORDS} bytes of one line to look for"
        )));
    }
    let limit = wanted.limit.unwrap_or(100).clamp(1, MOST);
    let until = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    let mut failed = None;
    for target in targets(&api, id, &wanted) {
        let left = limit - found.len() as u32;
        if left == 0 || Instant::now() >= until {
            break;
        }
        let request = LogRequest {
            job: id,
            launch: target.launch,
            node: target.node,
            offset: 0,
            most_bytes: 0,
            follow: false,
            find: wanted.q.clone(),
            most_found: left,
        };
        let looked = tokio::time::timeout_at(until, look(&api, request, &target.name, &mut found));
        if let Ok(Err(why)) = looked.await {
            failed = Some(format!("{}: {why}", target.name));
        }
    }
    match failed {
        Some(why) if found.is_empty() => Err(Problem::unavailable(why)),
        _ => Ok(Json(found)),
    }
}

/// The tasks whose logs are looked through.
fn targets(api: &Api, id: JobNo, wanted: &Wanted) -> Vec<Target> {
    api.handle.read(|book| {
        let Some(job) = book.job(id) else {
            return Vec::new();
        };
        let launch = wanted.launch.or_else(|| job.attempt().map(|a| a.launch));
        let attempt = job.attempts.iter().find(|a| Some(a.launch) == launch);
        let shares = attempt.map_or(&[][..], |a| &a.allocation.shares);
        let target = |node| Target {
            launch: launch.unwrap_or_default(),
            node,
            name: book.node(node).map(|n| n.spec.name.clone()).unwrap_or_default(),
        };
        let all = shares.iter().map(|share| target(share.node));
        all.filter(|t| wanted.node.as_ref().is_none_or(|n| *n == t.name))
            .collect()
    })
}

async fn look(api: &Api, request: LogRequest, node: &str, found: &mut Vec<Found>) -> Result<(), String> {
    let mut pieces = api.nodes.read_log(&request)?;
    loop {
        match pieces.recv().await {
            Some(LogPiece::Found { line, offset }) => found.push(Found {
                node: node.to_owned(),
                offset,
                line: String::from_utf8_lossy(&line).into_owned(),
            }),
            Some(LogPiece::Data { .. }) => {
                return Err("its agent is of an older release, which cannot look for words".to_owned());
            }
            Some(LogPiece::End) => return Ok(()),
            Some(LogPiece::Error(why)) => return Err(why),
            None => return Err("the log broke off".to_owned()),
        }
    }
}
