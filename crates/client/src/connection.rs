//! Requests over a connection of their own.

use std::fmt;
use std::sync::Arc;

use dovetail_web::Problem;
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;

use crate::{ClientError, ClientFile};

/// Address, credentials and trust of one server.
#[derive(Clone)]
pub(crate) struct Connection {
    server: String,
    host: String,
    port: u16,
    token: String,
    /// Without it requests are sent in plain text.
    tls: Option<Arc<ClientConfig>>,
}

impl Connection {
    pub(crate) fn new(file: &ClientFile) -> Result<Self, ClientError> {
        let invalid = || ClientError::InvalidAddress(file.server.clone());
        let (scheme, rest) = file.server.split_once("://").ok_or_else(invalid)?;
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(invalid)?;
        let port: u16 = port.parse().map_err(|_| invalid())?;
        let tls = match scheme {
            "http" => None,
            "https" => Some(tls_config(&file.ca)?),
            _ => return Err(invalid()),
        };
        Ok(Self {
            server: file.server.clone(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            token: file.token.clone(),
            tls,
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends a request. An answer that reports a problem is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Response<Incoming>, ClientError> {
        let response = self.exchange(method, path, body).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = read_body(response.into_body()).await?;
        let detail = serde_json::from_slice::<Problem>(&bytes).map_or_else(
            |_| format!("the scheduler answered {status}"),
            |problem| problem.detail,
        );
        Err(match status {
            StatusCode::UNAUTHORIZED => ClientError::UnknownToken,
            _ if status.is_client_error() => ClientError::Rejected(detail),
            _ => ClientError::ServerFailed(detail),
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("{}:{}", self.host, self.port))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(body)
            .map_err(ClientError::MalformedRequest)?;
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|e| self.unreachable(e))?;
        stream.set_nodelay(true).map_err(|e| self.unreachable(e))?;
        let Some(config) = &self.tls else {
            return exchange(stream, request).await.map_err(|e| self.unreachable(e));
        };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| ClientError::InvalidAddress(self.server.clone()))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|e| self.unreachable(e))?;
        exchange(stream, request).await.map_err(|e| self.unreachable(e))
    }

    fn unreachable(&self, reason: impl fmt::Display) -> ClientError {
        ClientError::Unreachable {
            server: self.server.clone(),
            reason: reason.to_string(),
        }
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

/// Returns a configuration that trusts this authority alone.
fn tls_config(ca: &str) -> Result<Arc<ClientConfig>, ClientError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        let certificate = certificate.map_err(|e| ClientError::InvalidCa(e.to_string()))?;
        roots
            .add(certificate)
            .map_err(|e| ClientError::InvalidCa(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(ClientError::InvalidCa(
            "no certificate found; expected that of the server's authority, in PEM".to_owned(),
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ClientError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Returns the next piece of an answer, or `None` at its end.
pub(crate) async fn next_chunk(body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
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

/// Reads an answer to its end.
pub(crate) async fn read_body(mut body: Incoming) -> Result<Vec<u8>, ClientError> {
    let mut bytes = Vec::new();
    while let Some(data) = next_chunk(&mut body).await {
        bytes.extend_from_slice(&data.map_err(ClientError::Disconnected)?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(server: &str, ca: &str) -> Result<Connection, ClientError> {
        Connection::new(&ClientFile {
            server: server.to_owned(),
            ca: ca.to_owned(),
            token: "t".to_owned(),
        })
    }

    #[test]
    fn addresses_are_checked() {
        let plain = connect("http://[::1]:7878/", "").expect("a valid address");
        assert_eq!((plain.host.as_str(), plain.port), ("::1", 7878));
        for server in [
            "localhost:7878",
            "ftp://localhost:1",
            "https://localhost",
            "http://a:99999",
        ] {
            let error = connect(server, "").err().map(|e| e.to_string());
            assert_eq!(
                error,
                Some(format!(
                    "invalid server address {server:?}: expected https://HOST:PORT"
                ))
            );
        }
        let error = connect("https://localhost:1", "no certificate").err();
        assert!(error.is_some_and(|e| e.to_string().contains("no certificate found")));
    }
}
