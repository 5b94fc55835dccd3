//! Files that are there whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{At, NodeError};

/// No file of ours that is read whole is larger than this; what is, was not written by us.
const MOST_BYTES: u64 = 64 << 20;

/// Writes a file for our own eyes, so that after a crash there is the old one or the new one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), NodeError> {
    write_with(path, bytes, 0o600, true).at(path)
}

/// The same for a file that need not outlive a power cut, because the processes it tells of do not either.
pub(crate) fn write_quick(path: &Path, bytes: &[u8]) -> Result<(), NodeError> {
    write_with(path, bytes, 0o600, false).at(path)
}

/// The same for a file that others may read.
pub(crate) fn write_public(path: &Path, bytes: &[u8]) -> Result<(), NodeError> {
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
        // A full disk needs the room.
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

/// Writes a value as JSON.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), NodeError> {
    write(path, &to_json(path, value)?)
}

/// Writes a value as JSON that need not outlive a power cut.
pub(crate) fn write_json_quick<T: Serialize>(path: &Path, value: &T) -> Result<(), NodeError> {
    write_quick(path, &to_json(path, value)?)
}

fn to_json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, NodeError> {
    serde_json::to_vec_pretty(value).map_err(|e| damaged(path, &e.to_string()))
}

/// Reads a value back; `None` if there is no file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, NodeError> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&bytes).map_err(|e| damaged(path, &e.to_string()))?;
    Ok(Some(value))
}

/// Reads a file whole; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, NodeError> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).at(path),
        Ok(meta) if !meta.is_file() => return Err(damaged(path, "not a file")),
        Ok(meta) if meta.len() > MOST_BYTES => {
            return Err(damaged(path, &format!("{} bytes, far too many", meta.len())));
        }
        Ok(_) => {}
    }
    fs::read(path).at(path).map(Some)
}

/// Makes a folder that others may pass through, but not look into.
pub(crate) fn make_dir(path: &Path) -> Result<(), NodeError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(path)
        .at(path)
}

pub(crate) fn damaged(path: &Path, what: &str) -> NodeError {
    NodeError::Damaged {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_a_leftover_of_a_crash_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        fs::write(dir.path().join("x.json.new"), "half").unwrap();
        write_json(&path, &[1, 2]).unwrap();
        write_json(&path, &[3]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), Some(vec![3]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert!(read_json::<u32>(&path).unwrap().is_none());
        fs::write(&path, "{\"a\":").unwrap();
        let said = read_json::<u32>(&path).unwrap_err().to_string();
        assert!(said.contains("x.json: damaged"), "{said}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(read_json::<u32>(&path).is_err());
    }
}
