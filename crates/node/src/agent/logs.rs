//! Reading logs for the scheduler.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dovetail_proto::v1::from_agent::What;
use dovetail_proto::v1::{LogChunk, ReadLog};
use tokio::sync::mpsc;

use crate::agent::state::Agent;
use crate::link;
use crate::task::find::Finder;
use crate::task::folder::TaskFolder;
use crate::task::log;

/// The size of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// The size of a piece that is only looked through.
const LOOK_BYTES: usize = 1 << 20;

/// A log that is followed is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A task without a shim for so long has none any more, or never had one.
const STARTS_WITHIN: Duration = Duration::from_secs(5);

impl Agent {
    /// Reads a log in the background.
    pub(super) fn read_log(&mut self, order: ReadLog) {
        if let Some(before) = self.readers.remove(&order.request) {
            before.abort();
        }
        self.readers.retain(|_, reader| !reader.is_finished());
        let Some(sender) = self.link.sender.as_ref().filter(|_| !order.cancel) else {
            return;
        };
        let folder = TaskFolder::of(&self.config.folder, order.task.unwrap_or_default().into());
        let request = order.request;
        let reader = Reader {
            request,
            folder,
            pieces: sender.logs.clone(),
        };
        let running = tokio::spawn(reader.run(order));
        self.readers.insert(request, running.abort_handle());
    }

    pub(super) fn stop_reading_logs(&mut self) {
        for reader in std::mem::take(&mut self.readers).into_values() {
            reader.abort();
        }
    }
}

struct Reader {
    request: u64,
    folder: TaskFolder,
    pieces: mpsc::Sender<dovetail_proto::v1::FromAgent>,
}

impl Reader {
    async fn run(self, order: ReadLog) {
        let mut last = LogChunk {
            request: self.request,
            end: true,
            ..Default::default()
        };
        let read = match order.find.is_empty() {
            true => self.send_all(&order).await,
            false => self.send_found(&order).await,
        };
        match read {
            Ok(end) => last.offset = end,
            Err(e) if !self.folder.path().exists() => {
                last.error = format!("there is no log of this task on this node: {e}");
            }
            Err(e) => last.error = e.to_string(),
        }
        self.send(last).await;
    }

    /// Sends everything that was asked for; where it ends.
    async fn send_all(&self, order: &ReadLog) -> io::Result<u64> {
        let path = self.folder.path().to_owned();
        let offset = order.offset;
        // A task that is about to start has no folder yet.
        let begun = Instant::now();
        while order.follow && !path.exists() && begun.elapsed() < STARTS_WITHIN {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let mut at = blocking(move || log::begin(&path, offset)).await?;
        let mut left = match order.most_bytes {
            0 => u64::MAX,
            most => most,
        };
        while left > 0 {
            // Looked at before the log: what is written in between is then still read.
            let is_over = self.folder.is_over() || begun.elapsed() > STARTS_WITHIN && !self.folder.is_held();
            let most = PIECE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
            let path: PathBuf = self.folder.path().to_owned();
            let (data, end) = blocking(move || log::read(&path, at, most)).await?;
            if data.is_empty() {
                if is_over || !order.follow {
                    break;
                }
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            left -= data.len() as u64;
            at = end;
            let piece = LogChunk {
                request: self.request,
                data,
                offset: end,
                ..Default::default()
            };
            if !self.send(piece).await {
                break;
            }
        }
        Ok(at)
    }

    /// Sends every line that was looked for; where the log ended.
    async fn send_found(&self, order: &ReadLog) -> io::Result<u64> {
        let (path, offset) = (self.folder.path().to_owned(), order.offset);
        let mut at = blocking(move || log::begin(&path, offset)).await?;
        let mut finder = Finder::new(order.find.clone(), at);
        let mut left = match order.most_found {
            0 => usize::MAX,
            most => most as usize,
        };
        loop {
            let path: PathBuf = self.folder.path().to_owned();
            // Looking through a piece takes longer than reading it, so it is done there too.
            let (found, is_end, back, end) = blocking(move || {
                let (data, end) = log::read(&path, at, LOOK_BYTES)?;
                let is_end = data.is_empty();
                let found = match is_end {
                    true => finder.rest(),
                    false => finder.feed(&data, end),
                };
                Ok((found, is_end, finder, end))
            })
            .await?;
            finder = back;
            at = end;
            for (offset, line) in found {
                let piece = LogChunk {
                    request: self.request,
                    data: line,
                    offset,
                    found: true,
                    ..Default::default()
                };
                if left == 0 || !self.send(piece).await {
                    return Ok(at);
                }
                left -= 1;
            }
            if is_end || left == 0 {
                return Ok(at);
            }
        }
    }

    /// Whether there is still somebody to send to.
    async fn send(&self, piece: LogChunk) -> bool {
        self.pieces.send(link::unnumbered(What::Log(piece))).await.is_ok()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}
