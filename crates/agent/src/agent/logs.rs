//! Reading logs for the server.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dovetail_proto::v1::agent_message::Body;
use dovetail_proto::v1::{AgentMessage, LogChunk, ReadLog};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::link;
use crate::task::folder::TaskFolder;
use crate::task::log;
use crate::task::search::LineSearch;

/// Size of a chunk that is sent.
const CHUNK_BYTES: usize = 64 << 10;

/// Size of a chunk that is searched.
const SEARCH_BYTES: usize = 1 << 20;

/// Interval at which a followed log is read.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(50);

/// How long a followed task may be without a shim before it counts as ended.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests that are being answered.
#[derive(Default)]
pub(super) struct LogReaders {
    readers: BTreeMap<u64, AbortHandle>,
}

impl LogReaders {
    /// Reads a log in the background, or cancels a request.
    pub(super) fn read(
        &mut self,
        command: ReadLog,
        folder: TaskFolder,
        queue: Option<mpsc::Sender<AgentMessage>>,
    ) {
        if let Some(previous) = self.readers.remove(&command.request) {
            previous.abort();
        }
        self.readers.retain(|_, reader| !reader.is_finished());
        let Some(queue) = queue.filter(|_| !command.cancel) else {
            return;
        };
        let request = command.request;
        let reader = LogReader {
            request,
            folder,
            queue,
        };
        let running = tokio::spawn(reader.run(command));
        self.readers.insert(request, running.abort_handle());
    }

    pub(super) fn stop_all(&mut self) {
        for reader in std::mem::take(&mut self.readers).into_values() {
            reader.abort();
        }
    }
}

/// A reader of one log.
struct LogReader {
    request: u64,
    folder: TaskFolder,
    queue: mpsc::Sender<AgentMessage>,
}

impl LogReader {
    async fn run(self, command: ReadLog) {
        let mut last = LogChunk {
            request: self.request,
            end: true,
            ..Default::default()
        };
        let read = match command.pattern.is_empty() {
            true => self.send_all(&command).await,
            false => self.send_matches(&command).await,
        };
        match read {
            Ok(end) => last.offset = end,
            Err(e) if !self.folder.path().exists() => {
                last.error = format!("no log of this task on this node: {e}");
            }
            Err(e) => last.error = e.to_string(),
        }
        self.send(last).await;
    }

    /// Sends the requested part of the log. Returns the offset of its end.
    async fn send_all(&self, command: &ReadLog) -> io::Result<u64> {
        let path = self.folder.path().to_owned();
        let offset = command.offset;
        // A task that is about to start has no folder yet.
        let begun = Instant::now();
        while command.follow && !path.exists() && begun.elapsed() < START_TIMEOUT {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
        }
        let mut at = blocking(move || log::begin(&path, offset)).await?;
        let mut left = match command.max_bytes {
            0 => u64::MAX,
            max => max,
        };
        while left > 0 {
            // Checked before the log is read, so that output written in between is not missed.
            let has_ended =
                self.folder.has_ended() || begun.elapsed() > START_TIMEOUT && !self.folder.has_shim();
            let max = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
            let path: PathBuf = self.folder.path().to_owned();
            let (data, end) = blocking(move || log::read(&path, at, max)).await?;
            if data.is_empty() {
                if has_ended || !command.follow {
                    break;
                }
                tokio::time::sleep(FOLLOW_INTERVAL).await;
                continue;
            }
            left -= data.len() as u64;
            at = end;
            let chunk = LogChunk {
                request: self.request,
                data,
                offset: end,
                ..Default::default()
            };
            if !self.send(chunk).await {
                break;
            }
        }
        Ok(at)
    }

    /// Sends the lines that contain the pattern. Returns the offset of the end of the log.
    async fn send_matches(&self, command: &ReadLog) -> io::Result<u64> {
        let (path, offset) = (self.folder.path().to_owned(), command.offset);
        let mut at = blocking(move || log::begin(&path, offset)).await?;
        let mut search = LineSearch::new(command.pattern.clone(), at);
        let mut left = match command.max_matches {
            0 => usize::MAX,
            max => max as usize,
        };
        loop {
            let path: PathBuf = self.folder.path().to_owned();
            // Searching takes longer than reading, so it also runs in the background.
            let (matches, is_end, moved, end) = blocking(move || {
                let (data, end) = log::read(&path, at, SEARCH_BYTES)?;
                let is_end = data.is_empty();
                let matches = match is_end {
                    true => search.finish(),
                    false => search.feed(&data, end),
                };
                Ok((matches, is_end, search, end))
            })
            .await?;
            search = moved;
            at = end;
            for (offset, line) in matches {
                let chunk = LogChunk {
                    request: self.request,
                    data: line,
                    offset,
                    is_match: true,
                    ..Default::default()
                };
                if left == 0 || !self.send(chunk).await {
                    return Ok(at);
                }
                left -= 1;
            }
            if is_end || left == 0 {
                return Ok(at);
            }
        }
    }

    /// Sends a chunk. Returns whether the connection is still open.
    async fn send(&self, chunk: LogChunk) -> bool {
        self.queue
            .send(link::unnumbered(Body::LogChunk(chunk)))
            .await
            .is_ok()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}
