//! Crates depend downward. The dependencies are those that `cargo metadata` reports.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::crates;

/// All crates, lowest layer first. A crate may depend on crates of lower layers only; `docs/architecture.md` has the
/// same table with what each crate holds.
const LAYERS: &[&[&str]] = &[
    &["model", "solve", "cells", "proto", "outbound", "httpserver"],
    &[
        "engine", "history", "learning", "openpai", "yaml", "journal", "kubeapi", "report",
    ],
    &["policies", "hived", "agent", "kubelab"],
    &["workload", "cluster"],
    &["sim", "hub", "jobfile", "extender", "console"],
    &["forecast", "testkit", "profiler", "reproduce", "experiment"],
    &["web", "kube"],
    &["client", "kubeweb"],
    &["bench", "server", "testbed"],
    &["cli"],
];

/// Crates that decide. They depend on data structures and arithmetic only.
const DECIDING: &[&str] = &["model", "solve", "engine", "cells", "policies"];

/// What the deciding crates may depend on beside each other.
const DECIDING_DEPENDENCIES: &[&str] = &[
    "libm",
    "rand",
    "rand_chacha",
    "rustc-hash",
    "serde",
    "serde_json",
    "smallvec",
    "thiserror",
];

/// Optional dependencies that only a test on request uses.
const ON_REQUEST: &[&str] = &["good_lp"];

/// The crates of the workspace with their dependencies (development dependencies left out), as folder names.
fn workspace() -> BTreeMap<String, Vec<(String, bool)>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(crates())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let folder = |package: &Value| {
        let manifest = package["manifest_path"].as_str().unwrap();
        manifest.rsplit('/').nth(1).unwrap().to_owned()
    };
    let packages = metadata["packages"].as_array().unwrap();
    let folders: BTreeMap<&str, String> = packages
        .iter()
        .map(|package| (package["name"].as_str().unwrap(), folder(package)))
        .collect();
    let dependencies = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|d| d["kind"].is_null())
            .map(|d| {
                let name = d["name"].as_str().unwrap();
                let folder = folders.get(name).cloned();
                (folder.unwrap_or_else(|| name.to_owned()), d["optional"] == true)
            })
            .collect()
    };
    packages.iter().map(|p| (folder(p), dependencies(p))).collect()
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// Every dependency that does not point downward, as a sentence.
fn upward(workspace: &BTreeMap<String, Vec<(String, bool)>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, dependencies) in workspace {
        let Some(own) = layer_of(name) else {
            found.push(format!(
                "{name} is in no layer: add it to LAYERS and to docs/architecture.md"
            ));
            continue;
        };
        for (used, _) in dependencies
            .iter()
            .filter(|(used, _)| workspace.contains_key(used))
        {
            if layer_of(used).is_some_and(|layer| layer >= own) {
                found.push(format!("{name} must not depend on {used}, which is not below it"));
            }
        }
    }
    found
}

#[test]
fn crates_depend_downward() {
    let found = upward(&workspace());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_layer_names_crates_that_exist() {
    let workspace = workspace();
    let names = LAYERS.iter().flat_map(|layer| layer.iter());
    let unknown: Vec<&&str> = names.filter(|name| !workspace.contains_key(**name)).collect();
    assert!(unknown.is_empty(), "no such crate: {unknown:?}");
}

#[test]
fn deciding_crates_depend_on_data_and_arithmetic_only() {
    let workspace = workspace();
    let mut found = Vec::new();
    for name in DECIDING {
        for (used, optional) in &workspace[*name] {
            let is_ours = workspace.contains_key(used);
            let on_request = *optional && ON_REQUEST.contains(&used.as_str());
            if !is_ours && !on_request && !DECIDING_DEPENDENCIES.contains(&used.as_str()) {
                found.push(format!("{name} decides, and must not depend on {used}"));
            }
            if is_ours && !DECIDING.contains(&used.as_str()) {
                found.push(format!(
                    "{name} decides, and must not depend on {used}, which does not"
                ));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_dependency_upward_is_reported() {
    let to = |name: &str| vec![(name.to_owned(), false)];
    let workspace = BTreeMap::from([
        ("engine".to_owned(), to("policies")),
        ("policies".to_owned(), to("engine")),
        ("unknown".to_owned(), Vec::new()),
    ]);
    let found = upward(&workspace);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("engine must not depend on policies"));
    assert!(found[1].contains("unknown is in no layer"));
}
