//! Replays all recorded scenarios of HiveD in process.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it skips"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dovetail_cells::Layout;
use dovetail_hived::{EXCEPTIONS, Scenario, ScenarioError, read_config};

/// Returns the folder with HiveD's data, if it exists.
fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("DOVETAIL_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("data/hived");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: {} does not exist", folder.display());
    None
}

fn layout(folder: &Path, name: &str) -> Result<Layout, ScenarioError> {
    let path = folder.join("configs").join(name);
    Ok(read_config(&path)?.1.layout)
}

#[test]
fn every_scenario_has_the_results_of_hived() {
    let Some(folder) = folder() else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("scenarios"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 32, "{} scenarios", files.len());
    let mut wrong = Vec::new();
    let mut exceptions = BTreeSet::new();
    for file in files {
        let scenario: Scenario = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let report = match scenario.replay(&mut |name| layout(&folder, name), &mut |_, _, _, _| {}) {
            Ok(report) => report,
            Err(error) => {
                wrong.push(format!("{}: {error}", scenario.name));
                continue;
            }
        };
        println!(
            "{:45} {:3} steps, {:3} exact, {:2} symmetric, {} exceptions",
            scenario.name,
            report.steps,
            report.exact,
            report.symmetric,
            report.exceptions.len()
        );
        exceptions.extend(
            report
                .exceptions
                .iter()
                .map(|(at, _)| (scenario.name.clone(), *at)),
        );
        if let Some((at, mismatch)) = report.mismatch {
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
    assert_eq!(exceptions, all, "every exception occurs");
}
