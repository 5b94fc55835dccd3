//! Output of `dovetail vc`.

mod common;

use std::fs;
use std::path::Path;

const OLD: &str = "physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: b}]}
  - {cellType: RACK, cellChildren: [{cellAddress: c, pinnedCellId: own}, {cellAddress: d}]}
virtualClusters:
  prod:
    virtualCells: [{cellType: RACK, cellNumber: 1}]
    pinnedCells: [{pinnedCellId: own}]
  test:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]
    leafCellsPerUser: 2
";

fn pod(name: &str, vc: &str, size: u32) -> String {
    format!(
        "{{\"op\": \"schedule\", \"pod\": \"{name}\", \"spec\": {{\"virtualCluster\": \"{vc}\", \"priority\": 1, \
         \"leafCellType\": \"GPU\", \"leafCellNumber\": {size}, \"affinityGroup\": null}}, \"phase\": \"Filtering\", \
         \"result\": {{\"kind\": \"KIND\"}}, \"state\": {{}}}}"
    )
}

/// Creates a folder with two configurations and a scenario.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory to run in");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("old.yaml", OLD);
    let new = OLD
        .replace("  test:\n", "  dev:\n")
        .replace("{cellAddress: b}", "{cellAddress: e}");
    write("new.yaml", &new);
    write(
        "broken.yaml",
        &OLD.replace("RACK.NODE", "RACK.POD")
            .replace("{cellAddress: d}", "{}"),
    );
    let steps = [
        pod("train", "prod", 4).replace("{\"kind\": \"KIND\"}", "{\"kind\": \"bind\", \"cellChain\": \"RACK\", \"groupPreassignedCellTypes\": [\"RACK\"], \"leafCells\": [0, 1, 2, 3], \"node\": \"a\"}"),
        pod("tune", "test", 3).replace("{\"kind\": \"KIND\"}", "{\"kind\": \"bind\", \"cellChain\": \"RACK\", \"groupPreassignedCellTypes\": [\"NODE\"], \"leafCells\": [0, 1, 2], \"node\": \"d\"}"),
        pod("late", "test", 2).replace("KIND", "wait"),
        pod("wide", "test", 8).replace("KIND", "bind"),
    ];
    let scenario = format!(
        "{{\"name\": \"made-up\", \"note\": \"two run, two wait\", \"config\": \"old.yaml\", \"steps\": [{}]}}",
        steps.join(", ")
    );
    write("scenario.json", &scenario);
    folder
}

fn shown(dir: &Path, args: &[&str]) -> String {
    common::dovetail_in(dir, args)
}

#[test]
fn check() {
    let folder = folder();
    insta::assert_snapshot!(shown(folder.path(), &["vc", "check", "old.yaml"]));
    insta::assert_snapshot!("broken", shown(folder.path(), &["vc", "check", "broken.yaml"]));
    insta::assert_snapshot!("missing", common::dovetail(&["vc", "check", "nowhere.yaml"]));
}

#[test]
fn diff() {
    let folder = folder();
    let args = ["vc", "diff", "old.yaml", "new.yaml", "--running", "scenario.json"];
    insta::assert_snapshot!(shown(folder.path(), &args));
}

#[test]
fn replay() {
    let folder = folder();
    let args = ["vc", "replay", "scenario.json", "--configs", ".", "--explain"];
    insta::assert_snapshot!(shown(folder.path(), &args));
}
