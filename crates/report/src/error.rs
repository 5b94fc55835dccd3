//! What can go wrong with files, said so that the reader can mend it.

use std::path::{Path, PathBuf};

/// A file could not be written, read or understood.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was tried: "read", "write", "create the directory".
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that belongs to a run is not there.
    #[error("{}: there is no such file; expected {expected}. `dovetail simulate --out DIR` writes it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
    },
    /// A file is there, but something in it is not as it should be.
    #[error("{}:{line}: {field}: found {found}; accepted is {accepted}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: u64,
        /// The column or key.
        field: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        accepted: String,
    },
}

impl ReportError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Text from a file for an error message: quoted, and cut where it is long.
pub(crate) fn quoted(found: &str) -> String {
    const MOST: usize = 60;
    if found.chars().count() <= MOST {
        return format!("{found:?}");
    }
    format!("{:?}…", found.chars().take(MOST).collect::<String>())
}
