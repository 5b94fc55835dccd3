//! A full disk: every request is answered, and the answer is final. A request that was refused is not recorded later.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use dovetail_cluster::{Clock, Driver, DriverConfig, Handle, IdleRuntime, JobRequest, PolicyText, Refusal};

/// Set in the process that has a limit on the size of files.
const LIMITED: &str = "DOVETAIL_TEST_FILE_SIZE_LIMIT";

fn start(dir: &Path) -> (Handle, std::thread::JoinHandle<()>) {
    let config = DriverConfig {
        dir: dir.to_owned(),
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 1_000_000,
        runtime: dovetail_cluster::Capabilities::ALL,
    };
    let (driver, handle, _) = Driver::open(&config).unwrap();
    (handle, driver.spawn(IdleRuntime))
}

fn job(name: &str) -> JobRequest {
    JobRequest {
        name: name.to_owned(),
        command: vec!["true".to_owned()],
        env: [("PAD".to_owned(), "x".repeat(8_000))].into(),
        ..JobRequest::default()
    }
}

fn names(handle: &Handle) -> BTreeSet<String> {
    handle.read(|state| state.jobs().map(|job| job.request.name.clone()).collect())
}

/// Runs this test in a process whose files must not exceed some hundred KiB, so that the journal and the history cannot grow.
fn run_limited(test: &str) {
    let script = "trap '' XFSZ; ulimit -S -f 512; exec \"$0\" --exact \"$1\" --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(LIMITED, "1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn lift_limit() {
    let id = std::process::id().to_string();
    let lifted = Command::new("prlimit")
        .args(["--pid", &id, "--fsize=unlimited"])
        .status();
    assert!(lifted.unwrap().success());
}

#[test]
fn requests_during_an_outage_are_refused_and_never_recorded() {
    if std::env::var_os(LIMITED).is_none() {
        return run_limited("requests_during_an_outage_are_refused_and_never_recorded");
    }
    let dir = tempfile::tempdir().unwrap();
    let (handle, thread) = start(dir.path());
    // These have writes of their own: on a slow machine, one write may hold all the others, and then it fails for all.
    let mut accepted: BTreeSet<String> = (0..7).map(|i| format!("first-{i}")).collect();
    for name in &accepted {
        handle.submit("ann", job(name)).wait().unwrap();
    }
    let (sender, answers) = channel();
    for i in 0..300 {
        let (sender, name) = (sender.clone(), format!("job-{i}"));
        let call = handle.submit("ann", job(&name));
        call.then(move |answer| sender.send((name, answer)).unwrap());
        if i % 7 == 0 {
            // Some requests share a write to the journal, others do not.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut refused = BTreeSet::new();
    for _ in 0..300 {
        let (name, answer) = answers.recv_timeout(Duration::from_secs(60)).unwrap();
        match answer {
            Ok(_) => assert!(accepted.insert(name)),
            Err(Refusal::JournalUnavailable(_)) => assert!(refused.insert(name)),
            Err(other) => panic!("{name}: {other}"),
        }
    }
    assert!(!refused.is_empty());
    assert_eq!(names(&handle), accepted, "the state has no refused job");
    handle.read(|state| state.check().unwrap());

    lift_limit();
    let deadline = Instant::now() + Duration::from_secs(60);
    let number = loop {
        match handle.submit("ann", job("later")).wait() {
            Ok(number) => break number,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(number as usize, accepted.len() + 1, "refused jobs use no numbers");
    accepted.insert("later".to_owned());
    drop(handle);
    thread.join().unwrap();
    let (handle, _) = start(dir.path());
    assert_eq!(names(&handle), accepted, "a restart finds no refused job");
}
