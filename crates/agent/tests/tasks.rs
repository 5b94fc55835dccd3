//! Tasks as real processes: they start, complete, fail and stop.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::agent::Agent;
use common::server::TestServer;
use common::{key, peer, script, until};
use dovetail_proto::v1::server_message::Body;
use dovetail_proto::v1::{Processes, ResizeTask};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_task_is_reported_with_exit_code_signal_and_log_tail() {
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let hello = server.hello("n1", 1).await;
    let hardware = hello.hardware.unwrap();
    assert_eq!(hardware.gpus.len(), 4);
    assert!(hardware.cpu_milli >= 1000 && hardware.memory_mib > 0 && !hardware.numa.is_empty());
    assert_ne!(hello.identity, 0);

    let good = server.run("n1", script(1, "echo fine")).await;
    server.started("n1", key(1, 1)).await;
    assert_eq!(
        (good.exit_code, good.signal, good.log_tail.as_str()),
        (0, 0, "fine\n")
    );
    assert!(!good.was_stopped && good.platform_error.is_empty());

    let bad = server.run("n1", script(2, "echo oh >&2; exit 7")).await;
    assert_eq!((bad.exit_code, bad.log_tail.as_str()), (7, "oh\n"));
    let killed = server.run("n1", script(3, "kill -9 $$")).await;
    assert_eq!((killed.exit_code, killed.signal), (0, 9));

    let mut missing = script(4, "");
    missing.command = vec!["/no/such/program".into()];
    let missing = server.run("n1", missing).await;
    assert_eq!(missing.exit_code, 127);
    assert!(
        missing.log_tail.contains("cannot run `/no/such/program`"),
        "{}",
        missing.log_tail
    );

    let mut nowhere = script(5, "true");
    nowhere.workdir = "/no/such/folder".into();
    let nowhere = server.run("n1", nowhere).await;
    assert_eq!(nowhere.exit_code, 126);
    assert!(nowhere.log_tail.contains("cannot enter /no/such/folder"));

    let mut too_many = script(6, "true");
    too_many.gpus = vec![4];
    let too_many = server.run("n1", too_many).await;
    assert_eq!(
        too_many.platform_error,
        "GPU slot 4 does not exist: GPU slots on this node: 4"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_of_a_gang_gets_its_ranks_and_gpus() {
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let text = "echo $RANK/$WORLD_SIZE local=$LOCAL_RANK node=$NODE_RANK master=$MASTER_ADDR:$MASTER_PORT \
                gpus=$CUDA_VISIBLE_DEVICES blox=$local_gpu_id pai=$PAI_TASK_INDEX path=${PATH:+yes} token=$DOVETAIL_JOIN_TOKEN.";
    let mut command = script(1, text);
    command.processes = Processes::PerGpu.into();
    command.gpus = vec![2, 3];
    command.node_rank = 1;
    command.first_rank = 1;
    command.peers = vec![peer("n0", &[0]), peer("n1", &[2, 3])];
    let end = server.run("n1", command).await;
    let mut lines: Vec<&str> = end.log_tail.lines().collect();
    lines.sort_unstable();
    let both = "node=1 master=127.0.0.1:29500 gpus=GPU-virtual-n1-2,GPU-virtual-n1-3";
    assert_eq!(
        lines,
        [
            format!("1/3 local=0 {both} blox=2 pai=1 path=yes token=."),
            format!("2/3 local=1 {both} blox=3 pai=1 path=yes token=."),
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_rank_ends_the_others() {
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let mut command = script(1, "if [ $RANK = 1 ]; then exit 3; fi; sleep 600");
    command.processes = Processes::PerGpu.into();
    command.gpus = vec![0, 1];
    command.peers = vec![peer("n1", &[0, 1])];
    let end = server.run("n1", command).await;
    assert_eq!((end.exit_code, end.signal, end.was_stopped), (3, 0, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_notice_is_written_before_the_signal() {
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let text = "trap 'cat $DOVETAIL_STOP_FILE; exit 0' TERM; echo ready; while true; do sleep 0.05; done";
    server.start_task("n1", script(1, text));
    server.started("n1", key(1, 1)).await;
    ready(&server, 1).await;
    server.stop("n1", key(1, 1), false);
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!((end.exit_code, end.signal, end.was_stopped), (0, 0, true));
    assert!(end.log_tail.ends_with("preempted\n"), "{}", end.log_tail);
}

/// Waits until a task has printed something.
async fn ready(server: &TestServer, job: u64) {
    let command = dovetail_proto::v1::ReadLog {
        request: 1000 + job,
        task: Some(key(job, 1)),
        follow: true,
        max_bytes: 1,
        ..Default::default()
    };
    server.log("n1", command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_ignores_the_signal_is_killed_with_all_its_descendants() {
    let server = TestServer::start().await;
    let agent = Agent::start(&server, "n1").await;
    // A child in its own session, which signals to the process group do not reach.
    let text = "trap '' TERM; setsid sleep 600 & echo $!; echo $! > pid; wait; while true; do sleep 1; done";
    let mut command = script(1, text);
    command.grace_ms = 200;
    command.workdir = agent.folder.display().to_string();
    server.start_task("n1", command);
    ready(&server, 1).await;
    server.stop("n1", key(1, 1), false);
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped), (9, true));
    let pid = std::fs::read_to_string(agent.folder.join("pid")).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_has_no_grace_period_and_a_stop_of_an_unknown_task_is_answered() {
    let server = TestServer::start().await;
    server.behavior().copies = 2;
    let _agent = Agent::start(&server, "n1").await;
    server.start_task("n1", script(1, "trap '' TERM; while true; do sleep 1; done"));
    server.started("n1", key(1, 1)).await;
    server.stop("n1", key(1, 1), true);
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped), (9, true));

    // A task that is stopped before its start command arrives is not started.
    server.stop("n1", key(2, 5), false);
    assert!(server.ended("n1", key(2, 5)).await.was_stopped);
    let mut late = script(2, "echo too late");
    late.task = Some(key(2, 5));
    server.start_task("n1", late);
    until("the answer", || {
        let answers = server.count(|message| {
            matches!(message, dovetail_proto::v1::agent_message::Body::TaskEnded(e)
                if e.task == Some(key(2, 5)) && e.platform_error.contains("too old"))
        });
        (answers > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_processes_runs_until_it_is_stopped() {
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let mut command = script(1, "echo only on the first node");
    command.processes = Processes::FirstNode.into();
    command.node_rank = 1;
    command.peers = vec![peer("n0", &[0]), peer("n1", &[0])];
    server.start_task("n1", command);
    server.started("n1", key(1, 1)).await;
    server.stop("n1", key(1, 1), false);
    let end = server.ended("n1", key(1, 1)).await;
    assert!(end.was_stopped && end.log_tail.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_bound_to_its_cpus_and_can_be_resized() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        println!("SKIPPED: needs at least two CPUs");
        return;
    }
    let server = TestServer::start().await;
    let agent = Agent::start(&server, "n1").await;
    let hello = server.hello("n1", 1).await;
    let limits = hello.hardware.unwrap().labels["dovetail.limits"].clone();
    if limits != "affinity" {
        println!("SKIPPED: with cgroups, a task sees all CPUs");
        return;
    }
    let mut command = script(1, "nproc; while [ ! -e more ]; do sleep 0.05; done; nproc");
    command.cpu_milli = 1000;
    command.workdir = agent.folder.display().to_string();
    server.start_task("n1", command);
    ready(&server, 1).await;
    let resize = ResizeTask {
        task: Some(key(1, 1)),
        cpu_milli: 2000,
        memory_mib: 0,
    };
    server.send("n1", Body::ResizeTask(resize));
    // Commands are carried out in order: when this one is answered, the other is done.
    server.run("n1", script(2, "true")).await;
    std::fs::write(agent.folder.join("more"), "").unwrap();
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!(end.log_tail, "1\n2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_runs_as_its_user() {
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can run tasks as another user");
        return;
    }
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let mut command = script(
        1,
        "id -un; echo $USER; echo 4 > $DOVETAIL_REPORT_DIR/checkpoint.0",
    );
    command.user = "nobody".into();
    let end = server.run("n1", command).await;
    assert_eq!(
        (end.log_tail.as_str(), end.checkpoint_step),
        ("nobody\nnobody\n", 4)
    );
    let mut command = script(2, "true");
    command.user = "no-such-user".into();
    let end = server.run("n1", command).await;
    assert_eq!(end.platform_error, "unknown user `no-such-user` on this node");
}
