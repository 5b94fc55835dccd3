//! Trainers that use the Python package, with real agents.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and reports what it skips"
)]

mod common;

use std::path::Path;

use common::agent::Agent;
use common::server::TestServer;
use common::{key, peer, script, until};
use dovetail_proto::v1::agent_message::Body as AgentBody;
use dovetail_proto::v1::server_message::Body;
use dovetail_proto::v1::{Processes, StartTask, StopAfterStep};

/// A trainer whose ranks wait for each other in each step, as in a collective operation, by counting files.
const TRAINER: &str = r#"
import os, sys, time
import dovetail

place = sys.argv[1]
world = dovetail.world_size()

@dovetail.on_checkpoint
def save(step):
    with open(os.path.join(dovetail.checkpoint_dir(), "rank-%d" % dovetail.rank()), "w") as file:
        file.write(str(step))

step = dovetail.resume_step()
for batch in dovetail.iterate(range(10), total_steps=100000):
    step += 1
    open(os.path.join(place, "%d.%d" % (step, dovetail.rank())), "w").close()
    while not all(os.path.exists(os.path.join(place, "%d.%d" % (step, r))) for r in range(world)):
        time.sleep(0.001)
"#;

fn has_python() -> bool {
    let found = std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_ok();
    if !found {
        println!("SKIPPED: python3 is not installed");
    }
    found
}

fn trainer(place: &Path) -> StartTask {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
    let steps = place.join("steps");
    std::fs::create_dir_all(&steps).unwrap();
    let mut command = script(1, "");
    command.command = vec![
        "python3".into(),
        "-c".into(),
        TRAINER.into(),
        steps.display().to_string(),
    ];
    command.env = [("PYTHONPATH".to_owned(), package.to_owned())].into();
    command.checkpoint_dir = place.join("saved").display().to_string();
    command.processes = Processes::PerGpu.into();
    command.grace_ms = 60_000;
    command
}

fn saved(place: &Path, rank: u32) -> u64 {
    let text = std::fs::read_to_string(place.join("saved").join(format!("rank-{rank}"))).unwrap();
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_on_one_node_stop_after_the_same_step_without_the_server() {
    if !has_python() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let mut command = trainer(place.path());
    command.gpus = vec![0, 1];
    command.peers = vec![peer("n1", &[0, 1])];
    command.resume_step = 40;
    server.start_task("n1", command);
    progress(&server, "n1").await;
    server.stop("n1", key(1, 1), false);
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!((end.exit_code, end.was_stopped), (75, true), "{}", end.log_tail);
    assert!(end.checkpoint_step > 40);
    assert_eq!(saved(place.path(), 0), end.checkpoint_step);
    assert_eq!(saved(place.path(), 1), end.checkpoint_step);
}

/// Waits until a trainer has reported progress.
async fn progress(server: &TestServer, node: &str) {
    let find = |message: &AgentBody| match message {
        AgentBody::Progress(p) if p.step > 0 && p.step_time_us > 0 => Some(()),
        _ => None,
    };
    server.wait_for(node, "progress", find).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_on_two_nodes_stop_after_the_same_step_even_if_an_agent_is_killed() {
    if !has_python() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let _first = Agent::start(&server, "n1").await;
    let mut second = Agent::start(&server, "n2").await;
    for (rank, node) in ["n1", "n2"].iter().enumerate() {
        let mut command = trainer(place.path());
        command.gpus = vec![0];
        command.node_rank = rank as u32;
        command.first_rank = rank as u32;
        command.peers = vec![peer("n1", &[0]), peer("n2", &[0])];
        server.start_task(node, command);
    }
    progress(&server, "n1").await;
    // One rank is told to stop and waits; the agent of the other is killed before it receives the command.
    server.stop("n1", key(1, 1), false);
    at_step(&server, "n1").await;
    second.kill();
    second.restart();
    server.hello("n2", 2).await;
    server.stop("n2", key(1, 1), false);
    at_step(&server, "n2").await;
    let step = at_step(&server, "n1").await.max(at_step(&server, "n2").await);
    for node in ["n1", "n2"] {
        let task = Some(key(1, 1));
        server.send(node, Body::StopAfterStep(StopAfterStep { task, step }));
    }
    for node in ["n1", "n2"] {
        let end = server.ended(node, key(1, 1)).await;
        assert_eq!(
            (end.exit_code, end.was_stopped, end.checkpoint_step),
            (75, true, step),
            "{}",
            end.log_tail
        );
    }
    assert_eq!((saved(place.path(), 0), saved(place.path(), 1)), (step, step));
    let received = server.received();
    let is_progress = |body: &Option<AgentBody>| matches!(body, Some(AgentBody::Progress(_)));
    let mut of_second = received.all.iter().filter(|(node, _)| node == "n2");
    assert!(
        of_second.all(|(_, message)| !is_progress(&message.body)),
        "the first rank reports for all"
    );
}

async fn at_step(server: &TestServer, node: &str) -> u64 {
    let find = |message: &AgentBody| match message {
        AgentBody::StepReached(at) => Some((at.step, at.world_size)),
        _ => None,
    };
    let (step, world) = server.wait_for(node, "a step", find).await;
    assert_eq!(world, 2);
    step
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trainer_that_does_not_answer_gets_the_signal_after_half_the_grace() {
    if !has_python() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    // The other rank of this gang never starts, so there is no agreement.
    let mut command = trainer(place.path());
    command.gpus = vec![0];
    command.peers = vec![peer("n1", &[0]), peer("n2", &[0])];
    command.grace_ms = 2000;
    server.start_task("n1", command);
    until("the first step", || {
        place.path().join("steps/1.0").exists().then_some(())
    })
    .await;
    server.stop("n1", key(1, 1), false);
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped, end.checkpoint_step), (15, true, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_the_secret_is_closed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = TestServer::start().await;
    let agent = Agent::start(&server, "n1").await;
    for line in [
        "{\"hello\": {\"secret\": \"guessed\", \"rank\": 0, \"world\": 1}}\n",
        "rubbish\n",
    ] {
        let mut socket = tokio::net::UnixStream::connect(agent.folder.join("agent.sock"))
            .await
            .unwrap();
        socket.write_all(line.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
    }
}
