//! Atomic file replacement: after a crash a file has its old or its new content.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{AgentError, IoResultExt};

/// Maximum size of a file that is read whole; the agent writes none that is larger.
const MAX_BYTES: u64 = 64 << 20;

/// Replaces a private file durably.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), AgentError> {
    write_with(path, bytes, 0o600, true).at(path)
}

/// Replaces a private file that need not survive a power failure, because the processes it describes do not either.
pub(crate) fn write_quick(path: &Path, bytes: &[u8]) -> Result<(), AgentError> {
    write_with(path, bytes, 0o600, false).at(path)
}

/// Replaces a file that other users may read. It need not survive a power failure.
pub(crate) fn write_public(path: &Path, bytes: &[u8]) -> Result<(), AgentError> {
    write_with(path, bytes, 0o644, false).at(path)
}

fn write_with(path: &Path, bytes: &[u8], mode: u32, durable: bool) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let written = write_new(&new, bytes, mode, durable).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // On a full disk the space is needed.
        let _ = fs::remove_file(&new);
    }
    written?;
    match path.parent() {
        Some(folder) if durable => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8], mode: u32, durable: bool) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    if durable {
        file.sync_all()?;
    }
    Ok(())
}

/// Replaces a private file durably with a value as JSON.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), AgentError> {
    write(path, &to_json(path, value)?)
}

/// Replaces a private file with a value as JSON; it need not survive a power failure.
pub(crate) fn write_json_quick<T: Serialize>(path: &Path, value: &T) -> Result<(), AgentError> {
    write_quick(path, &to_json(path, value)?)
}

fn to_json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, AgentError> {
    serde_json::to_vec_pretty(value).map_err(|e| damaged(path, &e.to_string()))
}

/// Reads a JSON value; `None` if the file does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, AgentError> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&bytes).map_err(|e| damaged(path, &e.to_string()))?;
    Ok(Some(value))
}

/// Reads a whole file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, AgentError> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).at(path),
        Ok(meta) if !meta.is_file() => return Err(damaged(path, "not a regular file")),
        Ok(meta) if meta.len() > MAX_BYTES => {
            let reason = format!("{} bytes exceed the limit of {MAX_BYTES} bytes", meta.len());
            return Err(damaged(path, &reason));
        }
        Ok(_) => {}
    }
    fs::read(path).at(path).map(Some)
}

/// Creates a folder that other users may enter but not list.
pub(crate) fn make_dir(path: &Path) -> Result<(), AgentError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(path)
        .at(path)
}

pub(crate) fn damaged(path: &Path, reason: &str) -> AgentError {
    AgentError::Damaged {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_despite_a_temporary_file_left_by_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        fs::write(dir.path().join("x.json.new"), "half").unwrap();
        write_json(&path, &[1, 2]).unwrap();
        write_json(&path, &[3]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), Some(vec![3]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unreadable_file_is_reported_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert!(read_json::<u32>(&path).unwrap().is_none());
        fs::write(&path, "{\"a\":").unwrap();
        let error = read_json::<u32>(&path).unwrap_err().to_string();
        assert!(error.contains("x.json: damaged"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(read_json::<u32>(&path).is_err());
    }
}
