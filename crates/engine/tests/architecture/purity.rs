//! The deciding crates have no clock, environment, files, network, threads or entropy, and iterate no hash map.

use std::fs;

use crate::{crates, rust_files, shown};

/// Crates that decide.
const PURE: &[&str] = &["model", "solve", "engine", "cells", "policies"];

/// Text that must not be in the code of a deciding crate, and the reason.
const FORBIDDEN: &[(&str, &str)] = &[
    ("Instant", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("std::time", "time is an argument"),
    ("std::env", "settings are arguments"),
    ("std::fs", "files belong to drivers"),
    ("std::net", "sockets belong to drivers"),
    ("std::process", "processes belong to drivers"),
    ("std::io", "reading and writing belong to drivers"),
    ("std::thread", "one owner, no threads"),
    ("std::sync", "one owner, no locks"),
    ("thread_local", "one owner, no threads"),
    ("tokio", "no async runtime"),
    ("async fn", "no async runtime"),
    (".await", "no async runtime"),
    ("rayon", "one owner, no threads"),
    ("HashMap", "its iteration order is random"),
    ("HashSet", "its iteration order is random"),
    ("RandomState", "entropy"),
    ("rand::rng", "entropy"),
    ("thread_rng", "entropy"),
    ("from_os_rng", "entropy"),
    ("OsRng", "entropy"),
    ("getrandom", "entropy"),
    ("println!", "the core prints nothing"),
    ("dbg!", "the core prints nothing"),
    ("good_lp", "only a test compares with this solver"),
];

/// Exceptions: maps that are looked up and never iterated, and shared values that never change (sensitivity curves,
/// measured factors of groups, the layout of cells, the table of presets).
const ALLOWED: &[(&str, &str)] = &[
    ("model/src/job.rs", "std::sync"),
    ("model/src/group_factors.rs", "std::sync"),
    ("engine/src/shape.rs", "HashMap"),
    ("policies/src/grouping/muri/kinds.rs", "HashMap"),
    ("policies/src/grouping/muri/merge.rs", "HashMap"),
    ("policies/src/presets.rs", "std::sync"),
    ("policies/src/tenancy/cell_map.rs", "std::sync"),
];

/// The code of a file without comments, text literals and unit tests, with line numbers.
fn code(text: &str) -> Vec<(usize, String)> {
    let lines = text
        .lines()
        .enumerate()
        .take_while(|(_, line)| !line.contains("#[cfg(test)]"));
    lines
        .map(|(i, line)| {
            let line = line.split("//").next().unwrap_or_default();
            let outside = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
            (i + 1, outside)
        })
        .collect()
}

/// Every forbidden word in the code of one file, as `file:line: word (reason)`.
fn violations(name: &str, text: &str) -> Vec<String> {
    let allowed = |word: &str| ALLOWED.iter().any(|(file, w)| name.ends_with(file) && *w == word);
    let mut found = Vec::new();
    for (line, code) in code(text) {
        for (word, why) in FORBIDDEN
            .iter()
            .filter(|(word, _)| code.contains(word) && !allowed(word))
        {
            found.push(format!("{name}:{line}: {word} ({why})"));
        }
    }
    found
}

#[test]
fn deciding_crates_touch_nothing_outside() {
    let mut found = Vec::new();
    for name in PURE {
        for file in rust_files(&crates().join(name).join("src")) {
            found.extend(violations(&shown(&file), &fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_violation_is_reported() {
    let source = "use std::collections::HashMap;\n// Instant\nlet x = \"tokio\";\nlet t = Instant::now();\n#[cfg(test)]\nstd::fs";
    assert_eq!(
        violations("engine/src/x.rs", source),
        [
            "engine/src/x.rs:1: HashMap (its iteration order is random)",
            "engine/src/x.rs:4: Instant (time is an argument)"
        ]
    );
    assert_eq!(
        violations("engine/src/shape.rs", "use rustc_hash::FxHashMap;").len(),
        0
    );
}
