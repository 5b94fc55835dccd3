//! Why a server cannot be configured, started or continued.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use dovetail_agent::AgentError;
use dovetail_client::ClientError;
use dovetail_cluster::DriverError;
use dovetail_hub::AuthorityError;
use dovetail_web::{SettingError, TlsError, UsersError};

use crate::InvalidSpan;

/// An invalid setting of a server.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not readable.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not valid YAML, or has a wrong key or value.
    #[error("{}: {problem}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// There is no default for the data folder.
    #[error(transparent)]
    DataFolder(#[from] ClientError),
    /// The path of the data folder cannot be made absolute.
    #[error(transparent)]
    DataPath(io::Error),
    /// A span of time is invalid.
    #[error(transparent)]
    Span(#[from] InvalidSpan),
    /// The API would be reachable from other machines without TLS.
    #[error(
        "http: {http} is not a loopback address: without TLS, tokens would be sent unencrypted over the network"
    )]
    Unencrypted {
        /// Address of the API.
        http: SocketAddr,
    },
    /// An agent could lose its lease although it is healthy.
    #[error(
        "lease: {} s is too short for a heartbeat of {} s: expected at least three heartbeats",
        lease.as_secs_f64(),
        heartbeat.as_secs_f64()
    )]
    ShortLease {
        /// The lease.
        lease: Duration,
        /// Heartbeat interval of agents.
        heartbeat: Duration,
    },
}

/// Why a server cannot be started, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A setting of OpenID Connect or notifications is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A folder cannot be created or restricted to its owner.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A socket cannot be bound.
    #[error("{key} {address}: cannot listen (port 0 picks a free one): {source}")]
    Listen {
        /// The setting.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The address of a socket is unknown.
    #[error(transparent)]
    Address(io::Error),
    /// The journal cannot be opened.
    #[error("{}: {source}", folder.display())]
    Journal {
        /// The folder of the journal.
        folder: PathBuf,
        /// What is wrong.
        source: DriverError,
    },
    /// Certificates cannot be read or created.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The certificate of the API is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Users cannot be read or changed.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] dovetail_web::AuditError),
    /// `client.yaml` cannot be rendered.
    #[error(transparent)]
    ClientText(#[from] serde_saphyr::ser::Error),
    /// `client.yaml` cannot be written.
    #[error("{}: {source}", path.display())]
    ClientFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The API and the page cannot be served any more.
    #[error(transparent)]
    Web(#[from] dovetail_web::ServeError),
    /// Agents cannot be served any more.
    #[error(transparent)]
    Hub(#[from] dovetail_hub::ServeError),
    /// An agent of this process failed.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A task of this process panicked.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}
