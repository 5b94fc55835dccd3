//! Where the public traces are, for the tests that read them.

use std::path::PathBuf;

/// A folder or file of the shared data, or none with a line that cannot be overlooked.
#[allow(clippy::print_stderr)]
pub(crate) fn data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DOVETAIL_SHARED").map(PathBuf::from);
    let root = root.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let path = root.join("data").join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!(
        "SKIPPED: {} is not there; set DOVETAIL_SHARED to check against the public traces",
        path.display()
    );
    None
}
