//! Data that is too large for the repository.

use std::path::{Path, PathBuf};

/// A folder of shared data; none, with a loud line, where it is absent.
///
/// The root is `DOVETAIL_SHARED`, or `../../../shared` beside the crate whose manifest directory is given:
/// `shared(env!("CARGO_MANIFEST_DIR"), "blox")`.
#[allow(
    clippy::print_stderr,
    reason = "a test that is skipped must not look as if it had passed"
)]
pub fn shared(manifest_dir: &str, folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DOVETAIL_SHARED")
        .map_or_else(|| Path::new(manifest_dir).join("../../../shared"), PathBuf::from);
    let path = root.join("data").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there (set DOVETAIL_SHARED)", path.display());
    None
}
