//! Tasks as real processes: they start, end, fail, and stop when they are told to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::agent::Agent;
use common::scheduler::Scheduler;
use common::{key, peer, script, until};
use dovetail_proto::v1::to_agent::What;
use dovetail_proto::v1::{Processes, ResizeTask};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_starts_ends_and_says_how() {
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    let hello = scheduler.hello("n1", 1).await;
    let hardware = hello.hardware.unwrap();
    assert_eq!(hardware.gpus.len(), 4);
    assert!(hardware.cpu_milli >= 1000 && hardware.memory_mib > 0 && !hardware.numa.is_empty());
    assert_ne!(hello.identity, 0);

    let good = scheduler.run("n1", script(1, "echo fine")).await;
    scheduler.started("n1", key(1, 1)).await;
    assert_eq!(
        (good.exit_code, good.signal, good.last_words.as_str()),
        (0, 0, "fine\n")
    );
    assert!(!good.was_stopped && good.platform_error.is_empty());

    let bad = scheduler.run("n1", script(2, "echo oh >&2; exit 7")).await;
    assert_eq!((bad.exit_code, bad.last_words.as_str()), (7, "oh\n"));
    let shot = scheduler.run("n1", script(3, "kill -9 $$")).await;
    assert_eq!((shot.exit_code, shot.signal), (0, 9));

    let mut missing = script(4, "");
    missing.command = vec!["/no/such/program".into()];
    let missing = scheduler.run("n1", missing).await;
    assert_eq!(missing.exit_code, 127);
    assert!(
        missing.last_words.contains("cannot run `/no/such/program`"),
        "{}",
        missing.last_words
    );

    let mut nowhere = script(5, "true");
    nowhere.workdir = "/no/such/folder".into();
    let nowhere = scheduler.run("n1", nowhere).await;
    assert_eq!(nowhere.exit_code, 126);
    assert!(nowhere.last_words.contains("cannot enter /no/such/folder"));

    let mut too_many = script(6, "true");
    too_many.gpus = vec![4];
    let too_many = scheduler.run("n1", too_many).await;
    assert_eq!(too_many.platform_error, "GPU slot 4 of 4 on this node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_of_a_gang_knows_its_place() {
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    let text = "echo $RANK/$WORLD_SIZE local=$LOCAL_RANK node=$NODE_RANK master=$MASTER_ADDR:$MASTER_PORT \
                gpus=$CUDA_VISIBLE_DEVICES blox=$local_gpu_id pai=$PAI_TASK_INDEX path=${PATH:+yes} token=$DOVETAIL_JOIN_TOKEN.";
    let mut order = script(1, text);
    order.processes = Processes::PerGpu.into();
    order.gpus = vec![2, 3];
    order.node_rank = 1;
    order.first_rank = 1;
    order.peers = vec![peer("n0", &[0]), peer("n1", &[2, 3])];
    let end = scheduler.run("n1", order).await;
    let mut lines: Vec<&str> = end.last_words.lines().collect();
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
async fn one_failed_rank_ends_the_others() {
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    let mut order = script(1, "if [ $RANK = 1 ]; then exit 3; fi; sleep 600");
    order.processes = Processes::PerGpu.into();
    order.gpus = vec![0, 1];
    order.peers = vec![peer("n1", &[0, 1])];
    let end = scheduler.run("n1", order).await;
    assert_eq!((end.exit_code, end.signal, end.was_stopped), (3, 0, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_comes_before_the_end() {
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    let text = "trap 'cat $DOVETAIL_STOP_FILE; exit 0' TERM; echo ready; while true; do sleep 0.05; done";
    scheduler.order("n1", script(1, text));
    scheduler.started("n1", key(1, 1)).await;
    ready(&scheduler, 1).await;
    scheduler.stop("n1", key(1, 1), false);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!((end.exit_code, end.signal, end.was_stopped), (0, 0, true));
    assert!(end.last_words.ends_with("preempted\n"), "{}", end.last_words);
}

/// Waits until a task has printed something.
async fn ready(scheduler: &Scheduler, job: u64) {
    let order = dovetail_proto::v1::ReadLog {
        request: 1000 + job,
        task: Some(key(job, 1)),
        follow: true,
        most_bytes: 1,
        ..Default::default()
    };
    scheduler.log("n1", order).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_heed_the_notice_is_killed_with_everything_he_started() {
    let scheduler = Scheduler::start().await;
    let agent = Agent::start(&scheduler, "n1").await;
    // A child in a session of its own, which no signal to the group reaches.
    let text = "trap '' TERM; setsid sleep 600 & echo $!; echo $! > pid; wait; while true; do sleep 1; done";
    let mut order = script(1, text);
    order.grace_ms = 200;
    order.workdir = agent.folder.display().to_string();
    scheduler.order("n1", order);
    ready(&scheduler, 1).await;
    scheduler.stop("n1", key(1, 1), false);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped), (9, true));
    let pid = std::fs::read_to_string(agent.folder.join("pid")).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_needs_no_notice_and_a_stop_of_something_unknown_is_answered() {
    let scheduler = Scheduler::start().await;
    scheduler.manners().copies = 2;
    let _agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", script(1, "trap '' TERM; while true; do sleep 1; done"));
    scheduler.started("n1", key(1, 1)).await;
    scheduler.stop("n1", key(1, 1), true);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped), (9, true));

    // Stopped before the order to start it came: then it is not started.
    scheduler.stop("n1", key(2, 5), false);
    assert!(scheduler.ended("n1", key(2, 5)).await.was_stopped);
    let mut late = script(2, "echo too late");
    late.task = Some(key(2, 5));
    scheduler.order("n1", late);
    until("the refusal", || {
        let refused = scheduler.count(|said| {
            matches!(said, dovetail_proto::v1::from_agent::What::Ended(e)
                if e.task == Some(key(2, 5)) && e.platform_error.contains("too old"))
        });
        (refused > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_processes_waits_for_the_first_one() {
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    let mut order = script(1, "echo only on the first node");
    order.processes = Processes::FirstNode.into();
    order.node_rank = 1;
    order.peers = vec![peer("n0", &[0]), peer("n1", &[0])];
    scheduler.order("n1", order);
    scheduler.started("n1", key(1, 1)).await;
    scheduler.stop("n1", key(1, 1), false);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert!(end.was_stopped && end.last_words.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_held_to_its_cpus_and_can_be_given_others() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        println!("SKIPPED: one CPU cannot be limited");
        return;
    }
    let scheduler = Scheduler::start().await;
    let agent = Agent::start(&scheduler, "n1").await;
    let hello = scheduler.hello("n1", 1).await;
    let limits = hello.hardware.unwrap().labels["dovetail.limits"].clone();
    if limits != "affinity" {
        println!("SKIPPED: this machine has cgroups, and a task that has one may show all CPUs");
        return;
    }
    let mut order = script(1, "nproc; while [ ! -e more ]; do sleep 0.05; done; nproc");
    order.cpu_milli = 1000;
    order.workdir = agent.folder.display().to_string();
    scheduler.order("n1", order);
    ready(&scheduler, 1).await;
    let resize = ResizeTask {
        task: Some(key(1, 1)),
        cpu_milli: 2000,
        memory_mib: 0,
    };
    scheduler.send("n1", What::Resize(resize));
    // Orders are followed one after the other: when this one is answered, the other is done.
    scheduler.run("n1", script(2, "true")).await;
    std::fs::write(agent.folder.join("more"), "").unwrap();
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!(end.last_words, "1\n2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_runs_as_its_user() {
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can run tasks as another user");
        return;
    }
    let scheduler = Scheduler::start().await;
    let _agent = Agent::start(&scheduler, "n1").await;
    let mut order = script(
        1,
        "id -un; echo $USER; echo 4 > $DOVETAIL_REPORT_DIR/checkpoint.0",
    );
    order.user = "nobody".into();
    let end = scheduler.run("n1", order).await;
    assert_eq!(
        (end.last_words.as_str(), end.checkpoint_step),
        ("nobody\nnobody\n", 4)
    );
    let mut order = script(2, "true");
    order.user = "no-such-user".into();
    let end = scheduler.run("n1", order).await;
    assert_eq!(end.platform_error, "there is no user `no-such-user` on this node");
}
