//! What goes to the scheduler: facts and heartbeats first, pieces of logs when there is room.

use std::pin::Pin;
use std::task::{Context, Poll};

use dovetail_proto::v1::FromAgent;
use tokio::sync::mpsc::{
    Receiver, Sender as LogSender, UnboundedReceiver, UnboundedSender, unbounded_channel,
};
use tokio_stream::Stream;

/// The near end. It is of no use once the connection is gone; what is sent then is lost.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    words: UnboundedSender<FromAgent>,
    /// Waits while the scheduler is slow.
    pub(crate) logs: LogSender<FromAgent>,
}

impl Sender {
    pub(crate) fn send(&self, message: FromAgent) {
        // A connection that has gone is reported by the one who keeps it.
        let _ = self.words.send(message);
    }
}

/// The far end.
pub(super) struct Outgoing {
    words: UnboundedReceiver<FromAgent>,
    logs: Receiver<FromAgent>,
}

pub(super) fn pair() -> (Sender, Outgoing) {
    let (words, words_out) = unbounded_channel();
    let (logs, logs_out) = super::log_channel();
    let near = Sender { words, logs };
    let far = Outgoing {
        words: words_out,
        logs: logs_out,
    };
    (near, far)
}

impl Stream for Outgoing {
    type Item = FromAgent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FromAgent>> {
        match self.words.poll_recv(context) {
            Poll::Ready(Some(word)) => Poll::Ready(Some(word)),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match self.logs.poll_recv(context) {
                Poll::Ready(Some(piece)) => Poll::Ready(Some(piece)),
                // The words tell the end.
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
    async fn words_overtake_logs() {
        let (near, mut far) = pair();
        let message = |number| FromAgent { number, what: None };
        near.logs.try_send(message(9)).unwrap();
        near.send(message(1));
        near.send(message(2));
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(far.next().await.unwrap().number);
        }
        assert_eq!(seen, [1, 2, 9]);
        drop(near);
        assert!(far.next().await.is_none());
    }
}
