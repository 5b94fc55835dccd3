//! A time limit for request bodies.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Time within which a client must send a whole body, whatever its size.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A body that fails when it takes too long.
struct TimedBody {
    body: Body,
    deadline: Pin<Box<Sleep>>,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.deadline.as_mut().poll(cx).map(|()| {
            let error = std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("request body not complete after {} s", TIMEOUT.as_secs()),
            );
            Some(Err(axum::Error::new(error)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Limits the time to read the body of a request, so that clients cannot hold connections by sending it byte by byte.
pub(crate) async fn limit_body_time(request: Request) -> Request {
    match request.body().is_end_stream() {
        true => request,
        false => request.map(|body| {
            Body::new(TimedBody {
                body,
                deadline: Box::pin(sleep(TIMEOUT)),
            })
        }),
    }
}
