//! HTTP over TLS on a socket, one task for each connection.

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

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The certificate or its key.
    #[error("the certificate of the server: {0}")]
    Certificate(String),
    /// The socket.
    #[error("the socket of the API: {0}")]
    Socket(#[from] io::Error),
}

/// Whether and how connections are encrypted.
#[derive(Clone)]
pub enum Tls {
    /// With this certificate (and those behind it) and key.
    On(Arc<ServerConfig>),
    /// Not at all: only for a socket of this machine.
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
    /// With a certificate chain and a key, both in PEM.
    ///
    /// # Errors
    /// When they are not what they should be.
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

/// So long a client may take to shake hands, and to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves until the signal comes; requests that are under way then are broken off.
///
/// # Errors
/// When the socket fails for good.
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
            // Too many open files, or a client that is gone already: others may still come.
            Err(error) => {
                tracing::warn!(%error, "a connection was not taken");
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
        Tls::Off => talk(stream, router).await,
        Tls::On(config) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            // Whoever cannot shake hands is told so by the protocol.
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, handshake).await {
                talk(stream, router).await;
            }
        }
    }
}

async fn talk(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static, router: Router) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}
