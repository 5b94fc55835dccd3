//! Trainers that use the Python package, under real agents.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it skips"
)]

mod common;

use std::path::Path;

use common::agent::Agent;
use common::scheduler::Scheduler;
use common::{key, peer, script, until};
use dovetail_proto::v1::from_agent::What as Said;
use dovetail_proto::v1::to_agent::What;
use dovetail_proto::v1::{Processes, StartTask, StopAt};

/// In each step all ranks wait for each other, as in a collective operation: by counting files.
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
        println!("SKIPPED: there is no python3");
    }
    found
}

fn trainer(place: &Path) -> StartTask {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
    let steps = place.join("steps");
    std::fs::create_dir_all(&steps).unwrap();
    let mut order = script(1, "");
    order.command = vec![
        "python3".into(),
        "-c".into(),
        TRAINER.into(),
        steps.display().to_string(),
    ];
    order.env = [("PYTHONPATH".to_owned(), package.to_owned())].into();
    order.checkpoint_dir = place.join("saved").display().to_string();
    order.processes = Processes::PerGpu.into();
    order.grace_ms = 60_000;
    order
}

fn saved(place: &Path, rank: u32) -> u64 {
    let text = std::fs::read_to_string(place.join("saved").join(format!("rank-{rank}"))).unwrap();
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_on_one_node_stop_together_without_the_scheduler() {
    if !has_python() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    let mut order = trainer(place.path());
    order.gpus = vec![0, 1];
    order.peers = vec![peer("n1", &[0, 1])];
    order.resume_step = 40;
    scheduler.order("n1", order);
    progress(&scheduler, "n1").await;
    scheduler.stop("n1", key(1, 1), false);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!((end.exit_code, end.was_stopped), (75, true), "{}", end.last_words);
    assert!(end.checkpoint_step > 40);
    assert_eq!(saved(place.path(), 0), end.checkpoint_step);
    assert_eq!(saved(place.path(), 1), end.checkpoint_step);
}

/// Waits until a trainer has said that it gets on.
async fn progress(scheduler: &Scheduler, node: &str) {
    let find = |said: &Said| match said {
        Said::Progress(p) if p.step > 0 && p.step_time_us > 0 => Some(()),
        _ => None,
    };
    scheduler.said(node, "progress", find).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_on_two_nodes_stop_after_the_same_step_also_when_an_agent_is_killed_meanwhile() {
    if !has_python() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::start().await;
    let _first = Agent::start(&scheduler, "n1").await;
    let mut second = Agent::start(&scheduler, "n2").await;
    for (rank, node) in ["n1", "n2"].iter().enumerate() {
        let mut order = trainer(place.path());
        order.gpus = vec![0];
        order.node_rank = rank as u32;
        order.first_rank = rank as u32;
        order.peers = vec![peer("n1", &[0]), peer("n2", &[0])];
        scheduler.order(node, order);
    }
    progress(&scheduler, "n1").await;
    progress(&scheduler, "n2").await;
    // One is told, and waits; the agent of the other is killed before it hears of it.
    scheduler.stop("n1", key(1, 1), false);
    at_step(&scheduler, "n1").await;
    second.kill();
    second.start_again();
    scheduler.hello("n2", 2).await;
    scheduler.stop("n2", key(1, 1), false);
    at_step(&scheduler, "n2").await;
    let step = at_step(&scheduler, "n1")
        .await
        .max(at_step(&scheduler, "n2").await);
    for node in ["n1", "n2"] {
        let task = Some(key(1, 1));
        scheduler.send(node, What::StopAt(StopAt { task, step }));
    }
    for node in ["n1", "n2"] {
        let end = scheduler.ended(node, key(1, 1)).await;
        assert_eq!(
            (end.exit_code, end.was_stopped, end.checkpoint_step),
            (75, true, step),
            "{}",
            end.last_words
        );
    }
    assert_eq!((saved(place.path(), 0), saved(place.path(), 1)), (step, step));
}

async fn at_step(scheduler: &Scheduler, node: &str) -> u64 {
    let find = |said: &Said| match said {
        Said::AtStep(at) => Some((at.step, at.world)),
        _ => None,
    };
    let (step, world) = scheduler.said(node, "a step", find).await;
    assert_eq!(world, 2);
    step
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trainer_that_does_not_answer_gets_the_signal_after_half_the_grace() {
    if !has_python() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    // The other rank of this gang never comes, so there is no agreement.
    let mut order = trainer(place.path());
    order.gpus = vec![0];
    order.peers = vec![peer("n1", &[0]), peer("n2", &[0])];
    order.grace_ms = 2000;
    scheduler.order("n1", order);
    until("the first step", || {
        place.path().join("steps/1.0").exists().then_some(())
    })
    .await;
    scheduler.stop("n1", key(1, 1), false);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped, end.checkpoint_step), (15, true, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_on_the_socket_is_sent_away() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let scheduler = Scheduler::start().await;
    let agent = Agent::start(&scheduler, "n1").await;
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
