//! A client of the API: one connection for each request, over TLS with the scheduler's own authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use dovetail_web::Problem;
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::failure::{Blame, Failure};
use crate::live::args::ClientArgs;

/// `client.yaml`: where the scheduler is, whom to believe that it is it, and who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    /// `https://host:port`, or `http://` without TLS.
    pub server: String,
    /// The certificate of the scheduler's authority, in PEM.
    #[serde(default)]
    pub ca: String,
    /// The user's token.
    pub token: String,
}

/// Where data of the user's own goes.
pub fn data_folder() -> Result<PathBuf, Failure> {
    let of = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    of("XDG_DATA_HOME")
        .or_else(|| of("HOME").map(|home| home.join(".local/share")))
        .map(|folder| folder.join("dovetail"))
        .ok_or_else(|| Failure::request("neither HOME nor XDG_DATA_HOME is set; say where with --data DIR"))
}

fn config_folder() -> Option<PathBuf> {
    let of = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    of("XDG_CONFIG_HOME")
        .or_else(|| of("HOME").map(|home| home.join(".config")))
        .map(|folder| folder.join("dovetail"))
}

impl ClientFile {
    /// The file that was named, or the first that is where one is looked for.
    ///
    /// # Errors
    /// When there is none, or it is not what it should be.
    pub fn find(args: &ClientArgs) -> Result<Self, Failure> {
        let named = args.config.clone().or_else(|| {
            std::env::var_os("DOVETAIL_CONFIG")
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        });
        if let Some(path) = named {
            return Self::read(&path);
        }
        let usual = [config_folder(), data_folder().ok()];
        let mut usual = usual
            .into_iter()
            .flatten()
            .map(|folder| folder.join("client.yaml"));
        match usual.find(|path| path.exists()) {
            Some(path) => Self::read(&path),
            None => Err(Failure::request(
                "no scheduler is known: start one with `dovetail up`, or name its client.yaml with --config or DOVETAIL_CONFIG",
            )),
        }
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{}", path.display()))
            .or_request()?;
        serde_saphyr::from_str(&text).map_err(|e| {
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            Failure::request(format!(
                "{}: {first}; expected server, ca and token",
                path.display()
            ))
        })
    }
}

/// A way to the scheduler.
#[derive(Clone)]
pub struct Client {
    host: String,
    port: u16,
    token: String,
    tls: Option<Arc<ClientConfig>>,
    server: String,
}

/// A runtime for one command.
///
/// # Errors
/// When the system has no threads or files left.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_work()?;
    runtime.block_on(work)
}

impl Client {
    /// A client by the file that was named, or the one that is found.
    ///
    /// # Errors
    /// When there is none, or it is not what it should be.
    pub fn open(args: &ClientArgs) -> Result<Self, Failure> {
        Self::new(&ClientFile::find(args)?)
    }

    /// A client by what a file says.
    ///
    /// # Errors
    /// When the address or the certificate is none.
    pub fn new(file: &ClientFile) -> Result<Self, Failure> {
        let wrong = || {
            Failure::request(format!(
                "server: {:?} is none; expected https://host:port",
                file.server
            ))
        };
        let (scheme, rest) = file.server.split_once("://").ok_or_else(wrong)?;
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let tls = match scheme {
            "http" => None,
            "https" => Some(trusting(&file.ca)?),
            _ => return Err(wrong()),
        };
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            token: file.token.clone(),
            tls,
            server: file.server.clone(),
        })
    }

    /// Where it goes.
    pub fn server(&self) -> &str {
        &self.server
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Result<Response<Incoming>, Failure> {
        let unreachable = |e: &dyn std::fmt::Display| {
            Failure::Work(anyhow!(
                "no scheduler answers at {}: {e}; is it running? (`dovetail up` starts one)",
                self.server
            ))
        };
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|e| unreachable(&e))?;
        stream.set_nodelay(true).or_work()?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("{}:{}", self.host, self.port))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(body)
            .or_work()?;
        let sent = match &self.tls {
            None => exchange(stream, request).await,
            Some(config) => {
                let name = ServerName::try_from(self.host.clone()).or_request()?;
                let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
                let stream = connector
                    .connect(name, stream)
                    .await
                    .map_err(|e| unreachable(&e))?;
                exchange(stream, request).await
            }
        };
        sent.map_err(|e| unreachable(&e))
    }

    /// Asks; an answer that is a problem is a failure.
    async fn ask(&self, method: Method, path: &str, body: String) -> Result<Response<Incoming>, Failure> {
        let response = self.send(method, path, body).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = whole(response.into_body()).await?;
        let said = serde_json::from_slice::<Problem>(&bytes).map(|p| p.detail);
        let said = said.unwrap_or_else(|_| format!("the scheduler answered {status}"));
        Err(match status {
            StatusCode::UNAUTHORIZED => {
                Failure::request("the scheduler does not know this token (client.yaml)")
            }
            _ if status.is_client_error() => Failure::request(said),
            _ => Failure::Work(anyhow!(said)),
        })
    }

    /// Reads a value.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or refuses.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let response = self.ask(Method::GET, path, String::new()).await?;
        decode(response).await
    }

    /// Sends a value and reads one.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or refuses.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_string(body).or_work()?;
        let response = self.ask(Method::POST, path, body).await?;
        decode(response).await
    }

    /// Puts a value in the place of another and reads what came of it.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or refuses.
    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_string(body).or_work()?;
        let response = self.ask(Method::PUT, path, body).await?;
        decode(response).await
    }

    /// Deletes something, and reads what came of it.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or refuses.
    pub async fn delete_and<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let response = self.ask(Method::DELETE, path, String::new()).await?;
        decode(response).await
    }

    /// Deletes something.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or refuses.
    pub async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.ask(Method::DELETE, path, String::new()).await.map(drop)
    }

    /// Reads line by line, as they come.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or refuses.
    pub async fn lines(&self, path: &str) -> Result<Lines, Failure> {
        let response = self.ask(Method::GET, path, String::new()).await?;
        Ok(Lines {
            body: response.into_body(),
            held: Vec::new(),
        })
    }
}

async fn exchange(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    request: Request<String>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

fn trusting(ca: &str) -> Result<Arc<ClientConfig>, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        let certificate = certificate.map_err(|e| Failure::request(format!("ca: {e}")))?;
        roots
            .add(certificate)
            .map_err(|e| Failure::request(format!("ca: {e}")))?;
    }
    if roots.is_empty() {
        return Err(Failure::request(
            "ca: holds no certificate; expected that of the scheduler's authority, in PEM",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .or_work()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

async fn frame(body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
    loop {
        let next = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await?;
        match next {
            Ok(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Some(Ok(data));
                }
            }
            Err(e) => return Some(Err(e)),
        }
    }
}

async fn whole(mut body: Incoming) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(data) = frame(&mut body).await {
        bytes.extend_from_slice(&data.or_work()?);
    }
    Ok(bytes)
}

async fn decode<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Failure> {
    let bytes = whole(response.into_body()).await?;
    serde_json::from_slice(&bytes)
        .context("the scheduler's answer is not understood; are client and server of the same release?")
        .or_work()
}

/// An answer that comes line by line.
pub struct Lines {
    body: Incoming,
    held: Vec<u8>,
}

impl Lines {
    /// The next line, without its end; none when there are no more.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn next(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(at) = self.held.iter().position(|b| *b == b'\n') {
                let rest = self.held.split_off(at + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            match frame(&mut self.body).await {
                Some(Ok(data)) => self.held.extend_from_slice(&data),
                Some(Err(e)) => {
                    return Err(Failure::Work(anyhow!(
                        "the connection to the scheduler broke: {e}"
                    )));
                }
                None if self.held.is_empty() => return Ok(None),
                None => {
                    let line = std::mem::take(&mut self.held);
                    return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
                }
            }
        }
    }

    /// The next server-sent event, read from JSON.
    ///
    /// # Errors
    /// When the connection breaks, or the event is not understood.
    pub async fn event<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        while let Some(line) = self.next().await? {
            if let Some(data) = line.strip_prefix("data:") {
                return serde_json::from_str(data.trim()).map(Some).or_work();
            }
        }
        Ok(None)
    }
}

/// A value in a query.
pub fn query(value: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    value
        .bytes()
        .map(|b| {
            if is_plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}
