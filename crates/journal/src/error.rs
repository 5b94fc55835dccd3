//! Errors of a journal.

use std::io;
use std::path::{Path, PathBuf};

/// Why a journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{}: another process has this journal open; stop it first, or use another folder", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// A newer release wrote it.
    #[error("{}: written in format {found} by a newer release; this one reads format {known} and older", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
        /// Newest format this release reads.
        known: u32,
    },
    /// A file is damaged in a way that a crash cannot cause.
    #[error("{}: damaged at byte {at}: {what}; restore the folder from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damage.
        at: u64,
        /// What was found at the offset.
        what: String,
    },
    /// A record is too large.
    #[error("a record of {bytes} bytes exceeds the limit of the journal ({max} bytes)")]
    TooLarge {
        /// Size of the record in bytes.
        bytes: usize,
        /// Largest size in bytes.
        max: usize,
    },
}

/// Adds the path to an error.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, JournalError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, JournalError> {
        self.map_err(|source| JournalError::Io {
            path: path.to_owned(),
            source,
        })
    }
}
