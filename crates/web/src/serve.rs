//! The HTTP server of the API and the page.

use std::io;
use std::time::Duration;

use axum::Router;
use dovetail_httpserver::{ServerOptions, Tls};
use tokio::net::TcpListener;

/// Time for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// An API that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket failed.
    #[error("socket of the API: {0}")]
    Socket(#[from] io::Error),
}

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
    let options = ServerOptions {
        tls,
        header_timeout: HEADER_TIMEOUT,
    };
    Ok(dovetail_httpserver::serve(listener, router, options, until).await?)
}
