//! `dovetail kube`: conversion, dry runs and error messages.

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
fn an_extender_that_does_not_start_reports_why() {
    let folder = tempfile::tempdir().expect("a directory to run in");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("misspelled.yaml", &FILE.replace("webServer", "webServr"));
    write("short.yaml", &FILE.replace("cellNumber: 1}", "cellNumber: 2}"));
    write("hivedscheduler.yaml", FILE);
    let shown = |args: &[&str]| {
        let args = [&["kube", "extender"], args].concat();
        common::dovetail_in(folder.path(), &args)
    };
    let misspelled = shown(&["--config", "misspelled.yaml"]);
    assert!(misspelled.contains("misspelled.yaml: "), "{misspelled}");
    assert!(
        misspelled.contains("webServrAddress") && misspelled.contains("line 1"),
        "{misspelled}"
    );
    assert!(misspelled.ends_with("exit code 2\n"), "{misspelled}");
    let short = shown(&["--config", "short.yaml"]);
    assert!(
        short.contains("short.yaml: ") && short.ends_with("exit code 2\n"),
        "{short}"
    );
    let missing = common::dovetail(&["kube", "extender"]);
    assert!(
        missing.contains("hivedscheduler.yaml: ") && missing.ends_with("exit code 2\n"),
        "{missing}"
    );
    let nowhere = shown(&["--kubeconfig", "nowhere"]);
    assert!(
        nowhere.contains("nowhere") && nowhere.ends_with("exit code 2\n"),
        "{nowhere}"
    );
}

#[test]
fn a_scheduler_that_does_not_start_reports_why() {
    let folder = tempfile::tempdir().expect("a directory to run in");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    let kubeconfig = "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: ''}}]\n\
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n";
    write("kubeconfig", kubeconfig);
    write("misspelled.yaml", "polcy: srsf\n");
    write("lease.yaml", "lease: {duration: 5s, deadline: 9s}\n");
    let shown = |args: &[&str]| {
        let args = [&["kube", "scheduler", "--kubeconfig", "kubeconfig"], args].concat();
        common::dovetail_in(folder.path(), &args)
    };
    let misspelled = shown(&["--config", "misspelled.yaml"]);
    assert!(
        misspelled.contains("misspelled.yaml: ") && misspelled.contains("polcy"),
        "{misspelled}"
    );
    assert!(misspelled.ends_with("exit code 2\n"), "{misspelled}");
    let lease = shown(&["--config", "lease.yaml"]);
    assert!(lease.contains("period < deadline < duration"), "{lease}");
    let policy = shown(&["--policy", "srfs"]);
    assert!(
        policy.contains("srfs") && policy.ends_with("exit code 2\n"),
        "{policy}"
    );
    write("sharing.yaml", "policy: sjf-ffs\n");
    let sharing = shown(&["--config", "sharing.yaml"]);
    assert!(
        sharing.contains("grouping `pair:by=ffs` needs GPU sharing, which Kubernetes does not support")
            && sharing.contains("use grouping `none`")
            && sharing.ends_with("exit code 2\n"),
        "{sharing}"
    );
    let nowhere = common::dovetail(&["kube", "scheduler", "--kubeconfig", "none"]);
    assert!(
        nowhere.contains("none: No such file") && nowhere.ends_with("exit code 2\n"),
        "{nowhere}"
    );
}

#[test]
fn a_configuration_of_hived_becomes_objects() {
    let folder = tempfile::tempdir().expect("a directory to run in");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("hived.yaml", FILE);
    let indented = FILE.replace('\n', "\n    ");
    write(
        "map.yaml",
        &format!(
            "kind: ConfigMap\nmetadata: {{name: hivedscheduler-config}}\ndata:\n  hivedscheduler.yaml: |\n    {indented}\n"
        ),
    );
    write("broken.yaml", &FILE.replace("cellNumber: 1}", "cellNumber: 2}"));
    let shown = |file: &str| common::dovetail_in(folder.path(), &["kube", "convert", file]);
    let (plain, map) = (shown("hived.yaml"), shown("map.yaml"));
    assert!(
        plain.contains("kind: ClusterTopology") && plain.contains("kind: VirtualCluster"),
        "{plain}"
    );
    assert_eq!(plain.replace("hived.yaml", "map.yaml"), map);
    write("upper.yaml", &FILE.replace("  a: {", "  VC1: {"));
    let upper = shown("upper.yaml");
    assert!(
        upper.contains("virtualClusters.VC1") && upper.ends_with("exit code 2\n"),
        "{upper}"
    );
    let broken = shown("broken.yaml");
    assert!(
        broken.contains("broken.yaml") && broken.ends_with("exit code 2\n"),
        "{broken}"
    );
}

const OPENPAI: &str = "protocolVersion: 2
name: MNIST_1
type: job
prerequisites:
- {name: image, type: dockerimage, uri: openpai/example}
secrets: {token: hush}
taskRoles:
  train:
    instances: 2
    completion: {minFailedInstances: 1, minSucceededInstances: 1}
    dockerImage: image
    resourcePerInstance: {cpu: 2, memoryMB: 4096, gpu: 1}
    commands: ['login <% $secrets.token %> && python3 main.py']
defaults: {virtualCluster: vc1}
extras: {hivedScheduler: {jobPriorityClass: prod}}
";

#[test]
fn a_job_file_becomes_kubernetes_jobs() {
    let folder = tempfile::tempdir().expect("a directory to run in");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("pai.yaml", OPENPAI);
    write(
        "plain.yaml",
        "name: x\ncommand: train\nafter: [3]\nprocesses: per-gpu\n",
    );
    let shown = |args: &[&str]| {
        let args = [
            &["kube", "submit", "--dry-run", "-n", "team", "--user", "alice"],
            args,
        ]
        .concat();
        common::dovetail_in(folder.path(), &args)
    };
    insta::assert_snapshot!(shown(&["pai.yaml"]));
    let json = shown(&["pai.yaml", "-o", "json"]);
    assert!(json.contains("\"kind\": \"List\""), "{json}");
    let wrong = shown(&["plain.yaml"]);
    for part in [
        "plain.yaml: after: ",
        "plain.yaml: processes: per-gpu",
        "plain.yaml: image: ",
        "exit code 2",
    ] {
        assert!(wrong.contains(part), "{part}: {wrong}");
    }
    let name = shown(&["pai.yaml", "--name", "A_b"]);
    assert!(
        name.contains("--name A_b: expected") && name.contains("such as a-b"),
        "{name}"
    );
}
