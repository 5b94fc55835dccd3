//! Messages to the server: facts and heartbeats first, log chunks when nothing else is waiting.

use std::pin::Pin;
use std::task::{Context, Poll};

use dovetail_proto::v1::AgentMessage;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio_stream::Stream;

/// Log chunks that may wait in the queue. The reader of a log blocks when it is full.
const QUEUED_CHUNKS: usize = 2;

/// Sending end of a connection. Messages sent after the connection has ended are lost.
#[derive(Clone, Debug)]
pub(crate) struct MessageSender {
    messages: UnboundedSender<AgentMessage>,
    /// Queue of log chunks; sending blocks while the server is slow.
    pub(crate) logs: Sender<AgentMessage>,
}

impl MessageSender {
    pub(crate) fn send(&self, message: AgentMessage) {
        // The link reports the end of the connection itself.
        let _ = self.messages.send(message);
    }
}

/// Receiving end: the stream of messages that the connection transmits.
pub(super) struct Outgoing {
    messages: UnboundedReceiver<AgentMessage>,
    logs: Receiver<AgentMessage>,
}

pub(super) fn pair() -> (MessageSender, Outgoing) {
    let (messages, queued_messages) = unbounded_channel();
    let (logs, queued_logs) = channel(QUEUED_CHUNKS);
    let sender = MessageSender { messages, logs };
    let outgoing = Outgoing {
        messages: queued_messages,
        logs: queued_logs,
    };
    (sender, outgoing)
}

impl Stream for Outgoing {
    type Item = AgentMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AgentMessage>> {
        match self.messages.poll_recv(context) {
            Poll::Ready(message) => Poll::Ready(message),
            Poll::Pending => match self.logs.poll_recv(context) {
                Poll::Ready(Some(chunk)) => Poll::Ready(Some(chunk)),
                // The stream ends with the other queue.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;

    #[tokio::test]
    async fn facts_overtake_log_chunks() {
        let (sender, mut outgoing) = pair();
        let message = |sequence| AgentMessage { sequence, body: None };
        sender.logs.try_send(message(9)).unwrap();
        sender.send(message(1));
        sender.send(message(2));
        let mut received = Vec::new();
        for _ in 0..3 {
            received.push(outgoing.next().await.unwrap().sequence);
        }
        assert_eq!(received, [1, 2, 9]);
        drop(sender);
        assert!(outgoing.next().await.is_none());
    }
}
