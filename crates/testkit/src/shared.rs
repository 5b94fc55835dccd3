//! Test data that is too large for the repository.

use std::path::{Path, PathBuf};

/// Returns a directory of shared data; if it does not exist, prints a notice and returns none.
///
/// The root is `DOVETAIL_SHARED`, or `../../../shared` relative to the given manifest directory:
/// `shared(env!("CARGO_MANIFEST_DIR"), "blox")`.
#[allow(
    clippy::print_stderr,
    reason = "a skipped test must be distinguishable from one that passed"
)]
pub fn shared(manifest_dir: &str, folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DOVETAIL_SHARED")
        .map_or_else(|| Path::new(manifest_dir).join("../../../shared"), PathBuf::from);
    let path = root.join("data").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} does not exist (set DOVETAIL_SHARED)", path.display());
    None
}
