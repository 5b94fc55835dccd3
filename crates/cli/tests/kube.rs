//! `dovetail kube`: what a person sees of mistakes.

mod common;

use std::fs;

const FILE: &str = "webServerAddress: 127.0.0.1:0
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells: [{cellType: NODE, cellAddress: n1}]
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
";

#[test]
fn an_extender_that_cannot_run_says_why() {
    let folder = tempfile::tempdir().expect("a directory to run in");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("misspelt.yaml", &FILE.replace("webServer", "webServr"));
    write("short.yaml", &FILE.replace("cellNumber: 1}", "cellNumber: 2}"));
    write("hivedscheduler.yaml", FILE);
    let shown = |args: &[&str]| {
        let args = [&["kube", "extender"], args].concat();
        common::dovetail_in(folder.path(), &args)
    };
    let misspelt = shown(&["--config", "misspelt.yaml"]);
    assert!(misspelt.contains("misspelt.yaml: "), "{misspelt}");
    assert!(
        misspelt.contains("webServrAddress") && misspelt.contains("line 1"),
        "{misspelt}"
    );
    assert!(misspelt.ends_with("exit code 2\n"), "{misspelt}");
    let short = shown(&["--config", "short.yaml"]);
    assert!(
        short.contains("short.yaml: ") && short.ends_with("exit code 2\n"),
        "{short}"
    );
    let absent = common::dovetail(&["kube", "extender"]);
    assert!(
        absent.contains("hivedscheduler.yaml: ") && absent.ends_with("exit code 2\n"),
        "{absent}"
    );
    let nowhere = shown(&["--kubeconfig", "nowhere"]);
    assert!(
        nowhere.contains("nowhere") && nowhere.ends_with("exit code 2\n"),
        "{nowhere}"
    );
}
