//! Errors of requests, connections and configurations.

use std::path::PathBuf;

use serde::Deserialize;

/// Status of a request that the server refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// Machine-readable reason, such as `Conflict`.
    pub reason: String,
    /// Human-readable message.
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

    /// Whether the account may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Whether the object was changed concurrently.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the same request may succeed later: the server was not reached, is busy, or is starting.
    pub fn is_transient(&self) -> bool {
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
    #[error("{}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The invalid or missing entry.
        source: KubeconfigError,
    },
    /// No cluster is configured.
    #[error(
        "no Kubernetes cluster is configured: name a kubeconfig with --kubeconfig or KUBECONFIG, or run inside a pod with a service account"
    )]
    NotConfigured,
    /// The address is invalid.
    #[error("server {0:?}: expected https://HOST:PORT or http://HOST:PORT")]
    Address(String),
    /// Certificates or keys are invalid.
    #[error("TLS: {0}")]
    Tls(String),
}

/// An entry of a kubeconfig file that is missing or invalid.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file is not valid YAML, or has a field of the wrong type.
    #[error("{0}")]
    Yaml(String),
    /// The file has no current context, and none was named.
    #[error("current-context is missing; name a context with --context")]
    NoContext,
    /// A list has no entry with the given name.
    #[error("{list}: unknown name {name:?}; {}", expected(known))]
    UnknownEntry {
        /// The list, such as `contexts`.
        list: &'static str,
        /// The name.
        name: String,
        /// Names of the entries that exist.
        known: Vec<String>,
    },
    /// The identity of the server would not be verified.
    #[error("insecure-skip-tls-verify is not supported; set certificate-authority instead")]
    Insecure,
    /// A user has a certificate without a key, or a key without a certificate.
    #[error("user {user:?}: client-certificate and client-key must be set together")]
    HalfIdentity {
        /// The user.
        user: String,
    },
    /// Inline data is not valid base64.
    #[error("{field}-data: invalid base64: {source}")]
    Base64 {
        /// The field without its suffix, such as `client-key`.
        field: &'static str,
        /// The position and kind of the error.
        source: base64::DecodeError,
    },
}

fn expected(known: &[String]) -> String {
    match known.is_empty() {
        true => "the list is empty".to_owned(),
        false => format!("expected one of {}", known.join(", ")),
    }
}

/// A connection to the API server that could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The server was not reached.
    #[error("{address}: {source}")]
    Tcp { address: String, source: std::io::Error },
    /// The host is not valid in a certificate.
    #[error("{0}")]
    ServerName(#[from] rustls::pki_types::InvalidDnsNameError),
    /// The TLS handshake failed, or the socket refused an option.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The HTTP handshake failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The server did not answer in time.
    #[error("{address}: no connection within {seconds} s")]
    Timeout { address: String, seconds: u64 },
}
