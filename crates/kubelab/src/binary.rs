//! Where the binary is that is a whole control plane.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::LabError;

/// The script that knows how to build it, in the project's folder.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kube-control-plane");

/// The control plane's binary: the one `DOVETAIL_KUBE_BIN` names, or else the one the project's script has built, or
/// builds now, which takes ten minutes.
///
/// # Errors
/// When it cannot be had: no Go, no modules.
pub fn binary() -> Result<PathBuf, LabError> {
    static FOUND: OnceLock<Result<PathBuf, LabError>> = OnceLock::new();
    FOUND.get_or_init(ask).clone()
}

/// The same, for a test: where it cannot be had there is a line that says `SKIPPED`, also when the test passes quietly.
///
/// # Panics
/// When it could be had, but does not build.
pub fn binary_or_skip() -> Option<PathBuf> {
    skip(binary())
}

/// What there is, or `None` and a line that says so.
pub(crate) fn skip<T>(tried: Result<T, LabError>) -> Option<T> {
    match tried {
        Ok(there) => Some(there),
        Err(e @ LabError::Unavailable(_)) => {
            // Not with `eprintln`: the test runner keeps what a passing test says with it to itself.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn ask() -> Result<PathBuf, LabError> {
    if let Some(path) = std::env::var_os("DOVETAIL_KUBE_BIN").map(PathBuf::from) {
        let why = format!("DOVETAIL_KUBE_BIN names {}, which is no file", path.display());
        return path.is_file().then_some(path).ok_or(LabError::Unavailable(why));
    }
    let none = |e| LabError::Unavailable(format!("no Kubernetes control plane: {SCRIPT}: {e}"));
    let mut script = Command::new(SCRIPT)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(none)?;
    // What it says while it builds is passed on at once: that takes minutes.
    let mut last = String::new();
    for line in BufReader::new(script.stderr.take().expect("piped")).lines() {
        last = line.map_err(none)?;
        if !last.starts_with("SKIPPED") {
            let _ = writeln!(std::io::stderr(), "{last}");
        }
    }
    let output = script.wait_with_output().map_err(none)?;
    match output.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        Some(3) => Err(LabError::Unavailable(
            last.trim_start_matches("SKIPPED: ").to_owned(),
        )),
        _ => Err(LabError::Build(last)),
    }
}
