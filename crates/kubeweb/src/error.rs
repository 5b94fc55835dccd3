//! What the page can fail with.

use std::io;
use std::net::SocketAddr;

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The address cannot be listened on.
    #[error("--page {address}: cannot listen (port 0 picks a free one): {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The Secret with the users cannot be read or written.
    #[error("secret {secret}: {source}")]
    Secret {
        /// Namespace and name of the Secret.
        secret: String,
        /// What the API server answered.
        source: dovetail_kubeapi::Error,
    },
    /// The Secret holds something else than users.
    #[error("secret {secret}: users.json: {source}")]
    InvalidSecret {
        /// Namespace and name of the Secret.
        secret: String,
        /// What is wrong.
        source: base64::DecodeError,
    },
    /// The users cannot be read or changed.
    #[error(transparent)]
    Users(#[from] dovetail_web::UsersError),
    /// Requests cannot be answered.
    #[error(transparent)]
    Serve(#[from] dovetail_web::ServeError),
    /// The address of the socket cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}
