//! Until when tasks may run without another word from the scheduler. The agent writes it, the shims read it, so it
//! holds also while there is no agent.

use std::path::Path;

use crate::error::NodeError;
use crate::files;

/// Writes it, in milliseconds of [`crate::clock`].
pub(crate) fn write(path: &Path, until_ms: u64) -> Result<(), NodeError> {
    files::write_public(path, format!("{until_ms}\n").as_bytes())
}

/// Reads it; nothing if there is none that makes sense.
pub(crate) fn read(path: &Path) -> Option<u64> {
    let bytes = files::read(path).ok()??;
    std::str::from_utf8(&bytes).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nonsense_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        assert_eq!(read(&path), None);
        write(&path, 77).unwrap();
        assert_eq!(read(&path), Some(77));
        std::fs::write(&path, "7x").unwrap();
        assert_eq!(read(&path), None);
    }
}
