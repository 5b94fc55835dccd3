//! Logs of pods, read from the API server.

use dovetail_cluster::{LogPiece, LogRequest};
use dovetail_kubeapi::{Client, Error};
use tokio::sync::mpsc;

use crate::action::PodId;

/// Number of pieces of a log that are buffered for a reader.
const BUFFERED_PIECES: usize = 64;

/// The log of a pod that cannot be read.
#[derive(Debug, thiserror::Error)]
enum PodLogError {
    /// The API server refused the request.
    #[error(transparent)]
    Request(#[from] Error),
    /// The connection broke before the end of the log.
    #[error("log of {pod}: {source}")]
    Broken { pod: String, source: hyper::Error },
}

/// Reads the logs of pods one after the other, as one text. The API server cannot seek in a log, so everything
/// before the requested offset is read and discarded.
pub(super) struct LogReader {
    client: Client,
    request: LogRequest,
    /// Position in the text, in bytes.
    position: u64,
    /// Bytes sent so far.
    sent: u64,
    /// Matching lines sent so far.
    matches: u64,
    /// The end of the text so far, if only that is requested.
    tail: Vec<u8>,
    output: mpsc::Sender<LogPiece>,
}

impl LogReader {
    /// Reads the logs of pods in a task of its own.
    pub(super) fn spawn(client: Client, request: LogRequest, pods: Vec<PodId>) -> mpsc::Receiver<LogPiece> {
        let (output, pieces) = mpsc::channel(BUFFERED_PIECES);
        let reader = Self {
            client,
            request,
            position: 0,
            sent: 0,
            matches: 0,
            tail: Vec::new(),
            output,
        };
        tokio::spawn(reader.run(pods));
        pieces
    }

    async fn run(mut self, pods: Vec<PodId>) {
        for pod in pods {
            match self.read(&pod).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.send(LogPiece::Error(error.to_string())).await,
            }
        }
        let data = std::mem::take(&mut self.tail);
        if !data.is_empty() {
            let offset = self.position;
            self.send(LogPiece::Data { data, offset }).await;
        }
        self.send(LogPiece::End).await;
    }

    async fn send(&self, piece: LogPiece) {
        // A closed channel ends `read`.
        let _ = self.output.send(piece).await;
    }

    /// Reads the log of one pod. Returns whether more is requested.
    async fn read(&mut self, pod: &PodId) -> Result<bool, PodLogError> {
        let path = format!("{}/log?container=main&follow={}", pod.path(), self.request.follow);
        let mut lines = self.client.lines(&path).await?;
        loop {
            let next = tokio::select! {
                next = lines.next() => next,
                () = self.output.closed() => return Ok(false),
            };
            let next = next.map_err(|source| PodLogError::Broken {
                pod: pod.to_string(),
                source,
            });
            let Some(mut line) = next? else {
                return Ok(true);
            };
            line.push(b'\n');
            if !self.process(line).await {
                self.send(LogPiece::End).await;
                return Ok(false);
            }
        }
    }

    /// Processes a line. Returns whether more lines are requested.
    async fn process(&mut self, mut line: Vec<u8>) -> bool {
        let start = self.position;
        self.position += line.len() as u64;
        if !self.request.find.is_empty() {
            let pattern = self.request.find.as_bytes();
            if line.windows(pattern.len()).any(|part| part == pattern) {
                line.pop();
                self.matches += 1;
                self.send(LogPiece::Found { line, offset: start }).await;
            }
            return self.request.most_found == 0 || self.matches < u64::from(self.request.most_found);
        }
        match u64::try_from(self.request.offset) {
            Ok(from) if self.position <= from => return true,
            Ok(from) => drop(line.drain(..usize::try_from(from.saturating_sub(start)).unwrap_or(0))),
            // A negative offset counts from the end of the text.
            Err(_) => {
                self.tail.extend(line);
                let most = usize::try_from(self.request.offset.unsigned_abs()).unwrap_or(usize::MAX);
                let extra = self.tail.len().saturating_sub(most);
                self.tail.drain(..extra);
                return true;
            }
        }
        self.sent += line.len() as u64;
        let offset = self.position;
        self.send(LogPiece::Data { data: line, offset }).await;
        self.request.most_bytes == 0 || self.sent < self.request.most_bytes
    }
}
