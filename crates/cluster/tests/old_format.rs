//! Journals and snapshots from before the names of the glossary are still read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_cluster::state::{End, Hold, JobState, NodeState, TaskState};
use dovetail_cluster::{
    Actor, Clock, ClusterState, Driver, DriverConfig, GuaranteeMode, PolicyText, SystemRule,
};
use dovetail_journal::Journal;
use dovetail_model::NodeId;
use serde_json::Value;

/// Records of an old journal, one on each line.
const RECORDS: &str = include_str!("data/journal-before-glossary.jsonl");

fn config(dir: &std::path::Path) -> DriverConfig {
    DriverConfig {
        dir: dir.to_owned(),
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 1_000,
        runtime: dovetail_cluster::Capabilities::ALL,
    }
}

fn check(state: &ClusterState) {
    state.check().unwrap();
    let job = |id| state.job(id).unwrap();
    assert_eq!(job(1).state, JobState::Ended(End::TimeLimit));
    assert_eq!((job(1).attempts[0].id, job(1).progress.checkpoint), (1, 6));
    let TaskState::Ended(end) = &job(1).attempts[0].tasks[0] else {
        panic!("{:?}", job(1))
    };
    assert_eq!(end.log_tail, "saved");
    assert_eq!(job(1).progress_samples[0].step, 5);
    assert_eq!(state.job_of_key("ann", "k1").unwrap().id, 1);
    assert_eq!(job(2).state, JobState::Starting);
    assert_eq!(job(3).state, JobState::Held(Hold::User(Actor::user("root"))));
    assert_eq!(job(3).request.gpus, 3, "the size of its recreated workload");
    let JobState::Ended(End::Failed { reason, .. }) = &job(9).state else {
        panic!("{:?}", job(9))
    };
    assert_eq!(reason, "exit code 1");
    let node = state.node(NodeId(0)).unwrap();
    let draining = NodeState::Draining {
        by: Actor::System(SystemRule::Health),
        reason: "GPU 1: fault".to_owned(),
    };
    assert_eq!(node.state, draining);
    assert!(state.is_paused());
    assert_eq!(state.virtual_clusters().mode, GuaranteeMode::Quota);
}

#[test]
fn an_old_journal_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    for record in RECORDS.lines() {
        journal.append(record.as_bytes()).unwrap();
    }
    journal.commit().unwrap();
    drop(journal);
    let (_driver, handle, recovery) = Driver::open(&config(dir.path())).unwrap();
    assert_eq!(recovery.records as usize, RECORDS.lines().count());
    handle.read(check);
}

/// Renames a key of an object.
fn rename(object: &mut Value, new: &str, old: &str) {
    let object = object.as_object_mut().unwrap();
    let value = object
        .remove(new)
        .unwrap_or_else(|| panic!("{new} in {object:?}"));
    object.insert(old.to_owned(), value);
}

/// Writes a snapshot with the keys it had before the glossary.
fn with_old_names(snapshot: &[u8]) -> Vec<u8> {
    let mut saved: Value = serde_json::from_slice(snapshot).unwrap();
    rename(&mut saved["virtual_clusters"], "mode", "promise");
    rename(&mut saved, "virtual_clusters", "clusters");
    rename(&mut saved, "job_ids", "tickets");
    rename(&mut saved, "next_event", "next_notice");
    rename(&mut saved["engine"]["progress"], "reserved_for", "kept_for");
    rename(&mut saved["engine"]["progress"], "rekey_all", "redraw");
    rename(&mut saved["engine"], "progress", "books");
    let draining = &mut saved["nodes"][0]["state"]["draining"];
    rename(draining, "reason", "why");
    draining["by"] = "health".into();
    for job in saved["jobs"].as_array_mut().unwrap() {
        rename(job, "id", "no");
        rename(job, "job_key", "ticket");
        rename(job, "progress", "steps");
        if job.get("progress_samples").is_some() {
            rename(job, "progress_samples", "trail");
        }
        if let Some(failed) = job.pointer_mut("/state/ended/failed") {
            rename(failed, "reason", "why");
        }
        if let Some(user) = job.pointer_mut("/state/held/user") {
            *user = "root".into();
        }
        for attempt in job["attempts"].as_array_mut().unwrap() {
            rename(attempt, "id", "launch");
            rename(attempt, "key", "generation");
        }
    }
    serde_json::to_vec(&saved).unwrap()
}

/// A snapshot of release 0.1, which did not record decisions and saved the engine.
const SNAPSHOT: &str = include_str!("data/snapshot-0.1.json");

#[test]
fn an_old_snapshot_is_loaded() {
    for saved in [SNAPSHOT.as_bytes().to_vec(), with_old_names(SNAPSHOT.as_bytes())] {
        let loaded = ClusterState::load(&saved).unwrap();
        check(&loaded);
        let converted = ClusterState::load(&loaded.save().unwrap()).unwrap();
        check(&converted);
        assert_eq!(converted.save().unwrap(), loaded.save().unwrap());
    }
}

/// Records of a journal of release 0.1, of users, lost nodes and changed policies, and the state to which that release
/// replayed them.
const JOURNAL: &str = include_str!("data/journal-0.1.jsonl");
const STATE: &str = include_str!("data/state-0.1.json");

#[test]
fn a_journal_of_release_0_1_gives_the_state_of_release_0_1_and_is_converted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    for record in JOURNAL.lines() {
        journal.append(record.as_bytes()).unwrap();
    }
    journal.commit().unwrap();
    drop(journal);
    let expected: Value = serde_json::from_str(STATE).unwrap();
    let mut other = config(dir.path());
    // The second start reads the converted journal: the configuration counts no more.
    for policy in [PolicyText::default().policy, "srtf".to_owned()] {
        other.policy.policy = policy;
        let (_driver, handle, _) = Driver::open(&other).unwrap();
        let state: Value = handle.read(|state| serde_json::from_slice(&state.save().unwrap()).unwrap());
        assert_eq!(state["policy"], expected["policy"]);
        assert_eq!(state["nodes"], expected["nodes"]);
        assert_eq!(state["virtual_clusters"], expected["virtual_clusters"]);
        let jobs = |state: &Value| state["jobs"].as_array().unwrap().clone();
        assert_eq!(jobs(&state).len(), jobs(&expected).len());
        for (mut job, expected) in jobs(&state).into_iter().zip(jobs(&expected)) {
            for attempt in job["attempts"].as_array_mut().unwrap() {
                // Release 0.1 did not keep it; it follows from the same records.
                attempt.as_object_mut().unwrap().remove("told_to_stop");
            }
            for key in [
                "id",
                "user",
                "request",
                "submitted",
                "state",
                "since",
                "attempts",
                "failures",
            ] {
                assert_eq!(job[key], expected[key], "{key} of job {}", expected["id"]);
            }
        }
    }
}
