//! HTTP client: one request and one response per connection. Redirects are not followed.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::{AddressPolicy, OutboundError, Trust, Url};

/// A request.
#[derive(Debug, Clone, Default)]
pub struct HttpRequest {
    /// Method, such as `GET` or `POST`.
    pub method: String,
    /// Headers other than `Host` and `User-Agent`.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// Sends requests.
#[derive(Debug, Clone)]
pub struct Client {
    trust: Trust,
    policy: AddressPolicy,
    timeout: Duration,
}

/// Maximum size of a response body, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

impl Client {
    /// Creates a client that trusts these authorities and connects to addresses that the policy allows. The timeout
    /// covers a whole exchange.
    pub fn new(trust: Trust, policy: AddressPolicy, timeout: Duration) -> Self {
        Self {
            trust,
            policy,
            timeout,
        }
    }

    /// Sends a request and returns the response, whatever its status.
    ///
    /// # Errors
    /// When the server cannot be reached, its address is not allowed, or the exchange exceeds the timeout.
    pub async fn send(&self, url: &Url, request: HttpRequest) -> Result<HttpResponse, OutboundError> {
        tokio::time::timeout(self.timeout, self.send_unbounded(url, request))
            .await
            .unwrap_or(Err(OutboundError::Timeout))
    }

    async fn send_unbounded(&self, url: &Url, request: HttpRequest) -> Result<HttpResponse, OutboundError> {
        let mut builder = Request::builder()
            .method(request.method.as_str())
            .uri(&url.path)
            .header("host", url.authority())
            .header("user-agent", concat!("dovetail/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let request = builder
            .body(FullBody(Some(request.body.into())))
            .map_err(|e| OutboundError::Invalid(e.to_string()))?;
        let stream = connect(&url.host, url.port, self.policy).await?;
        match url.tls {
            true => exchange(self.trust.handshake(&url.host, stream).await?, request).await,
            false => exchange(stream, request).await,
        }
    }
}

/// Opens a connection to a host, at an address that the policy allows.
///
/// The name is resolved once, so the address that was checked is the one that is connected to.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    policy: AddressPolicy,
) -> Result<TcpStream, OutboundError> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(OutboundError::unreachable)?
        .collect();
    let mut failure = OutboundError::Unreachable(format!("no address found for `{host}`"));
    for address in found {
        if !policy.allows(address.ip()) {
            failure = OutboundError::Forbidden(format!(
                "`{host}` is this machine or on its local link; requests to such addresses are not allowed"
            ));
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(e) => failure = OutboundError::unreachable(e),
        }
    }
    Err(failure)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<FullBody>,
) -> Result<HttpResponse, OutboundError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(OutboundError::unreachable)?;
    // The connection is polled here and not spawned, so that it ends with this future when the timeout drops it.
    let mut responding = std::pin::pin!(async {
        let response = sender.send_request(request).await;
        read(response.map_err(OutboundError::unreachable)?).await
    });
    let mut connection = std::pin::pin!(connection);
    std::future::poll_fn(move |cx| {
        if let std::task::Poll::Ready(response) = responding.as_mut().poll(cx) {
            return std::task::Poll::Ready(response);
        }
        let ended = connection.as_mut().poll(cx);
        match (responding.as_mut().poll(cx), ended) {
            (std::task::Poll::Pending, std::task::Poll::Ready(_)) => std::task::Poll::Ready(Err(
                OutboundError::Unreachable("the server closed the connection before it answered".to_owned()),
            )),
            (response, _) => response,
        }
    })
    .await
}

async fn read(response: Response<Incoming>) -> Result<HttpResponse, OutboundError> {
    let status = response.status().as_u16();
    let (mut incoming, mut body) = (response.into_body(), Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| std::pin::Pin::new(&mut incoming).poll_frame(cx)).await
    {
        let frame = frame.map_err(OutboundError::unreachable)?;
        let Ok(data) = frame.into_data() else { continue };
        if body.len() + data.len() > MAX_RESPONSE_BYTES {
            return Err(OutboundError::Rejected("the response exceeds 1 MiB".to_owned()));
        }
        body.extend_from_slice(&data);
    }
    Ok(HttpResponse { status, body })
}

/// A body that is sent in one frame.
struct FullBody(Option<hyper::body::Bytes>);

impl Body for FullBody {
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
