//! Simulated kubelet API that the API server calls over HTTPS: container logs, whose text tests provide, and commands, which
//! run as processes on this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::node_exec::{self, ExecRequest};
use crate::{Identity, LabError};

/// Log text by namespace and pod name, and whether the pod has ended.
type Logs = Arc<Mutex<BTreeMap<(String, String), (String, bool)>>>;

/// Serves the kubelet API of all nodes that have its port.
#[derive(Debug)]
pub struct NodeApi {
    logs: Logs,
    is_pre_1_30: Arc<AtomicBool>,
    port: u16,
}

/// Interval between reads of a log that is followed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn lock(logs: &Logs) -> MutexGuard<'_, BTreeMap<(String, String), (String, bool)>> {
    logs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NodeApi {
    /// Listens on loopback with this certificate until the process ends.
    ///
    /// # Errors
    /// If the certificate is invalid or no port is free.
    pub fn start(server: &Identity) -> Result<Self, LabError> {
        let invalid = |reason: String| LabError::Certificate {
            name: "certificate of the kubelet".to_owned(),
            reason,
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(server.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| invalid(e.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).map_err(|e| invalid(e.to_string()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid(e.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| invalid(e.to_string()))?;
        let failed = |e: std::io::Error| LabError::Request {
            request: "listen on 127.0.0.1".to_owned(),
            reason: e.to_string(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let api = Self {
            logs: Logs::default(),
            is_pre_1_30: Arc::new(AtomicBool::new(false)),
            port,
        };
        let (logs, config) = (Arc::clone(&api.logs), Arc::new(config));
        let is_pre_1_30 = Arc::clone(&api.is_pre_1_30);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (logs, config) = (Arc::clone(&logs), Arc::clone(&config));
                let is_pre_1_30 = Arc::clone(&is_pre_1_30);
                std::thread::spawn(move || drop(respond(stream, config, &logs, &is_pre_1_30)));
            }
        });
        Ok(api)
    }

    /// Returns the port, for `status.daemonEndpoints` of nodes.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes it run commands like a kubelet before Kubernetes 1.30, which cannot signal the end of standard input.
    pub fn set_pre_1_30(&self, is_pre_1_30: bool) {
        self.is_pre_1_30.store(is_pre_1_30, Ordering::Relaxed);
    }

    /// Appends text to the log of a pod.
    pub fn print(&self, namespace: &str, pod: &str, text: &str) {
        let mut logs = lock(&self.logs);
        let (log, _) = logs.entry((namespace.to_owned(), pod.to_owned())).or_default();
        log.push_str(text);
    }

    /// Ends the log of a pod: clients that follow it get the rest and then the end.
    pub fn end(&self, namespace: &str, pod: &str) {
        let mut logs = lock(&self.logs);
        logs.entry((namespace.to_owned(), pod.to_owned())).or_default().1 = true;
    }
}

/// Responds to one request: `GET /containerLogs/NAMESPACE/POD/CONTAINER`, with `follow=true` until the pod has ended, or
/// `GET /exec/NAMESPACE/POD/CONTAINER`, which becomes a WebSocket.
fn respond(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    logs: &Logs,
    is_pre_1_30: &AtomicBool,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let mut first = String::new();
    stream.read_line(&mut first)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? <= 2 {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    let target = first.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let key = match parts.as_slice() {
        ["containerLogs", namespace, pod, _] => ((*namespace).to_owned(), (*pod).to_owned()),
        ["exec", namespace, pod, container] if headers.contains_key("sec-websocket-key") => {
            let request = ExecRequest::new([namespace, pod, container], query, &headers);
            return node_exec::serve(stream, &request, is_pre_1_30.load(Ordering::Relaxed));
        }
        _ => return refuse(stream.get_mut(), "404 Not Found", path),
    };
    let stream = stream.get_mut();
    let follow = query.split('&').any(|part| part == "follow=true");
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")?;
    let mut sent = 0;
    loop {
        let (text, has_ended) = lock(logs).get(&key).cloned().unwrap_or_default();
        if text.len() > sent {
            let piece = &text.as_bytes()[sent..];
            write!(stream, "{:x}\r\n", piece.len())?;
            stream.write_all(piece)?;
            stream.write_all(b"\r\n")?;
            stream.flush()?;
            sent = text.len();
        } else if has_ended || !follow {
            break;
        } else {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    stream.write_all(b"0\r\n\r\n")?;
    stream.flush()?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn refuse<S: Read + Write>(stream: &mut S, status: &str, path: &str) -> std::io::Result<()> {
    let body = format!("{path}: expected a path of container logs, or of a command over WebSocket\n");
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()
}
