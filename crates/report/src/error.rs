//! Errors in files, with the information needed to fix them.

use std::path::{Path, PathBuf};

/// A file could not be written, read or understood.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The operating system reported an error.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The operation: "read", "write", "create the directory".
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file that belongs to a run is missing.
    #[error("{}: no such file: expected {expected}; `dovetail simulate --out DIR` writes it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Its expected content.
        expected: &'static str,
    },
    /// A file has invalid content.
    #[error("{}:{line}: {field}: found {found}, expected {accepted}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: u64,
        /// The column or key.
        field: String,
        /// The value found.
        found: String,
        /// The accepted values.
        accepted: String,
    },
}

impl ReportError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Returns text from a file for an error message: quoted, and truncated if long.
pub(crate) fn quoted(found: &str) -> String {
    const MOST: usize = 60;
    if found.chars().count() <= MOST {
        return format!("{found:?}");
    }
    format!("{:?}…", found.chars().take(MOST).collect::<String>())
}
