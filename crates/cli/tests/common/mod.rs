//! Runs the real binary and gives back everything a person would see.

use std::path::Path;
use std::process::{Command, Stdio};

/// Exit code, standard output and standard error of a run in `dir`, without colours and timings.
pub(crate) fn dovetail_in(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_dovetail"))
        .args(args)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .env_remove("DOVETAIL_SHARED")
        .stdin(Stdio::null())
        .output()
        .unwrap();
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

/// The same, in a directory with nothing in it.
pub(crate) fn dovetail(args: &[&str]) -> String {
    dovetail_in(tempfile::tempdir().unwrap().path(), args)
}

/// Wall times differ from run to run.
fn hide_timings(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("\"wall_ms\"") {
            continue;
        }
        match (line.find(" decisions in "), line.rfind(" ms")) {
            (Some(start), Some(end)) if end > start => {
                let width = end - (start + " decisions in ".len());
                let hidden = format!(
                    "{}{}{}",
                    &line[..start + " decisions in ".len()],
                    "#".repeat(1),
                    &line[end..]
                );
                // The table's border moves with the width of the number: pad to a fixed one.
                lines.push(hidden.replace(" ms", &format!(" ms{}", " ".repeat(width.saturating_sub(1)))));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}
