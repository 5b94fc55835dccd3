//! A test that is killed leaves no process behind.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dovetail_kubelab::Subprocess;

use crate::harness::Cluster;

/// Set for the run of [`keeps_a_cluster_until_it_is_killed`] in a process of its own.
const IS_VICTIM: &str = "DOVETAIL_TEST_VICTIM";

/// Starts a cluster, prints the IDs of its processes, and waits to be killed.
#[test]
fn keeps_a_cluster_until_it_is_killed() {
    if std::env::var_os(IS_VICTIM).is_none() {
        return;
    }
    let cluster = Cluster::start(1, 1, "");
    writeln!(std::io::stderr(), "processes {}", cluster.processes().join(" ")).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// Returns whether a process runs. A zombie does not: in a container there may be no process that reaps it.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[test]
fn server_and_agents_end_when_their_test_is_killed() {
    let mut victim = Subprocess::spawn(
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "orphans::keeps_a_cluster_until_it_is_killed",
                "--nocapture",
            ])
            .env(IS_VICTIM, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped()),
    )
    .unwrap();
    let mut lines = BufReader::new(victim.stderr.take().unwrap()).lines();
    let processes = lines
        .find_map(|line| line.unwrap().strip_prefix("processes ").map(str::to_owned))
        .unwrap();
    let processes: Vec<&str> = processes.split(' ').collect();
    assert_eq!(processes.len(), 2, "a server and an agent");
    assert!(processes.iter().all(|pid| is_running(pid)), "{processes:?}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while processes.iter().any(|pid| is_running(pid)) {
        assert!(Instant::now() < deadline, "still running: {processes:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes are started through `Subprocess`, which ends them with the test.
#[test]
fn tests_start_no_process_that_could_outlive_them() {
    let mut folders = vec![std::path::PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests"
    ))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Split, so that this line does not contain it.
            let spawns = text.contains(concat!(".spawn", "()"));
            assert!(!spawns, "{}: use `Subprocess::spawn`", path.display());
        }
    }
}
