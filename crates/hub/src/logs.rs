//! Readers of logs. Logs are on the nodes; the hub passes requests to agents and pieces back to readers.

use std::collections::BTreeMap;

use dovetail_cluster::{LogPiece, LogRequest};
use dovetail_model::NodeId;
use dovetail_proto::v1;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Number of buffered pieces; a reader that is slower is dropped, so that it does not block others.
const MAX_BUFFERED: usize = 1_024;

/// All readers of logs.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    next: u64,
    open: BTreeMap<u64, (NodeId, Sender<LogPiece>)>,
}

impl Readers {
    /// Adds a reader. Returns the message to its node, and the channel on which it gets the pieces.
    pub(crate) fn open(&mut self, request: &LogRequest) -> (v1::ReadLog, Receiver<LogPiece>) {
        self.next += 1;
        let (sender, receiver) = channel(MAX_BUFFERED);
        self.open.insert(self.next, (request.node, sender));
        let message = v1::ReadLog {
            request: self.next,
            task: crate::convert::task_key(request.job, request.attempt),
            offset: request.offset,
            max_bytes: request.most_bytes,
            follow: request.follow,
            cancel: false,
            pattern: request.find.clone().into_bytes(),
            max_matches: request.most_found,
        };
        (message, receiver)
    }

    /// Passes a piece to its reader. Returns the message that cancels the request if the reader does not take more.
    pub(crate) fn pass_on(&mut self, from: NodeId, chunk: v1::LogChunk) -> Option<v1::ReadLog> {
        let number = chunk.request;
        let (node, reader) = self.open.get(&number)?;
        if *node != from {
            return None;
        }
        let mut is_taken = true;
        if !chunk.data.is_empty() {
            let (data, offset) = (chunk.data, chunk.offset);
            let piece = match chunk.is_match {
                true => LogPiece::Found { line: data, offset },
                false => LogPiece::Data { data, offset },
            };
            is_taken = reader.try_send(piece).is_ok();
        }
        let last = match (chunk.error.is_empty(), chunk.end) {
            (false, _) => Some(LogPiece::Error(chunk.error)),
            (true, true) => Some(LogPiece::End),
            (true, false) => None,
        };
        let has_ended = last.is_some();
        if let Some(last) = last {
            // The reader may be gone.
            let _ = reader.try_send(last);
        }
        if has_ended || !is_taken {
            self.open.remove(&number);
        }
        (!is_taken && !has_ended).then(|| v1::ReadLog {
            request: number,
            cancel: true,
            ..Default::default()
        })
    }

    /// Ends all readers of a node that has disconnected.
    pub(crate) fn end_for_node(&mut self, node: NodeId) {
        let numbers: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, (reads_from, _))| *reads_from == node)
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            if let Some((_, reader)) = self.open.remove(&number) {
                let _ = reader.try_send(LogPiece::Error("the node has disconnected".to_owned()));
            }
        }
    }
}
