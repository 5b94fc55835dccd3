//! Test data that is too large for the repository.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Says that a test is skipped, and why. The line is written past the test harness, which hides the output of tests that pass;
/// `make test` repeats it at its end.
pub fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// Returns a directory of shared data; if it does not exist, prints a notice and returns none.
///
/// The root is `DOVETAIL_SHARED`, or `../../../shared` relative to the given manifest directory:
/// `shared(env!("CARGO_MANIFEST_DIR"), "blox")`.
pub fn shared(manifest_dir: &str, folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DOVETAIL_SHARED")
        .map_or_else(|| Path::new(manifest_dir).join("../../../shared"), PathBuf::from);
    let path = root.join("data").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    skip(&format!(
        "{} does not exist (set DOVETAIL_SHARED)",
        path.display()
    ));
    None
}
