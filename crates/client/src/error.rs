//! What a client can fail with.

use std::io;
use std::path::PathBuf;

use dovetail_console::Failure;

/// Why a request to the server failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A `client.yaml` cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// A `client.yaml` does not have the expected keys.
    #[error("{}: {reason}; expected the keys server, ca and token", path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        reason: String,
    },
    /// No `client.yaml` was given, and none was found.
    #[error(
        "no scheduler is configured: start one with `dovetail up`, or name its client.yaml with --config or DOVETAIL_CONFIG"
    )]
    NotConfigured,
    /// There is no home folder to keep data in.
    #[error("neither HOME nor XDG_DATA_HOME is set; name a folder with --data DIR")]
    NoDataFolder,
    /// The address of the server is malformed.
    #[error("invalid server address {0:?}: expected https://HOST:PORT")]
    InvalidAddress(String),
    /// The certificate of the server's authority is missing or malformed.
    #[error("invalid ca in client.yaml: {0}")]
    InvalidCa(String),
    /// The server does not answer.
    #[error("no scheduler answers at {server}: {reason}; is it running? (`dovetail up` starts one)")]
    Unreachable {
        /// Address of the server.
        server: String,
        /// What the connection failed with.
        reason: String,
    },
    /// The server does not know the token.
    #[error("the scheduler does not know this token: check `token` in client.yaml")]
    UnknownToken,
    /// The server rejected the request, with its reason.
    #[error("{0}")]
    Rejected(String),
    /// The server failed, with its reason.
    #[error("{0}")]
    ServerFailed(String),
    /// A request cannot be encoded.
    #[error("cannot encode the request: {0}")]
    InvalidRequest(serde_json::Error),
    /// A request cannot be built, for instance because of an invalid path.
    #[error("invalid request: {0}")]
    MalformedRequest(hyper::http::Error),
    /// The answer is not what this release expects.
    #[error("cannot read the scheduler's answer: {0}; client and server must be of the same release")]
    InvalidAnswer(serde_json::Error),
    /// The connection ended before the answer was complete.
    #[error("the connection to the scheduler broke: {0}")]
    Disconnected(hyper::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(rustls::Error),
    /// The runtime cannot be created.
    #[error("cannot create a runtime: {0}")]
    Runtime(io::Error),
}

impl ClientError {
    /// Returns whether the request was wrong, rather than the work failed.
    pub fn is_request(&self) -> bool {
        match self {
            Self::ReadFile { .. }
            | Self::InvalidFile { .. }
            | Self::NotConfigured
            | Self::NoDataFolder
            | Self::InvalidAddress(_)
            | Self::InvalidCa(_)
            | Self::UnknownToken
            | Self::Rejected(_) => true,
            Self::Unreachable { .. }
            | Self::ServerFailed(_)
            | Self::InvalidRequest(_)
            | Self::MalformedRequest(_)
            | Self::InvalidAnswer(_)
            | Self::Disconnected(_)
            | Self::Tls(_)
            | Self::Runtime(_) => false,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        if error.is_request() {
            Self::Request(error.into())
        } else {
            Self::Work(error.into())
        }
    }
}
