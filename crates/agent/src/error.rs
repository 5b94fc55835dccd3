//! Errors of the agent. Failures of a single task are reported to the server instead.

use std::io;
use std::path::{Path, PathBuf};

/// Why the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another agent uses the folder.
    #[error("{}: another agent uses this folder; stop it or choose another folder", folder.display())]
    FolderInUse {
        /// The agent's folder.
        folder: PathBuf,
    },
    /// A file in the agent's folder has unexpected content.
    #[error("{}: damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting is invalid.
    #[error("{field}: {reason}")]
    Config {
        /// Name of the setting.
        field: &'static str,
        /// What is wrong and what is expected.
        reason: String,
    },
    /// A task uses more memory than its new limit.
    #[error("the limit of {limit_mib} MiB is less than the {used_mib} MiB that the task uses")]
    MemoryInUse {
        /// The limit, in MiB.
        limit_mib: u64,
        /// Memory of its processes, in MiB.
        used_mib: u64,
    },
    /// The server cannot be reached or its identity does not match. The agent tries again.
    #[error("{0}")]
    Unreachable(String),
    /// The server does not accept this agent. Trying again is useless.
    #[error("the server at {server} rejected this node: {reason}")]
    Rejected {
        /// Address of the server.
        server: String,
        /// Reason given by the server.
        reason: String,
    },
    /// The agent is shutting down.
    #[error("the agent is shutting down")]
    ShuttingDown,
    /// A background operation was cancelled or panicked.
    #[error("a background operation was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// Adds the path to an I/O error.
pub(crate) trait IoResultExt<T> {
    fn at(self, path: &Path) -> Result<T, AgentError>;
}

impl<T> IoResultExt<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, AgentError> {
        self.map_err(|source| AgentError::Io {
            path: path.to_owned(),
            source,
        })
    }
}
