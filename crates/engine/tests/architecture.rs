//! The invariants of `docs/architecture.md` that can be read off the sources: what the deciding crates do not do, and
//! who may use whom.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that decide: no clock, no environment, no files, no network, no threads, no entropy, no order by chance.
const PURE: &[&str] = &["model", "solve", "engine", "cells", "policies"];

/// Text that a deciding crate does not have in its code, and why.
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
    ("HashMap", "its order is chance"),
    ("HashSet", "its order is chance"),
    ("RandomState", "entropy"),
    ("rand::rng", "entropy"),
    ("thread_rng", "entropy"),
    ("from_os_rng", "entropy"),
    ("OsRng", "entropy"),
    ("getrandom", "entropy"),
    ("println!", "the core says nothing"),
    ("dbg!", "the core says nothing"),
    ("good_lp", "a solver to test against"),
];

/// Where a forbidden word is fine: look-ups that are never walked through, and what is shared and never changes (curves
/// of the jobs of a model, the layout of cells).
const ALLOWED: &[(&str, &str)] = &[
    ("model/src/job.rs", "std::sync"),
    ("engine/src/shape.rs", "HashMap"),
    ("policies/src/grouping/muri/kinds.rs", "HashMap"),
    ("policies/src/grouping/muri/merge.rs", "HashMap"),
    ("policies/src/tenancy/cell_map.rs", "std::sync"),
];

/// Who may use whom: the table of rooms. A crate that is not in it has to be added here and there.
const ROOMS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("solve", &[]),
    ("engine", &["model"]),
    ("cells", &[]),
    ("policies", &["model", "engine", "cells", "solve"]),
    ("openpai", &["model"]),
    ("workload", &["model", "cells", "openpai"]),
    ("sim", &["model", "engine", "policies", "workload"]),
    ("report", &["model"]),
    ("journal", &["model"]),
    ("control", &["model", "engine", "cells", "policies", "journal"]),
    ("proto", &["model"]),
    ("agents", &["model", "control", "proto"]),
    ("node", &["model", "proto"]),
    ("kubeapi", &[]),
    ("kube", &["model", "cells", "control", "kubeapi", "workload"]),
    ("extender", &["cells", "kubeapi", "workload"]),
    ("kubelab", &["kubeapi"]),
    ("courier", &[]),
    ("web", &["model", "control", "courier", "openpai", "workload"]),
    ("testkit", &["model", "engine", "policies", "workload", "sim"]),
];

/// What else the deciding crates may depend on: data and arithmetic.
const PURE_DEPENDENCIES: &[&str] = &[
    "libm",
    "rand",
    "rand_chacha",
    "rustc-hash",
    "serde",
    "serde_json",
    "smallvec",
    "thiserror",
];

/// What tests of theirs use on request only: optional, and not in their code.
const ON_REQUEST: &[&str] = &["good_lp"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The code of a file: no comments, no text in quotes, and nothing after the unit tests begin.
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

/// Every forbidden word in the code of one file, as `line: word (why)`.
fn offences(name: &str, text: &str) -> Vec<String> {
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

/// The names under `[dependencies]` and its siblings of one kind.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == format!("[{section}]");
        } else if inside && let Some((name, _)) = line.split_once(['=', '.']) {
            names.insert(name.trim().to_owned());
        }
    }
    names
}

#[test]
fn the_crates_that_decide_touch_nothing_outside() {
    let mut found = Vec::new();
    for name in PURE {
        let folder = crates().join(name).join("src");
        if !folder.is_dir() {
            continue;
        }
        for file in sources(&folder) {
            let shown = file.strip_prefix(crates()).unwrap().display().to_string();
            found.extend(offences(&shown, &fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn crates_use_only_the_rooms_they_may() {
    let rooms: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        // The command line is a thin skin over everything.
        if name == "cli" || !folder.join("Cargo.toml").is_file() {
            continue;
        }
        let Some(may) = rooms.get(name.as_str()) else {
            wrong.push(format!("{name} is not in the table of rooms"));
            continue;
        };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest, "dependencies") {
            let line = format!("\n{used} = {{ workspace = true, optional = true }}\n");
            if ON_REQUEST.contains(&used.as_str()) && manifest.contains(&line) {
                continue;
            }
            match used.strip_prefix("dovetail-") {
                Some(room) if !may.contains(&room) => wrong.push(format!("{name} may not use {room}")),
                Some(_) => {}
                None if PURE.contains(&name.as_str()) && !PURE_DEPENDENCIES.contains(&used.as_str()) => {
                    wrong.push(format!("{name} decides, and may not depend on {used}"));
                }
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn this_test_would_see_an_offence() {
    let source = "use std::collections::HashMap;\n// Instant\nlet x = \"tokio\";\nlet t = Instant::now();\n#[cfg(test)]\nstd::fs";
    assert_eq!(
        offences("engine/src/x.rs", source),
        [
            "engine/src/x.rs:1: HashMap (its order is chance)",
            "engine/src/x.rs:4: Instant (time is an argument)"
        ]
    );
    assert_eq!(
        offences("engine/src/shape.rs", "use rustc_hash::FxHashMap;").len(),
        0
    );
    let manifest =
        "[dependencies]\na = { workspace = true }\nb.workspace = true\n[dev-dependencies]\nc = \"1\"";
    let names = dependencies(manifest, "dependencies");
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b"]);
}
