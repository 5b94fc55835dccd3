//! Requests to start and stop MPS that agents have not answered yet.

use std::collections::BTreeMap;

use dovetail_model::NodeId;
use dovetail_proto::v1;
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The answer of an agent: why MPS could not be started or stopped.
pub(crate) type MpsAnswer = Result<(), String>;

/// All requests without an answer.
#[derive(Debug, Default)]
pub(crate) struct MpsRequests {
    next: u64,
    open: BTreeMap<u64, (NodeId, Sender<MpsAnswer>)>,
}

impl MpsRequests {
    /// Adds a request. Returns the message to its node, and the channel for the answer.
    pub(crate) fn open(&mut self, node: NodeId, is_on: bool) -> (v1::SetMps, Receiver<MpsAnswer>) {
        // Requests that were given up: agents of older releases do not answer.
        self.open.retain(|_, (_, sender)| !sender.is_closed());
        self.next += 1;
        let (sender, receiver) = channel();
        self.open.insert(self.next, (node, sender));
        let request = self.next;
        (v1::SetMps { request, is_on }, receiver)
    }

    /// Passes an answer on. One of another node, or to a request that is not open, is ignored.
    pub(crate) fn pass_on(&mut self, from: NodeId, report: v1::MpsReport) {
        let is_asked = |(node, _): &(NodeId, Sender<MpsAnswer>)| *node == from;
        if !self.open.get(&report.request).is_some_and(is_asked) {
            return;
        }
        if let Some((_, sender)) = self.open.remove(&report.request) {
            let answer = match report.error.is_empty() {
                true => Ok(()),
                false => Err(report.error),
            };
            // The request may have been given up.
            let _ = sender.send(answer);
        }
    }

    /// Ends the requests to a node that has disconnected.
    pub(crate) fn end_for_node(&mut self, node: NodeId) {
        self.open.retain(|_, (asked, _)| *asked != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_reach_their_requests() {
        let mut requests = MpsRequests::default();
        let (first, mut answer) = requests.open(NodeId(1), true);
        let report = |request, error: &str| v1::MpsReport {
            request,
            error: error.to_owned(),
        };
        requests.pass_on(NodeId(1), report(99, ""));
        assert!(answer.try_recv().is_err());
        requests.pass_on(NodeId(1), report(first.request, "no GPU"));
        assert_eq!(answer.try_recv().unwrap(), Err("no GPU".to_owned()));
        let (_, mut lost) = requests.open(NodeId(2), false);
        requests.end_for_node(NodeId(2));
        assert!(lost.try_recv().is_err());
        let (_, dropped) = requests.open(NodeId(3), false);
        drop(dropped);
        let _kept = requests.open(NodeId(4), false);
        assert_eq!(requests.open.len(), 1);
    }
}
