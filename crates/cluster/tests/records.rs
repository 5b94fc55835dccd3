//! A restart applies what was decided: no policy, clock or release changes what happened.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use dovetail_cluster::state::{End, JobState};
use dovetail_cluster::{
    Clock, Driver, DriverConfig, DriverError, Handle, JobId, JobRequest, NodeCommand, NodeRegistration,
    PolicyText, Runtime, RuntimeCommand, TaskEnd,
};
use dovetail_engine::Capabilities;
use dovetail_journal::Journal;
use dovetail_model::{NodeSpec, Time};

/// Passes on which tasks are to be started.
struct StartSink(std::sync::mpsc::Sender<(JobId, u64)>);

impl Runtime for StartSink {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn execute(&mut self, commands: &mut dyn Iterator<Item = NodeCommand>) {
        for (_, command) in commands {
            if let RuntimeCommand::Start(task) = command {
                let _ = self.0.send((task.job, task.attempt));
            }
        }
    }
}

fn config(dir: &Path, policy: &str, clock: Clock) -> DriverConfig {
    DriverConfig {
        dir: dir.to_owned(),
        policy: PolicyText {
            policy: policy.to_owned(),
            ..PolicyText::default()
        },
        clock,
        snapshot_every: 1_000_000,
        runtime: Capabilities::ALL,
    }
}

fn submit(handle: &Handle, expected: i64) -> JobId {
    let request = JobRequest {
        command: vec!["true".to_owned()],
        expected: Some(Time::from_secs(expected)),
        ..JobRequest::default()
    };
    handle.submit("ann", request).wait().unwrap()
}

#[test]
fn another_policy_in_the_configuration_does_not_change_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let (driver, handle, recovery) = Driver::open(&config(dir.path(), "srtf", Clock::Events)).unwrap();
    assert_eq!(recovery.policy.policy, "srtf");
    let (sender, started) = std::sync::mpsc::channel();
    let thread = driver.spawn(StartSink(sender));
    let registration = NodeRegistration {
        spec: NodeSpec::plain("node", 1),
        gpu_type: "virtual".to_owned(),
        rack: "rack".to_owned(),
        address: String::new(),
        identity: 1,
    };
    let node = handle.register_node(registration).wait().unwrap().node;
    // The longest first: under srtf the order of completion is another than under fifo.
    let jobs = [submit(&handle, 300), submit(&handle, 200), submit(&handle, 100)];
    let mut order = Vec::new();
    while order.len() < jobs.len() {
        let (job, attempt) = started.recv_timeout(Duration::from_secs(20)).unwrap();
        handle
            .task_started(job, attempt, node, String::new(), Vec::new())
            .wait()
            .unwrap();
        let stopping = handle.read(|state| matches!(state.job(job).unwrap().state, JobState::Stopping(_)));
        let end = TaskEnd {
            was_stopped: stopping,
            ..TaskEnd::default()
        };
        handle.task_ended(job, attempt, node, end).wait().unwrap();
        if !stopping {
            order.push(job);
        }
    }
    let before = handle.read(|state| state.jobs().cloned().collect::<Vec<_>>());
    drop(handle);
    thread.join().unwrap();

    let changed = config(dir.path(), "fifo", Clock::rounds(Time::from_secs(60)));
    let (_driver, handle, recovery) = Driver::open(&changed).unwrap();
    assert_eq!(
        (recovery.policy.policy.as_str(), recovery.clock),
        ("srtf", Clock::Events),
        "what is in force"
    );
    handle.read(|state| {
        for job in jobs {
            assert_eq!(state.job(job).unwrap().state, JobState::Ended(End::Completed));
        }
        let after: Vec<_> = state.jobs().cloned().collect();
        assert_eq!(after.len(), before.len());
        for (after, before) in after.iter().zip(&before) {
            assert_eq!((&after.attempts, after.since), (&before.attempts, before.since));
        }
    });
}

#[test]
fn a_record_of_an_unknown_kind_is_refused_by_name_and_nothing_is_lost() {
    for (record, name) in [
        (r#"{"at":1,"fact":{"teleported":{"job":1}}}"#, "teleported"),
        (r#"{"at":1,"decision":{"ponder":{}}}"#, "ponder"),
        (r#"{"at":1,"rumour":{}}"#, "expected either `fact` or `decision`"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        drop(Driver::open(&config(dir.path(), "fifo", Clock::Events)).unwrap());
        let (mut journal, before) = Journal::open(dir.path()).unwrap();
        journal.append(record.as_bytes()).unwrap();
        journal.commit().unwrap();
        drop(journal);
        let error = Driver::open(&config(dir.path(), "fifo", Clock::Events)).unwrap_err();
        let DriverError::Record { seq, source } = &error else {
            panic!("{error}")
        };
        assert!(source.to_string().contains(name), "record {seq}: {source}");
        let (_, after) = Journal::open(dir.path()).unwrap();
        assert_eq!(after.records.len(), before.records.len() + 1, "nothing is lost");
    }
}
