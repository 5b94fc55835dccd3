//! Real nodes clean up however they end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dovetail_kubelab::{BUSYBOX, Lab, Machine, Settings};
use serde_json::json;

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !holds() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the control groups of a node in all hierarchies.
fn groups(keeper: u32) -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(top).unwrap().map(|entry| entry.unwrap().path());
    let all = hierarchies
        .chain([top.to_owned()])
        .map(|h| h.join(format!("kubelab-{keeper}")));
    all.filter(|group| group.exists()).collect()
}

/// Returns the processes in these control groups and their children.
fn running(groups: &[PathBuf]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut left = groups.to_vec();
    while let Some(group) = left.pop() {
        let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        found.extend(text.lines().filter_map(|l| l.parse::<u32>().ok()));
        let below = std::fs::read_dir(&group).into_iter().flatten().flatten();
        left.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found
}

/// Returns the kernel settings that a kubelet changes, the network interfaces and the mounts of this machine.
fn machine() -> (Vec<String>, BTreeSet<String>, String) {
    let settings = [
        "vm/overcommit_memory",
        "kernel/panic",
        "kernel/panic_on_oops",
        "net/ipv4/ip_forward",
    ];
    let settings = settings.map(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap());
    let links = std::fs::read_dir("/sys/class/net").unwrap();
    let links = links.map(|l| l.unwrap().file_name().to_string_lossy().into_owned());
    // Other tests on this machine may have such links.
    let links = links.filter(|l| !l.starts_with("kl")).collect();
    (
        settings.to_vec(),
        links,
        std::fs::read_to_string("/proc/self/mountinfo").unwrap(),
    )
}

/// Starts a container that ignores `SIGTERM` and returns the processes of its pod.
fn stubborn(lab: &Lab, node: &Machine) -> BTreeSet<u32> {
    let space = lab.namespace("stubborn").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"nodeName": node.name(),
        "containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"]}]}});
    assert_eq!(lab.request("POST", &pods, Some(&pod)).unwrap().status, 201);
    until("the pod runs", || {
        let pod = lab.request("GET", &format!("{pods}/a"), None).unwrap().body;
        pod["status"]["phase"] == "Running"
    });
    let found = running(&groups(node.process()));
    assert!(
        found.len() >= 2,
        "expected the pause process and the shell: {found:?}"
    );
    found
}

#[test]
fn a_node_leaves_no_processes_whether_it_ends_or_is_killed() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    let before = machine();
    let Some(mut nodes) = Machine::start_or_skip(&lab, &[("one", "")]) else {
        return;
    };
    let have_ended = |pids: &BTreeSet<u32>| {
        pids.iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    };
    let node = nodes.pop().unwrap();
    let (keeper, pids) = (node.process(), stubborn(&lab, &node));
    assert!(
        Path::new("/sys/class/net")
            .join(format!("kl{}-0", lab.port()))
            .exists()
    );
    drop(node);
    assert!(have_ended(&pids), "{pids:?}");
    assert_eq!(groups(keeper), Vec::<PathBuf>::new());
    assert_eq!(machine(), before);
    assert!(!lab.folder().join("one").exists());

    // A killed node cannot clean up: the kernel does, and the next node removes its control groups.
    let node = Machine::start_or_skip(&lab, &[("two", "")])
        .unwrap()
        .pop()
        .unwrap();
    let (keeper, pids) = (node.process(), stubborn(&lab, &node));
    let process = rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    until("the node's processes have ended", || have_ended(&pids));
    drop(node);
    until("the node's network link is removed", || {
        !Path::new("/sys/class/net")
            .join(format!("kl{}-0", lab.port()))
            .exists()
    });
    assert_eq!(machine(), before);
    drop(Machine::start_or_skip(&lab, &[("three", "")]).unwrap());
    assert_eq!(groups(keeper), Vec::<PathBuf>::new());
}
