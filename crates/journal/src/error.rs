//! What can go wrong with a journal.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong, and where.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process writes it.
    #[error("{}: another process has this journal open; stop it first, or use another folder", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// A later release wrote it.
    #[error("{}: written in format {found} by a newer release; this one reads format {known} and older", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest this release knows.
        known: u32,
    },
    /// The file is damaged where a crash cannot have done it.
    #[error("{}: damaged at byte {at}: {what}; restore the folder from a back-up", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place.
        at: u64,
        /// What was found there.
        what: String,
    },
    /// A record is too large.
    #[error("a record of {bytes} bytes is too large for the journal; at most {most} are possible")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest possible.
        most: usize,
    },
}

impl JournalError {
    /// Whether the disk is full, so that it may go on when there is room again.
    pub fn is_full(&self) -> bool {
        let kinds = [
            io::ErrorKind::StorageFull,
            io::ErrorKind::QuotaExceeded,
            io::ErrorKind::FileTooLarge,
        ];
        matches!(self, Self::Io { source, .. } if kinds.contains(&source.kind()))
    }
}

/// Names the file an error is about.
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
