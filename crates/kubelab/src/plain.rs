//! Plain requests, one connection each: to see whether a component is ready, and for tests that want nothing in between.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::identity::{Authority, Identity};

/// What was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body; a string where it is no JSON.
    pub body: Value,
}

/// How long a component may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client of this identity needs.
pub(crate) fn tls(authority: &Authority, identity: &Identity) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(certificate(authority.certificate())?)
        .map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| e.to_string())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate(&identity.certificate)?], key)
        .map_err(|e| e.to_string())?;
    Ok(Arc::new(config))
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, String> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| e.to_string())
}

/// One request to a port of this machine.
pub(crate) fn request(
    config: &Arc<ClientConfig>,
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Answer, String> {
    let socket = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
    socket
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| socket.set_write_timeout(Some(PATIENCE)))
        .map_err(|e| e.to_string())?;
    let name = ServerName::try_from("127.0.0.1").map_err(|e| e.to_string())?;
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(|e| e.to_string())?;
    let mut stream = StreamOwned::new(connection, socket);
    let text = body.map(Value::to_string).unwrap_or_default();
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    // Version 1.0 of the protocol has no chunks.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(text.as_bytes()))
        .map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => Err(e.to_string()),
        _ => parse(&String::from_utf8_lossy(&answer)),
    }
}

/// Whether etcd, which speaks without encryption, says that it is well.
pub(crate) fn is_healthy(port: u16) -> bool {
    let ask = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    ask().is_ok_and(|answer| parse(&answer).is_ok_and(|a| a.status == 200))
}

fn parse(answer: &str) -> Result<Answer, String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer is cut short")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| format!("no status: {head}"))?;
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    Ok(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_json_or_text() {
        let answer = |text| parse(text).unwrap();
        assert_eq!(
            answer("HTTP/1.0 201 Created\r\nA: b\r\n\r\n{\"a\":1}"),
            Answer {
                status: 201,
                body: json!({"a": 1})
            }
        );
        assert_eq!(answer("HTTP/1.0 200 OK\r\n\r\nok").body, json!("ok"));
        assert!(parse("HTTP/1.0 200 OK\r\n").is_err());
    }
}
