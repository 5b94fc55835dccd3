//! One request, one answer, one connection. Nothing is followed elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::{CourierError, Guard, Trust, Url};

/// What is sent.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// `GET`, `POST`, ...
    pub method: String,
    /// Headers beside `Host`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The body, as far as it was read.
    pub body: Vec<u8>,
}

/// Sends requests.
#[derive(Debug, Clone)]
pub struct Client {
    trust: Trust,
    guard: Guard,
    patience: Duration,
}

/// The most of an answer that is read.
const LONGEST_ANSWER: usize = 1 << 20;

impl Client {
    /// Believes these authorities, dials what the guard lets, and waits no longer than this for the whole.
    pub fn new(trust: Trust, guard: Guard, patience: Duration) -> Self {
        Self {
            trust,
            guard,
            patience,
        }
    }

    /// Sends a request and reads the answer, whatever its status.
    ///
    /// # Errors
    /// When nobody is there, it must not be sent there, or it takes too long.
    pub async fn send(&self, url: &Url, outgoing: Outgoing) -> Result<Reply, CourierError> {
        tokio::time::timeout(self.patience, self.send_at_leisure(url, outgoing))
            .await
            .unwrap_or(Err(CourierError::TooSlow))
    }

    async fn send_at_leisure(&self, url: &Url, outgoing: Outgoing) -> Result<Reply, CourierError> {
        let mut request = Request::builder()
            .method(outgoing.method.as_str())
            .uri(&url.path)
            .header("host", url.place())
            .header("user-agent", concat!("dovetail/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &outgoing.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(OneBody(Some(outgoing.body.into())))
            .map_err(|e| CourierError::Invalid(e.to_string()))?;
        let stream = dial(&url.host, url.port, self.guard).await?;
        match url.tls {
            true => exchange(self.trust.shake(&url.host, stream).await?, request).await,
            false => exchange(stream, request).await,
        }
    }
}

/// A connection to a name, at an address that the guard lets: the one that was looked at is the one that is dialled.
pub(crate) async fn dial(host: &str, port: u16, guard: Guard) -> Result<TcpStream, CourierError> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(CourierError::unreachable)?
        .collect();
    let mut failed = CourierError::Unreachable(format!("{host} has no address"));
    for address in found {
        if !guard.lets(address.ip()) {
            failed = CourierError::Forbidden(format!(
                "{host} is this machine or its own link, and nothing is sent there"
            ));
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(e) => failed = CourierError::unreachable(e),
        }
    }
    Err(failed)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<OneBody>,
) -> Result<Reply, CourierError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(CourierError::unreachable)?;
    // The connection ends with this future, also where it is dropped because it took too long.
    let mut answering = std::pin::pin!(async {
        let response = sender.send_request(request).await;
        read(response.map_err(CourierError::unreachable)?).await
    });
    let mut connection = std::pin::pin!(connection);
    std::future::poll_fn(move |cx| {
        if let std::task::Poll::Ready(answer) = answering.as_mut().poll(cx) {
            return std::task::Poll::Ready(answer);
        }
        let ended = connection.as_mut().poll(cx);
        match (answering.as_mut().poll(cx), ended) {
            (std::task::Poll::Pending, std::task::Poll::Ready(_)) => {
                std::task::Poll::Ready(Err(CourierError::Unreachable("the connection broke".to_owned())))
            }
            (answer, _) => answer,
        }
    })
    .await
}

async fn read(response: Response<Incoming>) -> Result<Reply, CourierError> {
    let status = response.status().as_u16();
    let (mut incoming, mut body) = (response.into_body(), Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| std::pin::Pin::new(&mut incoming).poll_frame(cx)).await
    {
        let frame = frame.map_err(CourierError::unreachable)?;
        let Ok(data) = frame.into_data() else { continue };
        if body.len() + data.len() > LONGEST_ANSWER {
            return Err(CourierError::Refused(
                "the answer is longer than a MiB".to_owned(),
            ));
        }
        body.extend_from_slice(&data);
    }
    Ok(Reply { status, body })
}

/// A body that is there whole.
struct OneBody(Option<hyper::body::Bytes>);

impl Body for OneBody {
    type Data = hyper::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        let left = self.0.take().filter(|bytes| !bytes.is_empty());
        std::task::Poll::Ready(left.map(|bytes| Ok(hyper::body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|bytes| bytes.is_empty())
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
