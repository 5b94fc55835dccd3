//! Errors of the lab.

use std::path::{Path, PathBuf};

use crate::Component;

/// Error of the lab.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LabError {
    /// The binary is not available here; tests skip.
    #[error("{0}")]
    Unavailable(String),
    /// The build of the binary failed.
    #[error("failed to build the Kubernetes control plane: {0}")]
    Build(String),
    /// An operation on a file, folder or socket failed.
    #[error("{}: {reason}", path.display())]
    File {
        /// Path of the file or folder, or address of the socket.
        path: PathBuf,
        /// Message of the operating system.
        reason: String,
    },
    /// A key or certificate is invalid or was not created.
    #[error("{name}: {reason}")]
    Certificate {
        /// Description of the key or certificate.
        name: String,
        /// Cause of the error.
        reason: String,
    },
    /// A component ended or did not become ready.
    #[error("{component} {reason}; the end of its log:\n{log}")]
    Component {
        /// The component.
        component: Component,
        /// What happened, as a predicate.
        reason: String,
        /// Last lines of its log.
        log: String,
    },
    /// A node ended or did not become ready.
    #[error("node {name} {reason}; the ends of its logs:\n{log}")]
    Machine {
        /// Name of the node.
        name: String,
        /// What happened, as a predicate.
        reason: String,
        /// Last lines of its logs.
        log: String,
    },
    /// A request failed.
    #[error("{request}: {reason}")]
    Request {
        /// Method and path.
        request: String,
        /// Cause of the error.
        reason: String,
    },
}

impl LabError {
    /// Returns a function that turns an I/O error into the error of this path.
    pub(crate) fn file(path: &Path) -> impl Fn(std::io::Error) -> Self {
        let path = path.to_owned();
        move |e| Self::File {
            path: path.clone(),
            reason: e.to_string(),
        }
    }
}
