//! What can go wrong with an agent as a whole. What goes wrong with a task is told to the scheduler.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong, and where.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The disk said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another agent runs in the same folder.
    #[error("{}: another agent runs in this folder; stop it first, or use another folder", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// A file of the agent's folder cannot be read.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// A setting that cannot be.
    #[error("{field}: {why}")]
    Setting {
        /// Which one.
        field: &'static str,
        /// What is wrong, and what would be accepted.
        why: String,
    },
    /// The scheduler cannot be reached, or is not the one that was meant. Dialling again may help.
    #[error("{0}")]
    Unreachable(String),
    /// The scheduler does not want this agent, for good.
    #[error("the scheduler at {server} refused this node: {why}")]
    Refused {
        /// Who.
        server: String,
        /// Its words.
        why: String,
    },
}

/// Names the file an error is about.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, NodeError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, NodeError> {
        self.map_err(|source| NodeError::Io {
            path: path.to_owned(),
            source,
        })
    }
}
