//! The agent's folder: its lock and its number.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{At, NodeError};
use crate::files;

#[derive(Serialize, Deserialize)]
struct Identity {
    identity: u64,
}

/// Takes the folder for this process. The lock is held as long as the file is.
pub(crate) fn lock(folder: &Path) -> Result<File, NodeError> {
    files::make_dir(&folder.join("tasks"))?;
    let path = folder.join("agent.lock");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .at(&path)?;
    // A child that a killed agent was just starting has the lock until it becomes another program.
    const TRIES: u32 = 40;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(50)),
            Err(TryLockError::Error(e)) => return Err(e).at(&path),
        }
    }
    Err(NodeError::InUse {
        dir: folder.to_owned(),
    })
}

/// The number of this agent, drawn when it first starts in its folder. One that cannot be read is drawn anew, and the
/// scheduler sees another agent of the same name.
pub(crate) fn identity(folder: &Path) -> Result<u64, NodeError> {
    let path = folder.join("identity.json");
    match files::read_json::<Identity>(&path) {
        Ok(Some(known)) => return Ok(known.identity),
        Ok(None) => {}
        Err(e @ NodeError::Damaged { .. }) => tracing::error!("{e}; a new identity is drawn"),
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
    fn a_folder_has_one_agent_and_keeps_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        assert!(
            lock(dir.path())
                .unwrap_err()
                .to_string()
                .contains("another agent")
        );
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
