//! A temporary folder for the duration of a command.

use std::io;
use std::path::{Path, PathBuf};

/// A temporary folder cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create {}: {source}", path.display())]
pub struct ScratchError {
    path: PathBuf,
    source: io::Error,
}

/// A temporary folder of this process. It is deleted when the value is dropped.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Creates an empty folder below the system's folder for temporary files. `name` distinguishes the folders of
    /// one process.
    ///
    /// # Errors
    /// Fails when the folder cannot be created.
    pub fn new(name: &str) -> Result<Self, ScratchError> {
        let path = std::env::temp_dir().join(format!("dovetail-{name}-{}", std::process::id()));
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(ScratchError { path, source }),
        }
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
