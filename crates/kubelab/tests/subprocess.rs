//! A child process ends with the process that started it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dovetail_kubelab::Subprocess;

/// Set for the run of [`parent`] in a process of its own.
const IS_PARENT: &str = "KUBELAB_TEST_PARENT";

/// Whether a process runs. A zombie does not: in a container there may be no process that reaps it.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a child from a thread that ends, prints the ID of the child, and waits to be killed.
#[test]
fn parent() {
    if std::env::var_os(IS_PARENT).is_none() {
        return;
    }
    let start = || Subprocess::spawn(Command::new("sleep").arg("600")).unwrap();
    let child = std::thread::spawn(start).join().unwrap();
    writeln!(std::io::stderr(), "child {}", child.id()).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_child_is_killed_when_its_parent_is() {
    let mut parent = Subprocess::spawn(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "parent", "--nocapture"])
            .env(IS_PARENT, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped()),
    )
    .unwrap();
    let mut lines = BufReader::new(parent.stderr.take().unwrap()).lines();
    let child = lines
        .find_map(|line| line.unwrap().strip_prefix("child ").map(str::to_owned))
        .unwrap();
    assert!(runs(&child));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the child has ended", || !runs(&child));
}

#[test]
fn a_child_ends_with_its_value() {
    let child = Subprocess::spawn(Command::new("sleep").arg("600")).unwrap();
    let pid = child.id().to_string();
    assert!(runs(&pid));
    drop(child);
    assert!(!runs(&pid));
}

#[test]
fn output_has_both_streams_and_the_exit_code() {
    let output =
        Subprocess::output(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
    assert_eq!(
        (
            output.stdout.as_slice(),
            output.stderr.as_slice(),
            output.status.code()
        ),
        (b"out\n".as_slice(), b"err\n".as_slice(), Some(3))
    );
}
