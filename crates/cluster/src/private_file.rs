//! Files that only their owner can read: keys, tokens, accounts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file that only its owner can read. After a crash, the file has either the old or the new contents.
///
/// # Errors
/// If the file cannot be written; the old file is unchanged then.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    // A file that a crash left behind may be readable by others.
    match fs::remove_file(&unfinished) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_left_by_a_crash_is_replaced_by_one_for_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(path.with_extension("tmp"), "half").unwrap();
        write_private(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
