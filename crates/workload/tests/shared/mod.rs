//! Paths of the public traces.

use std::path::PathBuf;

/// Returns a folder or file of the shared data; `None` with a message if it is missing.
#[allow(clippy::print_stderr)]
pub(crate) fn data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DOVETAIL_SHARED").map(PathBuf::from);
    let root = root.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let path = root.join("data").join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!(
        "SKIPPED: missing {}; set DOVETAIL_SHARED to check against the public traces",
        path.display()
    );
    None
}
