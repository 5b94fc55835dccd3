//! The public data that measurements are compared with.

use std::path::PathBuf;

/// Returns a file of the public data, or names it on standard error as skipped if it does not exist.
pub(crate) fn shared_file(path: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("DOVETAIL_SHARED").map_or_else(|| "../shared".into(), PathBuf::from);
    existing(shared.join("data").join(path))
}

/// Returns the file, or names it on standard error as skipped if it does not exist.
pub(crate) fn existing(path: PathBuf) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} does not exist (set DOVETAIL_SHARED)", path.display());
    None
}
