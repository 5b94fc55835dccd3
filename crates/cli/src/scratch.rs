//! A folder for as long as a command runs.

use std::path::PathBuf;

use anyhow::Context;

use crate::failure::{Blame, Failure};

/// A folder of this process that is deleted with the value.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty one; the name tells several of one command apart.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(name: &str) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("dovetail-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("{}", path.display()))
            .or_work()?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
