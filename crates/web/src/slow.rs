//! Clients that take their time: what a request brings has to be there after a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// So long a client may take to send what it brings, however little it is.
const PATIENCE: Duration = Duration::from_secs(20);

/// A body that ends with an error when it takes too long.
struct Hurried {
    body: Body,
    until: Pin<Box<Sleep>>,
}

impl HttpBody for Hurried {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.until.as_mut().poll(cx).map(|()| {
            let late = std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "the request did not come to its end in time",
            );
            Some(Err(axum::Error::new(late)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Lets nobody hold on to a request by sending it byte by byte.
pub(crate) async fn in_time(request: Request) -> Request {
    match request.body().is_end_stream() {
        true => request,
        false => request.map(|body| {
            Body::new(Hurried {
                body,
                until: Box::pin(sleep(PATIENCE)),
            })
        }),
    }
}
