//! The driver with a real journal: acknowledged requests survive a crash, and commands are sent when facts are durable.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use dovetail_cluster::state::{End, JobState};
use dovetail_cluster::{
    Actor, Capabilities, Driver, DriverConfig, Handle, JobRequest, NodeCommand, NodeRegistration, NotFound,
    OperatorAction, PastJobs, PolicyText, Recovery, Refusal, Runtime, RuntimeCommand, TaskEnd,
};
use dovetail_engine::Clock;
use dovetail_model::NodeSpec;

struct CommandSink(Sender<NodeCommand>);

impl Runtime for CommandSink {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn execute(&mut self, commands: &mut dyn Iterator<Item = NodeCommand>) {
        commands.for_each(|command| drop(self.0.send(command)));
    }
}

fn start(
    dir: &Path,
) -> (
    Handle,
    Recovery,
    Receiver<NodeCommand>,
    std::thread::JoinHandle<()>,
) {
    let config = DriverConfig {
        dir: dir.to_owned(),
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 50,
        runtime: dovetail_cluster::Capabilities::ALL,
    };
    let (driver, handle, recovery) = Driver::open(&config).unwrap();
    let (sender, commands) = channel();
    (handle, recovery, commands, driver.spawn(CommandSink(sender)))
}

fn registration(name: &str) -> NodeRegistration {
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
fn a_running_job_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, first, commands, thread) = start(dir.path());
    assert_eq!((first.records, first.snapshot), (0, false));
    let node = handle.register_node(registration("a")).wait().unwrap().node;
    let id = handle.submit("ann", job(2)).wait().unwrap();
    let (to, command) = commands.recv().unwrap();
    assert_eq!(to, node);
    let RuntimeCommand::Start(task) = command else {
        panic!("{command:?}")
    };
    assert_eq!((task.job, task.attempt, task.share.gpus.count()), (id, 1, 2));
    handle
        .task_started(id, 1, node, String::new(), Vec::new())
        .wait()
        .unwrap();
    // A crash: the driver ends without a shutdown.
    drop(handle);
    thread.join().unwrap();

    let (handle, again, commands, _) = start(dir.path());
    // Four facts, the beginning of the journal, and the decision to launch.
    assert_eq!((again.records, again.snapshot), (6, false));
    handle.read(|state| assert_eq!(state.job(id).unwrap().state, JobState::Running));
    let registered = handle.register_node(registration("a")).wait().unwrap();
    assert_eq!((registered.node, registered.keep), (node, vec![(id, 1)]));
    assert!(
        registered.commands.is_empty(),
        "it runs already: {:?}",
        registered.commands
    );
    handle.task_ended(id, 1, node, TaskEnd::default()).wait().unwrap();
    handle.read(|state| assert_eq!(state.job(id).unwrap().state, JobState::Ended(End::Completed)));
    assert!(commands.try_recv().is_err());
}

#[test]
fn a_shutdown_writes_a_snapshot_and_numbers_continue() {
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
fn invalid_requests_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, ..) = start(dir.path());
    let refused = |result: Result<u64, Refusal>| result.unwrap_err().to_string();
    assert!(refused(handle.submit("ann", JobRequest::default()).wait()).starts_with("command: "));
    assert!(refused(handle.submit("ann", job(0)).wait()).starts_with("gpus: "));
    handle.register_node(registration("a")).wait().unwrap();
    assert_eq!(
        refused(handle.submit("ann", job(5)).wait()),
        "gpus: asks for 5 GPUs, but the cluster has only 4 that it could use; ask for fewer, for another gpu_type, or for \
         less CPU and memory"
    );
    assert!(matches!(
        handle.cancel(9, Actor::user("ann")).wait(),
        Err(Refusal::NotFound(NotFound::Job(9)))
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
fn the_limit_of_an_array_is_respected() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _, commands, _) = start(dir.path());
    let node = handle.register_node(registration("a")).wait().unwrap().node;
    let (first, last) = handle
        .submit_array(
            "ann",
            job(1),
            ((1..=5).collect(), Some(2)),
            None,
            PastJobs::default(),
        )
        .wait()
        .unwrap();
    assert_eq!((first, last), (1, 5));
    let mut ended = Vec::new();
    while ended.len() < 5 {
        let (_, command) = commands.recv().unwrap();
        let RuntimeCommand::Start(task) = command else {
            panic!("{command:?}")
        };
        let active = handle.read(|state| state.jobs().filter(|j| j.state.holds_gpus()).count());
        assert!(active <= 2, "{active} at once");
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
