//! Errors of the history database.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the history database cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file cannot be created.
    #[error("{}: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system error.
        source: std::io::Error,
    },
    /// The file is not a database, or is damaged.
    #[error("{}: damaged: {source}; restore the file from a backup, nothing was changed", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The file is a database of another program.
    #[error("{}: a database of another program; move it away, or use another folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer release wrote it.
    #[error("{}: written in format {found} by a newer release; this one reads format {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
        /// Format that this release reads.
        known: u32,
    },
    /// The file system or SQLite failed.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

/// Adds the path to an error.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, HistoryError>;
}

impl<T> At<T> for rusqlite::Result<T> {
    fn at(self, path: &Path) -> Result<T, HistoryError> {
        self.map_err(|source| {
            let path = path.to_owned();
            match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    HistoryError::Damaged { path, source }
                }
                _ => HistoryError::Database { path, source },
            }
        })
    }
}
