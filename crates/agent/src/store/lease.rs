//! The time until which tasks may run without contact to the server. The agent writes it and the shims read it, so it
//! is enforced while no agent runs.

use std::path::Path;

use crate::error::AgentError;
use crate::files;

/// Writes the end of the lease, in milliseconds of [`crate::clock::boot_ms`].
pub(crate) fn write(path: &Path, until_ms: u64) -> Result<(), AgentError> {
    files::write_public(path, format!("{until_ms}\n").as_bytes())
}

/// Reads the end of the lease; `None` if the file is missing or malformed.
pub(crate) fn read(path: &Path) -> Option<u64> {
    let bytes = files::read(path).ok()??;
    std::str::from_utf8(&bytes).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_lease_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        assert_eq!(read(&path), None);
        write(&path, 77).unwrap();
        assert_eq!(read(&path), Some(77));
        std::fs::write(&path, "7x").unwrap();
        assert_eq!(read(&path), None);
    }
}
