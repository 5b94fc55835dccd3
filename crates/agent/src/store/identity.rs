//! Lock and identity of the agent's folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{AgentError, IoResultExt};
use crate::files;

#[derive(Serialize, Deserialize)]
struct Identity {
    identity: u64,
}

/// Locks the folder for this process. The lock is released when the file is closed.
pub(crate) fn lock(folder: &Path) -> Result<File, AgentError> {
    files::make_dir(&folder.join("tasks"))?;
    let path = folder.join("agent.lock");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .at(&path)?;
    // A child that a killed agent was about to start holds the lock between fork and exec.
    const TRIES: u32 = 40;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(50)),
            Err(TryLockError::Error(e)) => return Err(e).at(&path),
        }
    }
    Err(AgentError::FolderInUse {
        folder: folder.to_owned(),
    })
}

/// Reads the identity of the agent, or draws one at the first start.
///
/// A damaged file is replaced by a new identity; the server then sees a different agent with the same node name.
pub(crate) fn identity(folder: &Path) -> Result<u64, AgentError> {
    let path = folder.join("identity.json");
    match files::read_json::<Identity>(&path) {
        Ok(Some(stored)) => return Ok(stored.identity),
        Ok(None) => {}
        Err(e @ AgentError::Damaged { .. }) => tracing::error!("{e}; drawing a new identity"),
        Err(e) => return Err(e),
    }
    let identity = rand::random::<u64>().max(1);
    files::write_json(&path, &Identity { identity })?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_used_by_one_agent_and_keeps_its_identity() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let error = lock(dir.path()).unwrap_err().to_string();
        assert!(error.contains("another agent"), "{error}");
        drop(held);
        lock(dir.path()).unwrap();
        let first = identity(dir.path()).unwrap();
        assert_eq!(identity(dir.path()).unwrap(), first);
        std::fs::write(dir.path().join("identity.json"), "{").unwrap();
        let second = identity(dir.path()).unwrap();
        assert_ne!(second, first);
        assert_eq!(identity(dir.path()).unwrap(), second);
    }
}
