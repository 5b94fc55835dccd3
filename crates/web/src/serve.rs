//! The HTTP server, with or without TLS; each connection is a task.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Why the API could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The certificate or its key is not valid.
    #[error("server certificate: {0}")]
    Certificate(String),
    /// The socket failed.
    #[error("socket of the API: {0}")]
    Socket(#[from] io::Error),
}

/// Encryption of connections.
#[derive(Clone)]
pub enum Tls {
    /// TLS with a certificate chain and its key.
    On(Arc<ServerConfig>),
    /// No encryption: only for a socket of this machine.
    Off,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::On(_)) {
            "Tls::On"
        } else {
            "Tls::Off"
        })
    }
}

impl Tls {
    /// Creates TLS from a certificate chain and a key, both in PEM.
    ///
    /// # Errors
    /// When the chain or the key is not valid.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, ServeError> {
        let wrong = |e: &dyn std::fmt::Display| ServeError::Certificate(e.to_string());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| wrong(&e))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| wrong(&e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&e))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| wrong(&e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self::On(Arc::new(config)))
    }
}

/// The longest time for a TLS handshake, and for the headers of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until `until` completes. Requests in progress are then aborted.
///
/// # Errors
/// When the socket fails permanently.
pub async fn serve(
    listener: TcpListener,
    tls: Tls,
    router: Router,
    until: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (ended, end) = watch::channel(());
    let mut until = std::pin::pin!(until);
    loop {
        let accepted = tokio::select! {
            () = &mut until => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (tls, router, mut end) = (tls.clone(), router.clone(), end.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection(stream, tls, router) => {}
                        _ = end.changed() => {}
                    }
                });
            }
            // Too many open files, or the client has disconnected: later connections may succeed.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(ended);
    Ok(())
}

async fn connection(stream: TcpStream, tls: Tls, router: Router) {
    let _ = stream.set_nodelay(true);
    match tls {
        Tls::Off => serve_connection(stream, router).await,
        Tls::On(config) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            // The protocol reports a failed handshake to the client.
            if let Ok(Ok(stream)) = tokio::time::timeout(TIMEOUT, handshake).await {
                serve_connection(stream, router).await;
            }
        }
    }
}

async fn serve_connection(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    router: Router,
) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection failed");
    }
}
