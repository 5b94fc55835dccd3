//! What can go wrong.

use std::path::PathBuf;

use serde::Deserialize;

/// What the API server says when it refuses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// A word for programs, such as `Conflict`.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// A request that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused it.
    #[error("{what}: {} ({} {})", status.message, status.code, status.reason)]
    Refused {
        /// The request, such as `POST /api/v1/pods`.
        what: String,
        /// What the server says.
        status: Status,
    },
    /// The server does not answer.
    #[error("{what}: {why}")]
    Unreachable {
        /// The request.
        what: String,
        /// What was seen.
        why: String,
    },
    /// The server answered something else than expected.
    #[error("{what}: the answer cannot be read: {why}")]
    Unreadable {
        /// The request.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// There are no credentials.
    #[error("credentials: {0}")]
    Credentials(String),
}

impl Error {
    /// The HTTP status, where the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(status.code),
            Self::Unreachable { .. } | Self::Unreadable { .. } | Self::Credentials(_) => None,
        }
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Somebody else was faster.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The same request may well succeed later: the server was not reached, is busy, or is starting.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused { status, .. } => status.code == 429 || status.code >= 500,
            Self::Unreachable { .. } => true,
            Self::Unreadable { .. } | Self::Credentials(_) => false,
        }
    }
}

/// A way to the API server that cannot be made out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file that is not what it should be.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The field, what was found and what would be accepted.
        what: String,
    },
    /// Nothing was named, and nothing was found.
    #[error(
        "no Kubernetes cluster is known: name a kubeconfig with --kubeconfig or KUBECONFIG, or run inside a pod with a service account"
    )]
    Nowhere,
    /// The address.
    #[error("server {0:?}: expected https://HOST:PORT or http://HOST:PORT")]
    Address(String),
    /// Certificates or keys.
    #[error("TLS: {0}")]
    Tls(String),
}
