//! Path of the control plane binary.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::LabError;

/// Script that finds or builds the binary.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kube-control-plane");

/// Returns the path of the control plane binary: the value of `DOVETAIL_KUBE_BIN`, or the one that the project's script has
/// built or builds now, which takes about 15 minutes.
///
/// # Errors
/// If there is no binary and it cannot be built, for example without Go.
pub fn binary() -> Result<PathBuf, LabError> {
    static FOUND: OnceLock<Result<PathBuf, LabError>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

/// Does the same for a test: prints a line with `SKIPPED` and returns `None` if the binary is not available.
///
/// # Panics
/// If the build fails.
pub fn binary_or_skip() -> Option<PathBuf> {
    skip(binary())
}

/// Returns the value, or prints a line with `SKIPPED` if the control plane is not available.
pub(crate) fn skip<T>(result: Result<T, LabError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e @ LabError::Unavailable(_)) => {
            // Not with `eprintln`, whose output the test runner hides when the test passes.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn find() -> Result<PathBuf, LabError> {
    if let Some(path) = std::env::var_os("DOVETAIL_KUBE_BIN").map(PathBuf::from) {
        let reason = format!("DOVETAIL_KUBE_BIN: \"{}\" is not a file", path.display());
        return path
            .is_file()
            .then_some(path)
            .ok_or(LabError::Unavailable(reason));
    }
    let unavailable = |e| LabError::Unavailable(format!("no Kubernetes control plane: {SCRIPT}: {e}"));
    let mut script = Command::new(SCRIPT)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(unavailable)?;
    // Messages of the script are printed at once, because a build takes minutes.
    let mut last = String::new();
    for line in BufReader::new(script.stderr.take().expect("piped")).lines() {
        last = line.map_err(unavailable)?;
        if !last.starts_with("SKIPPED") {
            let _ = writeln!(std::io::stderr(), "{last}");
        }
    }
    let output = script.wait_with_output().map_err(unavailable)?;
    match output.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        Some(3) => Err(LabError::Unavailable(
            last.trim_start_matches("SKIPPED: ").to_owned(),
        )),
        _ => Err(LabError::Build(last)),
    }
}
