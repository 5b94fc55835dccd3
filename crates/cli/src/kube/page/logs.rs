//! Nodes and logs, as the API server has them.

use std::sync::{Arc, Mutex, PoisonError};

use dovetail_control::{Handle, LogPiece, LogRequest, NodeState};
use dovetail_kube::{Mirror, PodId};
use dovetail_kubeapi::Client;
use dovetail_model::NodeId;
use dovetail_web::Nodes;
use tokio::sync::{mpsc, watch};

/// What the API needs of pods.
pub(super) struct OverPods {
    pub(super) client: Client,
    pub(super) handle: Handle,
    pub(super) mirror: Arc<Mutex<Mirror>>,
    pub(super) noticed: watch::Receiver<u64>,
}

impl Nodes for OverPods {
    fn is_connected(&self, node: NodeId) -> bool {
        self.handle
            .read(|book| book.node(node).is_some_and(|n| n.state != NodeState::Lost))
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, String> {
        let pods = {
            let mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
            mirror.pods_of(request.job, request.launch, request.node)
        };
        if pods.is_empty() {
            return Err("its pods are gone, and their logs with them".to_owned());
        }
        let (tell, pieces) = mpsc::channel(64);
        let reader = Reader {
            client: self.client.clone(),
            request: request.clone(),
            at: 0,
            sent: 0,
            found: 0,
            last: Vec::new(),
            tell,
        };
        tokio::spawn(reader.run(pods));
        Ok(pieces)
    }

    fn notices(&self) -> watch::Receiver<u64> {
        self.noticed.clone()
    }

    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Reads logs of pods one after the other, as one text. The API server knows no places in a log, so what comes before the place
/// that was asked for is read and left out.
struct Reader {
    client: Client,
    request: LogRequest,
    /// Where we are in the text.
    at: u64,
    sent: u64,
    found: u64,
    /// The end of the text so far, where only that is wanted.
    last: Vec<u8>,
    tell: mpsc::Sender<LogPiece>,
}

impl Reader {
    async fn run(mut self, pods: Vec<PodId>) {
        for pod in pods {
            match self.read(&pod).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return self.say(LogPiece::Error(why)).await,
            }
        }
        let data = std::mem::take(&mut self.last);
        if !data.is_empty() {
            let offset = self.at;
            self.say(LogPiece::Data { data, offset }).await;
        }
        self.say(LogPiece::End).await;
    }

    async fn say(&self, piece: LogPiece) {
        // A reader that is gone is noticed by whoever reads.
        let _ = self.tell.send(piece).await;
    }

    /// Reads one log; whether more is wanted.
    async fn read(&mut self, pod: &PodId) -> Result<bool, String> {
        let path = format!("{}/log?container=main&follow={}", pod.path(), self.request.follow);
        let mut lines = self.client.lines(&path).await.map_err(|e| e.to_string())?;
        loop {
            let next = tokio::select! {
                next = lines.next() => next,
                () = self.tell.closed() => return Ok(false),
            };
            let Some(mut line) = next.map_err(|e| format!("log of {pod}: {e}"))? else {
                return Ok(true);
            };
            line.push(b'\n');
            if !self.take(line).await {
                self.say(LogPiece::End).await;
                return Ok(false);
            }
        }
    }

    /// A line more; whether others are wanted after it.
    async fn take(&mut self, mut line: Vec<u8>) -> bool {
        let begins = self.at;
        self.at += line.len() as u64;
        if !self.request.find.is_empty() {
            let words = self.request.find.as_bytes();
            if line.windows(words.len()).any(|part| part == words) {
                line.pop();
                self.found += 1;
                self.say(LogPiece::Found { line, offset: begins }).await;
            }
            return self.request.most_found == 0 || self.found < u64::from(self.request.most_found);
        }
        match u64::try_from(self.request.offset) {
            Ok(from) if self.at <= from => return true,
            Ok(from) => drop(line.drain(..usize::try_from(from.saturating_sub(begins)).unwrap_or(0))),
            Err(_) => {
                self.last.extend(line);
                let most = usize::try_from(self.request.offset.unsigned_abs()).unwrap_or(usize::MAX);
                let extra = self.last.len().saturating_sub(most);
                self.last.drain(..extra);
                return true;
            }
        }
        self.sent += line.len() as u64;
        let offset = self.at;
        self.say(LogPiece::Data { data: line, offset }).await;
        self.request.most_bytes == 0 || self.sent < self.request.most_bytes
    }
}
