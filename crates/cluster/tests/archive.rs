//! Ended jobs leave memory for the history database: whatever happens in between, each job is found exactly once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_cluster::state::{End, JobRecord, JobState};
use dovetail_cluster::{
    Actor, After, AfterWhen, Capabilities, Clock, Driver, DriverConfig, DriverError, EndedJobLimits, Handle,
    IdleRuntime, JobId, JobRequest, PastJobs, PolicyText, Recovery, Refusal, history,
};
use dovetail_history::{JobQuery, Sort, SortField};
use dovetail_journal::Journal;
use serde_json::Value;

fn config(dir: &Path) -> DriverConfig {
    DriverConfig {
        dir: dir.to_owned(),
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 1_000_000,
        runtime: Capabilities::ALL,
    }
}

struct Server {
    handle: Handle,
    recovery: Recovery,
    driving: std::thread::JoinHandle<()>,
}

impl Server {
    /// Starts a driver that keeps no ended job in memory longer than it must.
    fn start(dir: &Path) -> Self {
        Self::start_with(dir, EndedJobLimits::default().unwritten)
    }

    /// Likewise, with the number of ended jobs that the history may not have.
    fn start_with(dir: &Path, unwritten: usize) -> Self {
        let limits = EndedJobLimits { recent: 0, unwritten };
        let (driver, handle, recovery) = Driver::open_with(&config(dir), limits).unwrap();
        let driving = driver.spawn(IdleRuntime);
        Self {
            handle,
            recovery,
            driving,
        }
    }

    /// Ends the driver without a snapshot.
    fn crash(self) {
        drop(self.handle);
        self.driving.join().unwrap();
    }

    /// Ends the driver with a snapshot.
    fn stop(self) {
        self.handle.shut_down().wait().unwrap();
        drop(self.handle);
        self.driving.join().unwrap();
    }

    fn cancelled_job(&self, name: &str) -> JobId {
        let id = self.handle.submit("ann", request(name)).wait().unwrap();
        self.handle.cancel(id, Actor::user("ann")).wait().unwrap();
        id
    }

    fn departed(&self) -> u64 {
        self.handle.read(|state| state.departed_count())
    }

    fn job(&self, id: JobId) -> JobRecord {
        let in_memory = self.handle.read(|state| state.job(id).cloned());
        in_memory.unwrap_or_else(|| self.handle.past_job(id).unwrap().unwrap())
    }
}

fn request(name: &str) -> JobRequest {
    JobRequest {
        name: name.to_owned(),
        command: vec!["true".to_owned()],
        hold: true,
        ..JobRequest::default()
    }
}

/// Starts and stops a server until ended jobs have left memory: those of recent events stay at first.
fn depart(dir: &Path) {
    Server::start(dir).stop();
    let server = Server::start(dir);
    assert!(server.departed() > 0);
    server.stop();
}

fn everything() -> JobQuery {
    JobQuery {
        sort: Sort {
            field: SortField::Submitted,
            descending: false,
        },
        ..JobQuery::newest(10_000)
    }
}

/// Returns what users see of all jobs, of memory and of the history.
fn all_jobs(handle: &Handle) -> BTreeMap<JobId, Value> {
    let (mut jobs, known) = handle.read(|state| {
        let jobs: Vec<JobRecord> = state.jobs().cloned().collect();
        (jobs, state.known_jobs())
    });
    let found = handle.history().unwrap().list(&everything(), &known).unwrap();
    assert_eq!(found.total, found.jobs.len() as u64);
    let past: Vec<JobId> = found.jobs.iter().map(|(_, id)| *id).collect();
    let records = handle.past_jobs(&past).unwrap();
    assert_eq!(records.len(), past.len(), "every listed job has a record");
    jobs.extend(records);
    let count = jobs.len();
    let seen = |job: &JobRecord| {
        let mut value = serde_json::to_value(job).unwrap();
        // The engine's handle is not what users see.
        value.as_object_mut().unwrap().remove("job_key");
        (job.id, value)
    };
    let all: BTreeMap<JobId, Value> = jobs.iter().map(seen).collect();
    assert_eq!(all.len(), count, "no job is there twice");
    all
}

fn copy(from: &Path, to: &Path, is_copied: impl Fn(&str) -> bool) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if is_copied(&entry.file_name().to_string_lossy()) {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn snapshots(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .filter(|path| path.to_string_lossy().contains("snapshot"))
        .collect();
    found.sort();
    found
}

#[test]
fn a_crash_at_any_step_neither_loses_nor_duplicates_a_job() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let live = at("live");
    let server = Server::start(&live);
    for i in 0..40 {
        server.cancelled_job(&format!("job-{i}"));
    }
    let open = server.handle.submit("ann", request("open")).wait().unwrap();
    let expected = all_jobs(&server.handle);
    server.crash();
    let all = |_: &str| true;
    // The journal has the ends, the database does not.
    copy(&live, &at("not written"), |name| !name.starts_with("history.db"));
    // The database has the jobs, no snapshot confirms it.
    copy(&live, &at("written"), all);
    Server::start(&live).stop();
    // A snapshot confirms it; the jobs are still in memory.
    copy(&live, &at("confirmed"), all);
    depart(&live);
    // The jobs have left memory.
    copy(&live, &at("departed"), all);
    // The snapshot without them is incomplete: the one before it has them.
    copy(&live, &at("torn"), all);
    let newest = snapshots(&at("torn")).pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();
    for name in ["not written", "written", "confirmed", "departed", "torn", "live"] {
        let dir = at(name);
        for round in 0..3 {
            let server = Server::start(&dir);
            assert_eq!(all_jobs(&server.handle), expected, "{name}, round {round}");
            server.stop();
        }
        let server = Server::start(&dir);
        assert_eq!(server.departed(), 40, "{name}: each job leaves once");
        assert_eq!(server.handle.read(|state| state.jobs().count()), 1, "{name}");
        assert_eq!(
            server.cancelled_job("later"),
            open + 1,
            "{name}: numbers continue"
        );
        server.crash();
    }
}

#[test]
fn jobs_that_left_memory_answer_requests_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let key = || Some("key".to_owned());
    let first = server
        .handle
        .submit_once("ann", request("first"), key(), PastJobs::default())
        .wait()
        .unwrap();
    server.handle.cancel(first, Actor::user("ann")).wait().unwrap();
    server.stop();
    depart(dir.path());
    let server = Server::start(dir.path());
    let handle = &server.handle;
    // An idempotency key is found in the history, and only there.
    let again = |request: JobRequest| {
        let past = handle.recall("ann", &request, Some("key")).unwrap();
        handle.submit_once("ann", request, key(), past).wait()
    };
    assert_eq!(again(request("first")), Ok(first));
    assert!(matches!(again(request("other")), Err(Refusal::Conflict(_))));
    let unread = handle.submit_once("ann", request("first"), key(), PastJobs::default());
    assert_eq!(unread.wait(), Err(Refusal::HistoryMoved));
    // It has ended, and stays known.
    for answer in [
        handle.cancel(first, Actor::user("ann")),
        handle.hold(first, Actor::user("ann")),
    ] {
        assert_eq!(
            answer.wait().unwrap_err().to_string(),
            format!("job {first} has already ended")
        );
    }
    let dependent = |when| JobRequest {
        after: vec![After { job: first, when }],
        hold: false,
        ..request("dependent")
    };
    let submit = |request: JobRequest| {
        let past = handle.recall("ann", &request, None).unwrap();
        handle.submit_once("ann", request, None, past).wait().unwrap()
    };
    let (after_ok, after_any) = (
        submit(dependent(AfterWhen::Ok)),
        submit(dependent(AfterWhen::Any)),
    );
    let check = |handle: &Handle| {
        handle.read(|state| {
            let state_of = |id| state.job(id).unwrap().state.clone();
            assert_eq!(state_of(after_ok), JobState::Ended(End::DependencyFailed(first)));
            assert_eq!(state_of(after_any), JobState::Queued);
        });
    };
    check(handle);
    handle
        .label(first, "a", Some("1".to_owned()), Actor::user("ann"))
        .wait()
        .unwrap();
    server.crash();
    // The records after the snapshot say the same again.
    let server = Server::start(dir.path());
    check(&server.handle);
    server.stop();
    let server = Server::start(dir.path());
    assert_eq!(
        server.job(first).request.labels.get("a").map(String::as_str),
        Some("1")
    );
    let labelled = JobQuery {
        label: Some(("a".to_owned(), Some("1".to_owned()))),
        ..everything()
    };
    let known = server.handle.read(|state| state.known_jobs());
    let found = server.handle.history().unwrap().list(&labelled, &known).unwrap();
    assert_eq!(found.jobs.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [first]);
    server.stop();
}

#[test]
fn a_history_that_is_missing_newer_or_damaged_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    for i in 0..3 {
        server.cancelled_job(&format!("job-{i}"));
    }
    server.stop();
    depart(dir.path());
    let path = dir.path().join("history.db");
    let good = std::fs::read(&path).unwrap();
    let refused = || {
        Driver::open(&config(dir.path()))
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    let mut newer = good.clone();
    newer[60..64].copy_from_slice(&99u32.to_be_bytes());
    std::fs::write(&path, &newer).unwrap();
    assert!(
        refused().contains("written in format 99 by a newer release"),
        "{}",
        refused()
    );
    assert_eq!(std::fs::read(&path).unwrap(), newer);
    std::fs::write(
        &path,
        "not a database, but longer than the header of one".repeat(100),
    )
    .unwrap();
    assert!(refused().contains("damaged"), "{}", refused());
    std::fs::remove_file(&path).unwrap();
    let missing = Driver::open(&config(dir.path())).unwrap_err();
    assert!(
        matches!(missing, DriverError::HistoryMissing { jobs: 3, .. }),
        "{missing}"
    );
    std::fs::write(&path, &good).unwrap();
    let server = Server::start(dir.path());
    assert_eq!(all_jobs(&server.handle).len(), 3);
    server.crash();
    std::fs::write(&path, "").unwrap();
    let server = Server::start(dir.path());
    assert_eq!(
        all_jobs(&server.handle).len(),
        0,
        "an empty file is a new history"
    );
    assert_eq!(server.cancelled_job("next"), 4);
    server.crash();
}

#[test]
fn a_journal_that_was_restored_from_an_older_copy_counts() {
    let root = tempfile::tempdir().unwrap();
    let (live, older) = (root.path().join("live"), root.path().join("older"));
    let server = Server::start(&live);
    server.cancelled_job("first");
    let open = server.handle.submit("ann", request("open")).wait().unwrap();
    let expected = all_jobs(&server.handle);
    server.crash();
    copy(&live, &older, |name| !name.starts_with("history.db"));
    let server = Server::start(&live);
    server.handle.cancel(open, Actor::user("ann")).wait().unwrap();
    server.cancelled_job("newer");
    server.crash();
    copy(&live, &older, |name| name.starts_with("history.db"));
    let server = Server::start(&older);
    assert_eq!(
        server.recovery.removed, 2,
        "one is open again, and one does not exist"
    );
    assert_eq!(all_jobs(&server.handle), expected);
    server.crash();
}

/// Journals of earlier releases, which have all jobs in memory.
const JOURNALS: [&str; 2] = [
    include_str!("data/journal-0.1.jsonl"),
    include_str!("data/journal-before-glossary.jsonl"),
];

#[test]
fn ended_jobs_of_an_older_release_are_imported_once() {
    for (records, left) in JOURNALS.into_iter().zip([vec![], vec![1, 9]]) {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        for record in records.lines() {
            journal.append(record.as_bytes()).unwrap();
        }
        journal.commit().unwrap();
        drop(journal);
        let server = Server::start(dir.path());
        let ended = server.handle.read(|state| state.ended_count());
        assert!(ended > 0);
        assert_eq!(server.recovery.imported, ended as u64);
        let expected = all_jobs(&server.handle);
        server.stop();
        Server::start(dir.path()).stop();
        let server = Server::start(dir.path());
        assert_eq!(server.recovery.imported, 0);
        // In the first journal a job that has not ended depends on the only one that has.
        let is_left = |id: &JobId| server.handle.read(|state| state.has_departed(*id));
        let known = expected.keys().copied();
        assert_eq!(known.filter(is_left).collect::<Vec<_>>(), left);
        assert_eq!(all_jobs(&server.handle), expected);
        server.crash();
        // What is exported does not depend on where jobs are.
        let scratch = tempfile::tempdir().unwrap();
        let exported = history::read(dir.path(), scratch.path()).unwrap();
        assert_eq!(exported.jobs.len() + exported.others, expected.len());
    }
}

#[test]
fn the_size_of_a_snapshot_does_not_depend_on_the_number_of_ended_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut sizes = Vec::new();
    for _ in 0..2 {
        let server = Server::start(dir.path());
        for i in 0..200 {
            server.cancelled_job(&format!("job-{i}"));
        }
        server.stop();
        depart(dir.path());
        let newest = snapshots(dir.path()).pop().unwrap();
        sizes.push(std::fs::metadata(newest).unwrap().len());
    }
    assert!(sizes[1] < sizes[0] + 100, "{sizes:?}");
}

#[test]
fn no_job_is_taken_while_too_many_ended_ones_wait_for_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), 3);
    let other = rusqlite::Connection::open(dir.path().join("history.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for i in 0..4 {
        server.cancelled_job(&format!("job-{i}"));
    }
    let refused = server.handle.submit("ann", request("one too many")).wait();
    assert_eq!(refused, Err(Refusal::HistoryBehind { jobs: 4, limit: 3 }));
    other.execute_batch("ROLLBACK").unwrap();
    let begun = std::time::Instant::now();
    while server.handle.submit("ann", request("later")).wait().is_err() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(all_jobs(&server.handle).len(), 5);
    server.stop();
}
