//! Logs of jobs, read on their nodes and streamed as JSON lines.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dovetail_cluster::state::TaskState;
use dovetail_cluster::{AttemptId, JobId, LogError, LogPiece, LogRequest};
use dovetail_model::NodeId;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use crate::accounts::User;
use crate::views::LogLine;
use crate::{Api, Problem};

/// Which part of which log to read.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogQuery {
    /// Follow the log over all attempts until the job ends.
    follow: bool,
    /// Attempt; the last one if not given.
    #[serde(alias = "launch")]
    attempt: Option<AttemptId>,
    /// Only the log of this node.
    node: Option<String>,
    /// Offset to start at, in bytes; a negative one counts from the end.
    offset: i64,
    /// Number of lines at the end to start with.
    tail: Option<u64>,
}

/// Maximum number of pieces that are buffered for a slow client before the agent waits.
const BUFFERED: usize = 64;

pub(crate) async fn read(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobId>,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    check_access(&api, &user, id, query.attempt, query.node.as_deref()).await?;
    let (sender, receiver) = channel(BUFFERED);
    tokio::spawn(send(api, id, query, sender));
    let media_type = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((media_type, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Returns an error unless the user may read the log, and the attempt and the node exist.
pub(crate) async fn check_access(
    api: &Api,
    user: &User,
    id: JobId,
    attempt: Option<AttemptId>,
    node: Option<&str>,
) -> Result<(), Problem> {
    api.with_controlled_job(user, id, |state, job| {
        let exists = |attempt: AttemptId| job.attempts.iter().any(|a| a.id == attempt);
        if let Some(attempt) = attempt.filter(|attempt| !exists(*attempt)) {
            return Err(Problem::not_found(format!("job {id} has no attempt {attempt}")));
        }
        match node.filter(|name| state.node_named(name).is_none()) {
            Some(name) => Err(Problem::not_found(format!("unknown node {name:?}"))),
            None => Ok(()),
        }
    })
    .await
}

type LineSender = Sender<Result<Bytes, Infallible>>;

/// The log of one task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogSource {
    pub(crate) attempt: AttemptId,
    pub(crate) node: NodeId,
    pub(crate) name: String,
}

/// Returns the logs of the job so far, and whether there will be no more.
async fn sources(api: &Api, id: JobId, query: &LogQuery, first: AttemptId) -> (Vec<LogSource>, bool) {
    // A history that cannot be read is in the log of the server.
    let Some(job) = api.find_job(id).await.ok().flatten() else {
        return (Vec::new(), true);
    };
    api.handle.read(|state| {
        let is_requested = |id: AttemptId| query.attempt.map_or(id >= first, |requested| requested == id);
        let mut found = Vec::new();
        for attempt in job.attempts.iter().filter(|a| is_requested(a.id)) {
            for (share, task) in attempt.allocation.shares.iter().zip(&attempt.tasks) {
                let name = state.node(share.node).map(|n| n.spec.name.clone());
                let source = LogSource {
                    attempt: attempt.id,
                    node: share.node,
                    name: name.unwrap_or_default(),
                };
                let has_log = *task != TaskState::Starting;
                if has_log && query.node.as_ref().is_none_or(|n| *n == source.name) {
                    found.push(source);
                }
            }
        }
        let has_attempt_ended = query.attempt.is_some_and(|id| {
            let attempt = job.attempts.iter().find(|a| a.id == id);
            attempt.is_some_and(|a| a.end.is_some())
        });
        (found, job.state.has_ended() || has_attempt_ended)
    })
}

/// Streams the logs of a job; those of earlier attempts come first.
async fn send(api: Api, id: JobId, query: LogQuery, out: LineSender) {
    let mut last_event = api.handle.last_event();
    let job = api.find_job(id).await.ok().flatten();
    let first = job.and_then(|job| Some(job.attempt()?.id)).unwrap_or(1);
    let mut started: Vec<LogSource> = Vec::new();
    let mut readers: Vec<(AttemptId, JoinHandle<()>)> = Vec::new();
    loop {
        last_event.borrow_and_update();
        let (found, is_complete) = sources(&api, id, &query, first).await;
        for source in found {
            if started.contains(&source) {
                continue;
            }
            started.push(source.clone());
            for (_, reader) in readers.extract_if(.., |(attempt, _)| *attempt < source.attempt) {
                let _ = reader.await;
            }
            let reader = LogReader {
                api: api.clone(),
                id,
                source: source.clone(),
                out: out.clone(),
                incomplete: Vec::new(),
            };
            readers.push((source.attempt, tokio::spawn(reader.run(query.clone()))));
        }
        if is_complete || !query.follow {
            for (_, reader) in readers {
                let _ = reader.await;
            }
            return;
        }
        tokio::select! {
            changed = last_event.changed() => if changed.is_err() { return },
            () = out.closed() => return,
        }
    }
}

/// How often a log is retried whose task has ended and whose node does not answer.
const MAX_RETRIES: u32 = 10;
const RETRY_DELAY: Duration = Duration::from_millis(300);
/// Maximum number of bytes that are read to find the last lines.
const MAX_TAIL: u64 = 4 << 20;

/// Reads one log and sends it to the client.
struct LogReader {
    api: Api,
    id: JobId,
    source: LogSource,
    out: LineSender,
    /// The first bytes of a character whose rest has not been read yet.
    incomplete: Vec<u8>,
}

impl LogReader {
    async fn run(mut self, query: LogQuery) {
        let mut offset = query.offset;
        if let Some(lines) = query.tail {
            match self.tail(lines).await {
                Ok(end) if query.follow => offset = i64::try_from(end).unwrap_or(i64::MAX),
                Ok(_) => return,
                Err(error) => return self.send_bytes(Vec::new(), 0, Some(error)).await,
            }
        }
        let mut retries = 0;
        loop {
            match self.stream(&mut offset, query.follow).await {
                Ok(()) => return,
                Err(_)
                    if query.follow
                        && (self.is_task_running() || retries < MAX_RETRIES)
                        && !self.out.is_closed() =>
                {
                    retries += u32::from(!self.is_task_running());
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => return self.send_bytes(Vec::new(), 0, Some(error)).await,
            }
        }
    }

    /// Whether the task has not ended.
    fn is_task_running(&self) -> bool {
        self.api.handle.read(|state| {
            let tasks = state.tasks_on(self.source.node);
            tasks
                .iter()
                .any(|(job, attempt, _)| job.id == self.id && attempt.id == self.source.attempt)
        })
    }

    fn request(&self, offset: i64, follow: bool) -> LogRequest {
        LogRequest {
            job: self.id,
            attempt: self.source.attempt,
            node: self.source.node,
            offset,
            most_bytes: 0,
            follow,
            find: String::new(),
            most_found: 0,
        }
    }

    /// Sends the log from `offset` on, and advances `offset`, so that reading can resume there after an error.
    async fn stream(&mut self, offset: &mut i64, follow: bool) -> Result<(), LogError> {
        let mut pieces = self.api.runtime.read_log(&self.request(*offset, follow))?;
        loop {
            let piece = tokio::select! {
                piece = pieces.recv() => piece,
                () = self.out.closed() => return Ok(()),
            };
            match piece {
                Some(LogPiece::Data { data, offset: end }) => {
                    *offset = i64::try_from(end).unwrap_or(i64::MAX);
                    self.send_bytes(data, end, None).await;
                }
                Some(LogPiece::End) => {
                    let rest = std::mem::take(&mut self.incomplete);
                    if !rest.is_empty() {
                        let text = String::from_utf8_lossy(&rest).into_owned();
                        self.send_line(text, 0, None).await;
                    }
                    return Ok(());
                }
                Some(LogPiece::Error(error)) => return Err(LogError(error)),
                // Only the answer to a search.
                Some(LogPiece::Found { .. }) => {}
                None => return Err(ended_unexpectedly()),
            }
        }
    }

    /// Sends the last lines, and returns the offset of their end.
    async fn tail(&mut self, lines: u64) -> Result<u64, LogError> {
        let mut size = lines.saturating_mul(256).clamp(4_096, MAX_TAIL);
        loop {
            let request = self.request(-i64::try_from(size).unwrap_or(i64::MAX), false);
            let mut pieces = self.api.runtime.read_log(&request)?;
            let (mut text, mut end) = (Vec::new(), 0);
            loop {
                match pieces.recv().await {
                    Some(LogPiece::Data { data, offset }) => {
                        text.extend(data);
                        end = offset;
                    }
                    Some(LogPiece::End) => break,
                    Some(LogPiece::Error(error)) => return Err(LogError(error)),
                    Some(LogPiece::Found { .. }) => {}
                    None => return Err(ended_unexpectedly()),
                }
            }
            let start = last_lines(&text, lines);
            let is_all = (text.len() as u64) < size || size == MAX_TAIL;
            if start > 0 || is_all {
                self.send_bytes(text.split_off(start), end, None).await;
                return Ok(end);
            }
            size = (size * 4).min(MAX_TAIL);
        }
    }

    /// Sends bytes as text, complete characters only.
    async fn send_bytes(&mut self, data: Vec<u8>, offset: u64, error: Option<LogError>) {
        self.incomplete.extend(data);
        let complete = match std::str::from_utf8(&self.incomplete) {
            Ok(_) => self.incomplete.len(),
            // The end of a character is missing. Anything else is not UTF-8, and is sent with replacement characters.
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            Err(_) => self.incomplete.len(),
        };
        let rest = self.incomplete.split_off(complete);
        let bytes = std::mem::replace(&mut self.incomplete, rest);
        if !bytes.is_empty() || error.is_some() {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.send_line(text, offset, error).await;
        }
    }

    async fn send_line(&self, data: String, offset: u64, error: Option<LogError>) {
        let line = LogLine {
            node: self.source.name.clone(),
            attempt: self.source.attempt,
            data,
            offset,
            error: error.map(|e| e.to_string()),
        };
        let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
        bytes.push(b'\n');
        // The caller checks whether the client has disconnected.
        let _ = self.out.send(Ok(Bytes::from(bytes))).await;
    }
}

fn ended_unexpectedly() -> LogError {
    LogError("the log ended unexpectedly".to_owned())
}

/// Returns where the last lines start; 0 if there are not more.
fn last_lines(text: &[u8], lines: u64) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let breaks = body.iter().enumerate().rev().filter(|(_, b)| **b == b'\n');
    let Some(skip) = usize::try_from(lines).ok().and_then(|n| n.checked_sub(1)) else {
        return text.len();
    };
    breaks.map(|(at, _)| at + 1).nth(skip).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_the_last_lines_is_found() {
        let text = b"one\ntwo\nthree\n";
        let from = |n| String::from_utf8(text[last_lines(text, n)..].to_vec()).unwrap();
        assert_eq!(from(1), "three\n");
        assert_eq!(from(2), "two\nthree\n");
        assert_eq!(from(9), "one\ntwo\nthree\n");
        assert_eq!(from(0), "");
        assert_eq!(last_lines(b"a\nb", 1), 2);
    }
}
