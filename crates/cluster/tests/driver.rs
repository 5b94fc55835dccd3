//! The driver over a real journal: what was answered is there after a crash, and orders go out after the fact is durable.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use dovetail_cluster::state::{End, JobState};
use dovetail_cluster::{
    Actor, Backend, Driver, DriverConfig, Handle, JobRequest, NodeRegistration, OperatorAction, PolicyText,
    Recovery, Refusal, RuntimeCommand, TaskEnd,
};
use dovetail_engine::Clock;
use dovetail_model::{NodeId, NodeSpec};

struct Post(Sender<(NodeId, RuntimeCommand)>);

impl Backend for Post {
    fn dispatch(&mut self, orders: Vec<(NodeId, RuntimeCommand)>) {
        orders.into_iter().for_each(|order| drop(self.0.send(order)));
    }

    fn events_recorded(&mut self, _last: u64) {}
}

fn start(
    dir: &Path,
) -> (
    Handle,
    Recovery,
    Receiver<(NodeId, RuntimeCommand)>,
    std::thread::JoinHandle<()>,
) {
    let config = DriverConfig {
        dir: dir.to_owned(),
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 50,
    };
    let (driver, handle, start) = Driver::open(&config).unwrap();
    let (sender, orders) = channel();
    (handle, start, orders, driver.spawn(Post(sender)))
}

fn arrival(name: &str) -> NodeRegistration {
    NodeRegistration {
        spec: NodeSpec::plain(name, 4),
        gpu_type: "virtual".to_owned(),
        rack: "rack".to_owned(),
        address: "127.0.0.1".to_owned(),
        identity: 7,
    }
}

fn job(gpus: u32) -> JobRequest {
    JobRequest {
        command: vec!["true".to_owned()],
        gpus,
        ..JobRequest::default()
    }
}

#[test]
fn a_job_survives_a_crash_and_is_taken_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, first, orders, thread) = start(dir.path());
    assert_eq!((first.records, first.snapshot), (0, false));
    let node = handle.register_node(arrival("a")).wait().unwrap().node;
    let no = handle.submit("ann", job(2)).wait().unwrap();
    let (to, order) = orders.recv().unwrap();
    assert_eq!(to, node);
    let RuntimeCommand::Start(task) = order else {
        panic!("{order:?}")
    };
    assert_eq!((task.job, task.attempt, task.share.gpus.count()), (no, 1, 2));
    handle
        .task_started(no, 1, node, String::new(), Vec::new())
        .wait()
        .unwrap();
    // The process dies: nothing is said, nothing is tidied up.
    drop(handle);
    thread.join().unwrap();

    let (handle, again, orders, _) = start(dir.path());
    assert_eq!((again.records, again.snapshot), (3, false));
    handle.read(|state| assert_eq!(state.job(no).unwrap().state, JobState::Running));
    let back = handle.register_node(arrival("a")).wait().unwrap();
    assert_eq!((back.node, back.keep), (node, vec![(no, 1)]));
    assert!(back.commands.is_empty(), "it runs already: {:?}", back.commands);
    handle.task_ended(no, 1, node, TaskEnd::default()).wait().unwrap();
    handle.read(|state| assert_eq!(state.job(no).unwrap().state, JobState::Ended(End::Completed)));
    assert!(orders.try_recv().is_err());
}

#[test]
fn a_shutdown_keeps_a_snapshot_and_the_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _, _, thread) = start(dir.path());
    for expected in 1..=120 {
        assert_eq!(handle.submit("ann", job(1)).wait(), Ok(expected));
    }
    handle.shut_down().wait().unwrap();
    thread.join().unwrap();
    assert_eq!(handle.submit("ann", job(1)).wait(), Err(Refusal::ShuttingDown));
    drop(handle);
    let (handle, again, _, _) = start(dir.path());
    assert_eq!((again.records, again.snapshot), (0, true));
    assert_eq!(handle.submit("ann", job(1)).wait(), Ok(121));
    handle.read(|state| state.check().unwrap());
}

#[test]
fn requests_that_make_no_sense_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, ..) = start(dir.path());
    let refused = |result: Result<u64, Refusal>| result.unwrap_err().to_string();
    assert!(refused(handle.submit("ann", JobRequest::default()).wait()).starts_with("command: "));
    assert!(refused(handle.submit("ann", job(0)).wait()).starts_with("gpus: "));
    handle.register_node(arrival("a")).wait().unwrap();
    assert_eq!(
        refused(handle.submit("ann", job(5)).wait()),
        "gpus: asks for 5 GPUs, but the cluster has only 4 that it could use; ask for fewer, for another gpu_type, or for \
         less CPU and memory"
    );
    assert!(matches!(
        handle.cancel(9, Actor::user("ann")).wait(),
        Err(Refusal::NotFound(_))
    ));
    let policy = OperatorAction::Policy(PolicyText {
        policy: "srft".to_owned(),
        ..PolicyText::default()
    });
    let error = handle
        .operate(policy, Actor::user("ann"))
        .wait()
        .unwrap_err()
        .to_string();
    assert!(error.contains("srft") && error.contains("srtf"), "{error}");
    let policy = OperatorAction::Policy(PolicyText {
        parts: [("tenancy".to_owned(), "quota:a=2".to_owned())].into(),
        ..PolicyText::default()
    });
    let error = handle
        .operate(policy, Actor::user("ann"))
        .wait()
        .unwrap_err()
        .to_string();
    assert!(error.contains("tenancy \"quota:a=2\""), "{error}");
}

#[test]
fn an_array_runs_so_many_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _, orders, _) = start(dir.path());
    let node = handle.register_node(arrival("a")).wait().unwrap().node;
    let (first, last) = handle
        .submit_array("ann", job(1), (1..=5).collect(), Some(2), None)
        .wait()
        .unwrap();
    assert_eq!((first, last), (1, 5));
    let mut ended = Vec::new();
    while ended.len() < 5 {
        let (_, order) = orders.recv().unwrap();
        let RuntimeCommand::Start(task) = order else {
            panic!("{order:?}")
        };
        let up = handle.read(|state| state.jobs().filter(|j| j.state.holds_gpus()).count());
        assert!(up <= 2, "{up} at once");
        assert_eq!(task.request.array.unwrap().index as u64, task.job);
        handle
            .task_started(task.job, 1, node, String::new(), Vec::new())
            .wait()
            .unwrap();
        handle
            .task_ended(task.job, 1, node, TaskEnd::default())
            .wait()
            .unwrap();
        ended.push(task.job);
    }
    assert_eq!(ended, [1, 2, 3, 4, 5]);
}
