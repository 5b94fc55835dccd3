//! Errors.

use std::path::PathBuf;

use serde::Deserialize;

/// Status of a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// A reason for programs, such as `Conflict`.
    pub reason: String,
    /// A message for people.
    pub message: String,
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused it.
    #[error("{what}: {} ({} {})", status.message, status.code, status.reason)]
    Refused {
        /// The request, such as `POST /api/v1/pods`.
        what: String,
        /// Its status.
        status: Status,
    },
    /// The server does not answer.
    #[error("{what}: {why}")]
    Unreachable {
        /// The request.
        what: String,
        /// The reason.
        why: String,
    },
    /// The response does not have the expected form.
    #[error("{what}: invalid response: {why}")]
    Unreadable {
        /// The request.
        what: String,
        /// The reason.
        why: String,
    },
    /// Credentials cannot be obtained.
    #[error("credentials: {0}")]
    Credentials(String),
}

impl Error {
    /// Returns the HTTP status if the server responded.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(status.code),
            Self::Unreachable { .. } | Self::Unreadable { .. } | Self::Credentials(_) => None,
        }
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the object was changed concurrently.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the same request may succeed later: the server was not reached, is busy, or is starting.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused { status, .. } => status.code == 429 || status.code >= 500,
            Self::Unreachable { .. } => true,
            Self::Unreadable { .. } | Self::Credentials(_) => false,
        }
    }
}

/// A configuration of the API server that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file with invalid content.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The field, what was found and what is expected.
        what: String,
    },
    /// No cluster is configured.
    #[error(
        "no Kubernetes cluster is configured: name a kubeconfig with --kubeconfig or KUBECONFIG, or run inside a pod with a service account"
    )]
    Nowhere,
    /// The address is invalid.
    #[error("server {0:?}: expected https://HOST:PORT or http://HOST:PORT")]
    Address(String),
    /// Certificates or keys are invalid.
    #[error("TLS: {0}")]
    Tls(String),
}
