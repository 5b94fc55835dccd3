//! Requests over reused connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::config::Config;
use crate::error::{ConnectError, Error, Status};
use crate::objects::{Binding, List};
use crate::stream::{Lines, frame};

/// A client of the API server. Clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    idle: Mutex<Vec<SendRequest<String>>>,
    requests: AtomicU64,
}

/// Maximum number of idle connections that are kept.
const MAX_IDLE: usize = 64;
/// Time within which a connection must be open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Kind of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// Values in the patch replace present ones (RFC 7386).
    Merge,
    /// Like `Merge`, but lists are merged by the names of their items.
    Strategic,
    /// A list of operations (RFC 6902).
    Json,
}

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Json => "application/json-patch+json",
        }
    }
}

/// Options of a deletion.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOptions {
    /// Grace period, in seconds; `None` for the default of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// Preconditions, such as the uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preconditions: Option<Value>,
    /// `Background`, `Foreground` or `Orphan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation_policy: Option<&'static str>,
}

impl DeleteOptions {
    /// Returns options that delete the object only if it has this uid.
    pub fn of(uid: &str) -> Self {
        Self {
            preconditions: Some(serde_json::json!({ "uid": uid })),
            ..Self::default()
        }
    }
}

impl Client {
    /// Returns a client; it connects with the first request.
    pub fn new(config: Config) -> Self {
        Self {
            inner: Arc::new(Inner {
                config,
                idle: Mutex::new(Vec::new()),
                requests: AtomicU64::new(0),
            }),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Returns the number of requests sent so far.
    pub fn requests(&self) -> u64 {
        self.inner.requests.load(Ordering::Relaxed)
    }

    /// Gets an object.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, "", String::new()).await
    }

    /// Lists all objects of a kind at the latest version. `query` may have selectors (`labelSelector=...`).
    ///
    /// # Errors
    /// When the request fails.
    pub async fn list<T: DeserializeOwned>(&self, path: &str, query: &str) -> Result<List<T>, Error> {
        let separator = if query.is_empty() { "" } else { "?" };
        // No version is given: the cache of a server may be older than the latest write.
        self.get(&format!("{path}{separator}{query}")).await
    }

    /// Creates an object.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn create<T: DeserializeOwned>(&self, path: &str, object: &impl Serialize) -> Result<T, Error> {
        self.call(Method::POST, path, "application/json", json(path, object)?)
            .await
    }

    /// Creates an object and ignores the response.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn post(&self, path: &str, object: &impl Serialize) -> Result<(), Error> {
        let body = json(path, object)?;
        self.bytes(Method::POST, path, "application/json", body)
            .await
            .map(drop)
    }

    /// Replaces an object of the same version.
    ///
    /// # Errors
    /// When the request fails; a conflict if the object has changed.
    pub async fn replace<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
    ) -> Result<T, Error> {
        self.call(Method::PUT, path, "application/json", json(path, object)?)
            .await
    }

    /// Patches an object.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        kind: Patch,
        patch: &Value,
    ) -> Result<T, Error> {
        self.call(Method::PATCH, path, kind.content_type(), patch.to_string())
            .await
    }

    /// Applies an object on the server side, creating it if it does not exist.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn apply<T: DeserializeOwned>(
        &self,
        path: &str,
        manager: &str,
        object: &Value,
    ) -> Result<T, Error> {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.call(
            Method::PATCH,
            &path,
            "application/apply-patch+yaml",
            object.to_string(),
        )
        .await
    }

    /// Deletes an object. An object that does not exist is not an error.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn delete(&self, path: &str, options: &DeleteOptions) -> Result<(), Error> {
        let body = json(path, options)?;
        match self.bytes(Method::DELETE, path, "application/json", body).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// A conflict if the pod is bound already or was replaced by another one.
    pub async fn bind(&self, binding: &Binding) -> Result<(), Error> {
        let (namespace, name) = (&binding.metadata.namespace, &binding.metadata.name);
        self.post(
            &format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"),
            binding,
        )
        .await
    }

    /// Streams a response line by line.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn lines(&self, path: &str) -> Result<Lines, Error> {
        let (response, _) = self.send(Method::GET, path, "", String::new()).await?;
        Ok(Lines::new(response.into_body()))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: String,
    ) -> Result<T, Error> {
        let what = format!("{method} {}", plain(path));
        let bytes = self.bytes(method, path, kind, body).await?;
        serde_json::from_slice(&bytes).map_err(|e| Error::Unreadable {
            what,
            why: e.to_string(),
        })
    }

    async fn bytes(&self, method: Method, path: &str, kind: &str, body: String) -> Result<Vec<u8>, Error> {
        let what = format!("{method} {}", plain(path));
        let timeout = self.inner.config.timeout;
        let work = async {
            let (response, connection) = self.send(method, path, kind, body).await?;
            let bytes = whole(response).await.map_err(|e| Error::Unreachable {
                what: what.clone(),
                why: e.to_string(),
            })?;
            self.keep(connection);
            Ok(bytes)
        };
        match tokio::time::timeout(timeout, work).await {
            Ok(result) => result,
            Err(_) => Err(Error::Unreachable {
                what,
                why: format!("no response within {} s", timeout.as_secs_f64()),
            }),
        }
    }

    /// Sends a request and checks the status of the response.
    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: String,
    ) -> Result<(Response<Incoming>, SendRequest<String>), Error> {
        let what = || format!("{method} {}", plain(path));
        let unreachable = |why: String| Error::Unreachable { what: what(), why };
        let mut request = self.request(&method, path).await?;
        if !kind.is_empty() {
            request = request.header(CONTENT_TYPE, kind);
        }
        let mut request = request.body(body).map_err(|e| unreachable(e.to_string()))?;
        self.inner.requests.fetch_add(1, Ordering::Relaxed);
        loop {
            let kept = self.take();
            let is_new = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await.map_err(|e| unreachable(e.to_string()))?,
            };
            if connection.ready().await.is_err() && !is_new {
                continue;
            }
            match connection.try_send_request(request).await {
                Ok(response) if response.status().is_success() => return Ok((response, connection)),
                Ok(response) => return Err(self.refused(what(), response, connection).await),
                // The idle connection was closed: an unsent request is sent over another one.
                Err(mut error) => match error.take_message() {
                    Some(again) if !is_new => request = again,
                    _ => return Err(unreachable(error.into_error().to_string())),
                },
            }
        }
    }

    /// Returns a request with credentials and without a body.
    async fn request(&self, method: &Method, path: &str) -> Result<hyper::http::request::Builder, Error> {
        let config = &self.inner.config;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", config.prefix))
            .header(HOST, format!("{}:{}", config.host, config.port))
            .header(USER_AGENT, concat!("dovetail/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json, */*");
        if let Some(token) = config.auth.token().await? {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(request)
    }

    /// Switches to another protocol on a separate connection. Returns the response that accepts it.
    pub(crate) async fn upgrade(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Response<Incoming>, Error> {
        let what = format!("GET {}", plain(path));
        let unreachable = |why: String| Error::Unreachable {
            what: what.clone(),
            why,
        };
        let mut request = self.request(&Method::GET, path).await?;
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(String::new())
            .map_err(|e| unreachable(e.to_string()))?;
        self.inner.requests.fetch_add(1, Ordering::Relaxed);
        let mut connection = self.connect().await.map_err(|e| unreachable(e.to_string()))?;
        let timeout = self.inner.config.timeout;
        let response = match tokio::time::timeout(timeout, connection.send_request(request)).await {
            Ok(response) => response.map_err(|e| unreachable(e.to_string()))?,
            Err(_) => {
                let why = format!("no response within {} s", timeout.as_secs_f64());
                return Err(unreachable(why));
            }
        };
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => Ok(response),
            _ => Err(self.refused(what, response, connection).await),
        }
    }

    async fn refused(
        &self,
        what: String,
        response: Response<Incoming>,
        connection: SendRequest<String>,
    ) -> Error {
        let code = response.status().as_u16();
        let bytes = whole(response).await.unwrap_or_default();
        self.keep(connection);
        let mut status: Status = serde_json::from_slice(&bytes).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned(),
            ..Status::default()
        });
        status.code = code;
        Error::Refused { what, status }
    }

    fn take(&self) -> Option<SendRequest<String>> {
        let mut idle = self.inner.idle.lock().unwrap_or_else(|e| e.into_inner());
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, connection: SendRequest<String>) {
        let mut idle = self.inner.idle.lock().unwrap_or_else(|e| e.into_inner());
        if idle.len() < MAX_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
    }

    async fn connect(&self) -> Result<SendRequest<String>, ConnectError> {
        let config = &self.inner.config;
        let address = || format!("{}:{}", config.host, config.port);
        let dial = async {
            let stream = TcpStream::connect((config.host.as_str(), config.port))
                .await
                .map_err(|source| ConnectError::Tcp {
                    address: address(),
                    source,
                })?;
            stream.set_nodelay(true)?;
            let Some(tls) = &config.tls else {
                return Ok(spawn(http1::handshake(TokioIo::new(stream)).await?));
            };
            let name = ServerName::try_from(config.host.clone())?;
            let connector = tokio_rustls::TlsConnector::from(Arc::clone(tls));
            let stream = connector.connect(name, stream).await?;
            Ok(spawn(http1::handshake(TokioIo::new(stream)).await?))
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, dial).await {
            Ok(connected) => connected,
            Err(_) => Err(ConnectError::Timeout {
                address: address(),
                seconds: CONNECT_TIMEOUT.as_secs(),
            }),
        }
    }
}

fn spawn<T>(
    (sender, connection): (SendRequest<String>, http1::Connection<TokioIo<T>, String>),
) -> SendRequest<String>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        // The request that waits for the response gets the error.
        let _ = connection.with_upgrades().await;
    });
    sender
}

async fn whole(response: Response<Incoming>) -> Result<Vec<u8>, hyper::Error> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(piece) = frame(&mut body).await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn json(path: &str, object: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(object).map_err(|e| Error::Unreadable {
        what: plain(path).to_owned(),
        why: e.to_string(),
    })
}

/// Returns the path without its query.
fn plain(path: &str) -> &str {
    path.split('?').next().unwrap_or(path)
}
