//! Runs the real binary and returns everything that it prints.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns exit code, standard output and standard error of a run in `dir`, without colours and wall-clock times.
pub(crate) fn dovetail_in(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_dovetail"))
        .args(args)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .env_remove("DOVETAIL_SHARED")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .expect("the binary was built for this test");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    let mut shown = format!("$ dovetail {}\n", args.join(" "));
    shown.push_str(&text(&output.stdout));
    for line in text(&output.stderr).lines() {
        shown.push_str(&format!("! {line}\n"));
    }
    shown.push_str(&format!("exit code {code}\n"));
    hide_timings(&shown)
}

/// Runs a command in an empty directory.
pub(crate) fn dovetail(args: &[&str]) -> String {
    dovetail_in(tempfile::tempdir().expect("a directory to run in").path(), args)
}

/// Removes lines with wall-clock times, which differ from run to run.
fn hide_timings(text: &str) -> String {
    let timed = |line: &&str| line.contains("\"wall_ms\"") || line.contains(" decisions in ");
    text.lines()
        .filter(|line| !timed(line))
        .map(|line| format!("{line}\n"))
        .collect()
}
