//! Logs are on the nodes. Whoever wants to read one asks through the hub, and gets it piece by piece.

use std::collections::BTreeMap;

use dovetail_cluster::{LogPiece, LogRequest};
use dovetail_model::NodeId;
use dovetail_proto::v1;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces that wait for a slow reader, before it is given up: nobody else must wait for it.
const WAITING: usize = 1_024;

/// Who reads what.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    next: u64,
    open: BTreeMap<u64, (NodeId, Sender<LogPiece>)>,
}

impl Readers {
    /// A new reader: the words to send to its node, and where the pieces will come.
    pub(crate) fn open(&mut self, request: &LogRequest) -> (v1::ReadLog, Receiver<LogPiece>) {
        self.next += 1;
        let (sender, receiver) = channel(WAITING);
        self.open.insert(self.next, (request.node, sender));
        let words = v1::ReadLog {
            request: self.next,
            task: crate::convert::key(request.job, request.attempt),
            offset: request.offset,
            max_bytes: request.most_bytes,
            follow: request.follow,
            cancel: false,
            pattern: request.find.clone().into_bytes(),
            max_matches: request.most_found,
        };
        (words, receiver)
    }

    /// A piece came. Returns words to send back when nobody wants more.
    pub(crate) fn piece(&mut self, from: NodeId, chunk: v1::LogChunk) -> Option<v1::ReadLog> {
        let number = chunk.request;
        let (node, reader) = self.open.get(&number)?;
        if *node != from {
            return None;
        }
        let mut heard = true;
        if !chunk.data.is_empty() {
            let (data, offset) = (chunk.data, chunk.offset);
            let piece = match chunk.is_match {
                true => LogPiece::Found { line: data, offset },
                false => LogPiece::Data { data, offset },
            };
            heard = reader.try_send(piece).is_ok();
        }
        let last = match (chunk.error.is_empty(), chunk.end) {
            (false, _) => Some(LogPiece::Error(chunk.error)),
            (true, true) => Some(LogPiece::End),
            (true, false) => None,
        };
        let is_over = last.is_some();
        if let Some(last) = last {
            // A reader that is gone needs no end.
            let _ = reader.try_send(last);
        }
        if is_over || !heard {
            self.open.remove(&number);
        }
        (!heard && !is_over).then(|| v1::ReadLog {
            request: number,
            cancel: true,
            ..Default::default()
        })
    }

    /// A node is away: whoever reads from it is told.
    pub(crate) fn node_is_away(&mut self, node: NodeId) {
        let gone: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, (of, _))| *of == node)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            if let Some((_, reader)) = self.open.remove(&number) {
                let _ = reader.try_send(LogPiece::Error("the node is not connected any more".to_owned()));
            }
        }
    }
}
