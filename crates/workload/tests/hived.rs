//! HiveD's configurations and scenarios: everything HiveD was seen to do, done again.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it leaves out"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dovetail_cells::Layout;
use dovetail_cells::hived::{EXCEPTIONS, Scenario};
use dovetail_workload::read_hived;

/// The folder with HiveD's data, if it is there.
fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("DOVETAIL_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("data/hived");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: {} is not there", folder.display());
    None
}

fn layout(folder: &Path, name: &str) -> Result<Layout, String> {
    let path = folder.join("configs").join(name);
    read_hived(&path)
        .map(|(_, c)| c.layout)
        .map_err(|e| e.to_string())
}

#[test]
fn every_scenario_goes_as_it_went_in_hived() {
    let Some(folder) = folder() else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("scenarios"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 32, "{} scenarios", files.len());
    let mut wrong = Vec::new();
    let mut met = BTreeSet::new();
    for file in files {
        let scenario: Scenario = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let played = match scenario.play(&mut |name| layout(&folder, name), &mut |_, _, _, _| {}) {
            Ok(played) => played,
            Err(what) => {
                wrong.push(format!("{}: {what}", scenario.name));
                continue;
            }
        };
        println!(
            "{:45} {:3} steps, {:3} exact, {:2} symmetric, {} exceptions",
            scenario.name,
            played.steps,
            played.exact,
            played.symmetric,
            played.exceptions.len()
        );
        met.extend(
            played
                .exceptions
                .iter()
                .map(|(at, _)| (scenario.name.clone(), *at)),
        );
        if let Some((at, mismatch)) = played.mismatch {
            let step = &scenario.steps[at];
            wrong.push(format!(
                "{} step {at} ({} {}{}): {mismatch}",
                scenario.name, step.op, step.pod, step.node
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let all: BTreeSet<_> = EXCEPTIONS
        .iter()
        .map(|e| (e.scenario.to_owned(), e.step))
        .collect();
    assert_eq!(met, all, "every exception is met");
}
