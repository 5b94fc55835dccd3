//! Minimal HTTP requests, one connection each: for readiness checks, and for tests that need no client in between.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::identity::{Authority, Identity};

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("invalid PEM: {0}")]
    Pem(#[from] pem::Error),
    #[error("invalid server name: {0}")]
    ServerName(#[from] InvalidDnsNameError),
    #[error("the response is truncated")]
    Truncated,
    #[error("the response has no status: {0}")]
    MissingStatus(String),
}

/// Response to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Body; a string if it is not JSON.
    pub body: Value,
}

/// Longest time to wait for a response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the TLS configuration of a client with this identity.
pub(crate) fn tls(authority: &Authority, identity: &Identity) -> Result<Arc<ClientConfig>, HttpError> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(authority.certificate())?)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate(&identity.certificate)?], key)?;
    Ok(Arc::new(config))
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, HttpError> {
    Ok(CertificateDer::from_pem_slice(pem.as_bytes())?)
}

/// Sends one request to a port of this machine.
pub(crate) fn request(
    config: &Arc<ClientConfig>,
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Response, HttpError> {
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let connection = ClientConnection::new(Arc::clone(config), ServerName::try_from("127.0.0.1")?)?;
    let mut stream = StreamOwned::new(connection, socket);
    let text = body.map(Value::to_string).unwrap_or_default();
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    // HTTP/1.0 has no chunked responses.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())?;
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(e.into()),
        _ => parse(&String::from_utf8_lossy(&response)),
    }
}

/// Returns whether etcd, which listens without TLS, reports that it is healthy.
pub(crate) fn is_healthy(port: u16) -> bool {
    let request = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        socket.read_to_string(&mut response)?;
        parse(&response)
    };
    request().is_ok_and(|response| response.status == 200)
}

fn parse(response: &str) -> Result<Response, HttpError> {
    let (head, body) = response.split_once("\r\n\r\n").ok_or(HttpError::Truncated)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| HttpError::MissingStatus(head.to_owned()))?;
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    Ok(Response { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_is_json_or_text() {
        let response = |text| parse(text).unwrap();
        assert_eq!(
            response("HTTP/1.0 201 Created\r\nA: b\r\n\r\n{\"a\":1}"),
            Response {
                status: 201,
                body: json!({"a": 1})
            }
        );
        assert_eq!(response("HTTP/1.0 200 OK\r\n\r\nok").body, json!("ok"));
        assert!(parse("HTTP/1.0 200 OK\r\n").is_err());
    }
}
