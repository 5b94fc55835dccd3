//! Serves a router over HTTP/1.1, with or without TLS. Each connection is a task.
//!
//! The page, its API and the scheduler extender share this accept loop.

mod tls;

use std::io;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

pub use tls::{Tls, TlsError};

/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Encryption of connections.
    pub tls: Tls,
    /// Time for a client to send the headers of a request, or the next request on an open connection.
    pub header_timeout: Duration,
}

/// Serves until `until` completes. Requests in progress are then aborted.
///
/// # Errors
/// When the socket fails permanently.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: ServerOptions,
    until: impl Future<Output = ()>,
) -> io::Result<()> {
    let (ended, end) = watch::channel(());
    let mut until = std::pin::pin!(until);
    loop {
        let accepted = tokio::select! {
            () = &mut until => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (options, router, mut end) = (options.clone(), router.clone(), end.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = serve_connection(stream, router, options) => {}
                        _ = end.changed() => {}
                    }
                });
            }
            // Too many open files, or the client has disconnected: later connections may succeed.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(ended);
    Ok(())
}

async fn serve_connection(stream: TcpStream, router: Router, options: ServerOptions) {
    let _ = stream.set_nodelay(true);
    match options.tls {
        Tls::Off => serve_requests(stream, router, options.header_timeout).await,
        Tls::On(config) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            // The protocol reports a failed handshake to the client.
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                serve_requests(stream, router, options.header_timeout).await;
            }
        }
    }
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    router: Router,
    header_timeout: Duration,
) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection closed with an error");
    }
}
