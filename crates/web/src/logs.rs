//! What jobs print, read on their nodes and handed on piece by piece (JSON lines).

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dovetail_control::book::TaskState;
use dovetail_control::{JobNo, Launch, LogPiece, LogRequest};
use dovetail_model::NodeId;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use crate::people::User;
use crate::views::LogLine;
use crate::{Api, Problem, jobs};

/// Which part of which log.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wanted {
    /// Go on until the job is over, over all its launches.
    follow: bool,
    /// Of this launch; the last one if not given.
    launch: Option<Launch>,
    /// Of this node alone.
    node: Option<String>,
    /// From here on; negative counts from the end.
    offset: i64,
    /// Only so many lines at the end, and what follows.
    tail: Option<u64>,
}

/// Pieces that wait for a slow reader, before the agent has to.
const WAITING: usize = 64;

pub(crate) async fn read(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(wanted) = wanted.map_err(|e| Problem::invalid(e.body_text()))?;
    must_be_there(&api, &user, id, wanted.launch, wanted.node.as_deref())?;
    let (sender, receiver) = channel(WAITING);
    tokio::spawn(send(api, id, wanted, sender));
    let kind = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((kind, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Goes on only for whoever may read the log, and only if there is such a launch and such a node.
pub(crate) fn must_be_there(
    api: &Api,
    user: &User,
    id: JobNo,
    launch: Option<Launch>,
    node: Option<&str>,
) -> Result<(), Problem> {
    api.handle.read(|book| {
        let job = jobs::find_own(book, user, id)?;
        let known = |launch: Launch| job.attempts.iter().any(|a| a.launch == launch);
        if let Some(launch) = launch.filter(|launch| !known(*launch)) {
            return Err(Problem::not_found(format!("job {id} has no launch {launch}")));
        }
        match node.filter(|name| book.node_named(name).is_none()) {
            Some(name) => Err(Problem::not_found(format!("there is no node {name:?}"))),
            None => Ok(()),
        }
    })
}

type Out = Sender<Result<Bytes, Infallible>>;

/// A task whose log there is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) launch: Launch,
    pub(crate) node: NodeId,
    pub(crate) name: String,
}

/// Tasks of the job that have a log, and whether there will be no more.
fn targets(api: &Api, id: JobNo, wanted: &Wanted, first: Launch) -> (Vec<Target>, bool) {
    api.handle.read(|book| {
        let Some(job) = book.job(id) else {
            return (Vec::new(), true);
        };
        let is_wanted = |launch: Launch| wanted.launch.map_or(launch >= first, |l| l == launch);
        let mut found = Vec::new();
        for attempt in job.attempts.iter().filter(|a| is_wanted(a.launch)) {
            for (share, task) in attempt.allocation.shares.iter().zip(&attempt.tasks) {
                let name = book.node(share.node).map(|n| n.spec.name.clone());
                let target = Target {
                    launch: attempt.launch,
                    node: share.node,
                    name: name.unwrap_or_default(),
                };
                let has_log = *task != TaskState::Starting;
                if has_log && wanted.node.as_ref().is_none_or(|n| *n == target.name) {
                    found.push(target);
                }
            }
        }
        let one_launch_over = wanted.launch.is_some_and(|launch| {
            let attempt = job.attempts.iter().find(|a| a.launch == launch);
            attempt.is_some_and(|a| a.end.is_some())
        });
        (found, job.state.is_over() || one_launch_over)
    })
}

async fn send(api: Api, id: JobNo, wanted: Wanted, out: Out) {
    let mut news = api.nodes.notices();
    let last = api.handle.read(|book| {
        let attempt = book.job(id).and_then(|job| job.attempt());
        attempt.map_or(1, |a| a.launch)
    });
    let mut begun: Vec<Target> = Vec::new();
    let mut readers: Vec<(Launch, JoinHandle<()>)> = Vec::new();
    loop {
        news.borrow_and_update();
        let (found, over) = targets(&api, id, &wanted, last);
        for target in found {
            if begun.contains(&target) {
                continue;
            }
            begun.push(target.clone());
            // What an earlier launch printed comes first.
            for (_, reader) in readers.extract_if(.., |(launch, _)| *launch < target.launch) {
                let _ = reader.await;
            }
            let reader = Reader {
                api: api.clone(),
                id,
                target: target.clone(),
                out: out.clone(),
                held: Vec::new(),
            };
            readers.push((target.launch, tokio::spawn(reader.run(wanted.clone()))));
        }
        if over || !wanted.follow {
            for (_, reader) in readers {
                let _ = reader.await;
            }
            return;
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return },
            () = out.closed() => return,
        }
    }
}

/// How often a log is tried again whose task has ended and whose node does not answer.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(300);
/// The most that is looked through for the last lines.
const LONGEST_TAIL: u64 = 4 << 20;

struct Reader {
    api: Api,
    id: JobNo,
    target: Target,
    out: Out,
    /// The beginning of a character whose rest has not come yet.
    held: Vec<u8>,
}

impl Reader {
    async fn run(mut self, wanted: Wanted) {
        let mut offset = wanted.offset;
        if let Some(lines) = wanted.tail {
            match self.tail(lines).await {
                Ok(end) if wanted.follow => offset = i64::try_from(end).unwrap_or(i64::MAX),
                Ok(_) => return,
                Err(why) => return self.say(Vec::new(), 0, Some(why)).await,
            }
        }
        let mut tries = 0;
        loop {
            match self.stream(&mut offset, wanted.follow).await {
                Ok(()) => return,
                Err(_) if wanted.follow && (self.is_live() || tries < TRIES) && !self.out.is_closed() => {
                    tries += u32::from(!self.is_live());
                    tokio::time::sleep(PAUSE).await;
                }
                Err(why) => return self.say(Vec::new(), 0, Some(why)).await,
            }
        }
    }

    /// Whether the task has not ended.
    fn is_live(&self) -> bool {
        self.api.handle.read(|book| {
            let tasks = book.tasks_on(self.target.node);
            tasks
                .iter()
                .any(|(job, attempt, _)| job.no == self.id && attempt.launch == self.target.launch)
        })
    }

    fn request(&self, offset: i64, follow: bool) -> LogRequest {
        LogRequest {
            job: self.id,
            launch: self.target.launch,
            node: self.target.node,
            offset,
            most_bytes: 0,
            follow,
            find: String::new(),
            most_found: 0,
        }
    }

    /// Hands on what there is; `offset` is where to go on if it breaks off.
    async fn stream(&mut self, offset: &mut i64, follow: bool) -> Result<(), String> {
        let mut pieces = self.api.nodes.read_log(&self.request(*offset, follow))?;
        loop {
            let piece = tokio::select! {
                piece = pieces.recv() => piece,
                () = self.out.closed() => return Ok(()),
            };
            match piece {
                Some(LogPiece::Data { data, offset: end }) => {
                    *offset = i64::try_from(end).unwrap_or(i64::MAX);
                    self.say(data, end, None).await;
                }
                Some(LogPiece::End) => {
                    let rest = std::mem::take(&mut self.held);
                    if !rest.is_empty() {
                        let text = String::from_utf8_lossy(&rest).into_owned();
                        self.line(text, 0, None).await;
                    }
                    return Ok(());
                }
                Some(LogPiece::Error(why)) => return Err(why),
                // Only whoever looks for words gets lines with them.
                Some(LogPiece::Found { .. }) => {}
                None => return Err("the log broke off".to_owned()),
            }
        }
    }

    /// Hands on the last lines; where they end.
    async fn tail(&mut self, lines: u64) -> Result<u64, String> {
        let mut most = lines.saturating_mul(256).clamp(4_096, LONGEST_TAIL);
        loop {
            let request = self.request(-i64::try_from(most).unwrap_or(i64::MAX), false);
            let mut pieces = self.api.nodes.read_log(&request)?;
            let (mut text, mut end) = (Vec::new(), 0);
            loop {
                match pieces.recv().await {
                    Some(LogPiece::Data { data, offset }) => {
                        text.extend(data);
                        end = offset;
                    }
                    Some(LogPiece::End) => break,
                    Some(LogPiece::Error(why)) => return Err(why),
                    Some(LogPiece::Found { .. }) => {}
                    None => return Err("the log broke off".to_owned()),
                }
            }
            let begin = last_lines(&text, lines);
            let is_all = (text.len() as u64) < most || most == LONGEST_TAIL;
            if begin > 0 || is_all {
                self.say(text.split_off(begin), end, None).await;
                return Ok(end);
            }
            most = (most * 4).min(LONGEST_TAIL);
        }
    }

    /// Hands on bytes, whole characters only.
    async fn say(&mut self, data: Vec<u8>, offset: u64, error: Option<String>) {
        self.held.extend(data);
        let whole = match std::str::from_utf8(&self.held) {
            Ok(_) => self.held.len(),
            // A character of which the end is missing; anything else is no text, and shown as such.
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            Err(_) => self.held.len(),
        };
        let rest = self.held.split_off(whole);
        let bytes = std::mem::replace(&mut self.held, rest);
        if !bytes.is_empty() || error.is_some() {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.line(text, offset, error).await;
        }
    }

    async fn line(&self, data: String, offset: u64, error: Option<String>) {
        let line = LogLine {
            node: self.target.name.clone(),
            launch: self.target.launch,
            data,
            offset,
            error,
        };
        let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
        bytes.push(b'\n');
        // A reader that is gone is noticed by whoever waits for it.
        let _ = self.out.send(Ok(Bytes::from(bytes))).await;
    }
}

/// Where the last so many lines begin; zero if there are not more.
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
    fn the_last_lines_are_found() {
        let text = b"one\ntwo\nthree\n";
        let from = |n| String::from_utf8(text[last_lines(text, n)..].to_vec()).unwrap();
        assert_eq!(from(1), "three\n");
        assert_eq!(from(2), "two\nthree\n");
        assert_eq!(from(9), "one\ntwo\nthree\n");
        assert_eq!(from(0), "");
        assert_eq!(last_lines(b"a\nb", 1), 2);
    }
}
