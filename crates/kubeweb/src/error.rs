//! Errors of the page.

use std::io;
use std::net::SocketAddr;

/// A page that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The address cannot be listened on.
    #[error("--page {address}: cannot listen (port 0 picks a free one): {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The Secret with the users cannot be read or written.
    #[error("secret {secret}: {source}")]
    Secret {
        /// Namespace and name of the Secret.
        secret: String,
        /// The error of the API server.
        source: dovetail_kubeapi::Error,
    },
    /// The users in the Secret are not valid base64.
    #[error("secret {secret}: users.json: {source}")]
    InvalidSecret {
        /// Namespace and name of the Secret.
        secret: String,
        /// The position and kind of the error.
        source: base64::DecodeError,
    },
    /// The users cannot be read or changed.
    #[error(transparent)]
    Users(#[from] dovetail_web::UsersError),
    /// The audit log cannot be created.
    #[error(transparent)]
    Audit(#[from] dovetail_web::AuditError),
    /// Requests cannot be answered.
    #[error(transparent)]
    Serve(#[from] dovetail_web::ServeError),
    /// The address of the socket cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}
