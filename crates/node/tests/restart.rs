//! Nothing is lost when an agent is killed, a connection breaks, or a message comes twice; nothing runs that must not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::agent::Agent;
use common::scheduler::Scheduler;
use common::{key, script, until};
use dovetail_proto::v1::from_agent::What as Said;

/// A task that says when it runs and ends when a file is there.
fn patient(agent: &Agent, job: u64) -> dovetail_proto::v1::StartTask {
    let text = "echo $$ > pid.$DOVETAIL_JOB_ID; while [ ! -e go ]; do sleep 0.02; done; echo over; exit 5";
    let mut order = script(job, text);
    order.workdir = agent.folder.display().to_string();
    order
}

fn go(agent: &Agent) {
    std::fs::write(agent.folder.join("go"), "").unwrap();
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|s| !s.contains(") Z "))
}

async fn pid(agent: &Agent, job: u64) -> String {
    let path = agent.folder.join(format!("pid.{job}"));
    until("a pid", || {
        std::fs::read_to_string(&path).ok().filter(|p| p.ends_with('\n'))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_takes_its_tasks_up_again_and_learns_their_exit_codes() {
    let scheduler = Scheduler::start().await;
    let mut agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", patient(&agent, 1));
    scheduler.started("n1", key(1, 1)).await;
    let before = pid(&agent, 1).await;
    let identity = scheduler.hello("n1", 1).await.identity;
    agent.kill();
    assert!(lives(&before));
    agent.start_again();
    let hello = scheduler.hello("n1", 2).await;
    assert_eq!(
        (hello.running.as_slice(), hello.identity),
        (&[key(1, 1)][..], identity)
    );
    go(&agent);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!(
        (end.exit_code, end.last_words.as_str(), end.was_stopped),
        (5, "over\n", false)
    );
    assert_eq!(pid(&agent, 1).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_while_there_is_no_agent_is_told_by_the_next_one() {
    let scheduler = Scheduler::start().await;
    let mut agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", patient(&agent, 1));
    let pid = pid(&agent, 1).await;
    scheduler.started("n1", key(1, 1)).await;
    agent.kill();
    go(&agent);
    until("the end of the task", || (!lives(&pid)).then_some(())).await;
    until("the record of it", || {
        agent.task("1-1").join("exit.json").exists().then_some(())
    })
    .await;
    agent.start_again();
    assert!(scheduler.hello("n1", 2).await.running.is_empty());
    assert_eq!(scheduler.ended("n1", key(1, 1)).await.exit_code, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_can_be_stopped_by_an_agent_that_did_not_start_it() {
    let scheduler = Scheduler::start().await;
    let mut agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", patient(&agent, 1));
    scheduler.started("n1", key(1, 1)).await;
    agent.kill();
    agent.start_again();
    scheduler.hello("n1", 2).await;
    scheduler.stop("n1", key(1, 1), false);
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert!(end.was_stopped);
    assert_eq!(end.signal, 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_are_killed_again_and_again_lose_nothing() {
    let scheduler = Scheduler::start().await;
    let mut agent = Agent::start(&scheduler, "n1").await;
    let jobs = 1..=20;
    let mut orders = Vec::new();
    for job in jobs.clone() {
        let mut order = script(
            job,
            "echo $$ >> ran.$DOVETAIL_JOB_ID; exit $((DOVETAIL_JOB_ID % 3))",
        );
        order.workdir = agent.folder.display().to_string();
        scheduler.order("n1", order.clone());
        orders.push(order);
        if job % 3 == 0 {
            // At another moment of the start each time.
            tokio::time::sleep(std::time::Duration::from_millis(job)).await;
            agent.kill();
            agent.start_again();
            scheduler.hello("n1", 1 + job as usize / 3).await;
            // As a scheduler does that has had no answer.
            for order in &orders {
                scheduler.order("n1", order.clone());
            }
        }
    }
    for job in jobs {
        let end = scheduler.ended("n1", key(job, 1)).await;
        let ran = std::fs::read_to_string(agent.folder.join(format!("ran.{job}"))).unwrap_or_default();
        assert!(ran.lines().count() <= 1, "job {job} ran twice: {ran}");
        if end.platform_error.is_empty() {
            assert_eq!(
                (end.exit_code, ran.lines().count()),
                (job as i32 % 3, 1),
                "job {job}"
            );
        } else {
            // The order was with the agent when it was killed, and nothing was started.
            assert!(ran.is_empty(), "job {job}: {} but {ran}", end.platform_error);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_is_told_until_it_is_acknowledged() {
    let scheduler = Scheduler::start().await;
    let mut agent = Agent::start(&scheduler, "n1").await;
    scheduler.manners().acks_facts = false;
    scheduler.run("n1", script(1, "exit 4")).await;
    let ends = || scheduler.count(|said| matches!(said, Said::Ended(end) if end.exit_code == 4));
    // Lost on the way: told again after a while, on the next connection, and by the next agent.
    until("the second time", || (ends() >= 2).then_some(())).await;
    assert_eq!(scheduler.heard().hellos.len(), 1);
    scheduler.drop_link("n1");
    scheduler.hello("n1", 2).await;
    agent.kill();
    agent.start_again();
    let before = ends();
    scheduler.hello("n1", 3).await;
    until("another time", || (ends() > before).then_some(())).await;
    scheduler.manners().acks_facts = true;
    scheduler.drop_link("n1");
    until("the record of it", || {
        agent.task("1-1").join("told").exists().then_some(())
    })
    .await;
    let told = ends();
    let hellos = scheduler.heard().hellos.len();
    scheduler.drop_link("n1");
    scheduler.hello("n1", hellos + 1).await;
    scheduler.run("n1", script(2, "true")).await;
    assert_eq!(ends(), told);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_comes_twice_is_followed_once_and_an_old_one_never() {
    let scheduler = Scheduler::start().await;
    scheduler.manners().copies = 3;
    let mut agent = Agent::start(&scheduler, "n1").await;
    let mut order = script(1, "echo x >> count");
    order.workdir = agent.folder.display().to_string();
    order.task = Some(key(1, 7));
    scheduler.run("n1", order.clone()).await;
    let count = || std::fs::read_to_string(agent.folder.join("count")).unwrap();
    assert_eq!(count(), "x\n");
    let mut old = order.clone();
    old.task = Some(key(1, 6));
    let end = scheduler.run("n1", old.clone()).await;
    assert!(end.platform_error.contains("too old"), "{}", end.platform_error);
    // Also after a restart, and when nothing is left of the task.
    agent.kill();
    std::fs::remove_dir_all(agent.task("1-7")).unwrap();
    agent.start_again();
    scheduler.hello("n1", 2).await;
    scheduler.order("n1", order.clone());
    old.task = Some(key(1, 5));
    assert!(scheduler.run("n1", old).await.platform_error.contains("too old"));
    order.task = Some(key(1, 8));
    scheduler.run("n1", order).await;
    let count = std::fs::read_to_string(agent.folder.join("count")).unwrap();
    assert_eq!(count, "x\nx\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_scheduler_does_not_keep_is_ended() {
    let scheduler = Scheduler::start().await;
    let agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", patient(&agent, 1));
    scheduler.order("n1", patient(&agent, 2));
    scheduler.started("n1", key(1, 1)).await;
    scheduler.started("n1", key(2, 1)).await;
    scheduler.manners().unwanted = vec![key(1, 1)];
    scheduler.drop_link("n1");
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped), (9, true));
    assert!(lives(&pid(&agent, 2).await));
    go(&agent);
    assert_eq!(scheduler.ended("n1", key(2, 1)).await.exit_code, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_word_for_a_lease_tasks_end_also_without_an_agent() {
    let scheduler = Scheduler::start().await;
    scheduler.manners().lease_ms = 1500;
    let mut agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", patient(&agent, 1));
    scheduler.started("n1", key(1, 1)).await;
    // A scheduler that is there, but answers nothing and takes nobody in.
    scheduler.manners().acks_beats = false;
    scheduler.manners().refusal = Some(dovetail_proto::v1::Refused {
        why: "busy".into(),
        for_good: false,
    });
    let first = pid(&agent, 1).await;
    until("the end of the task", || (!lives(&first)).then_some(())).await;
    let hellos = scheduler.heard().hellos.len();
    scheduler.manners().acks_beats = true;
    scheduler.manners().refusal = None;
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert!(
        end.platform_error.contains("no word from the scheduler"),
        "{}",
        end.platform_error
    );
    scheduler.hello("n1", hellos + 1).await;
    scheduler.order("n1", patient(&agent, 2));
    scheduler.started("n1", key(2, 1)).await;
    let pid = pid(&agent, 2).await;
    agent.kill();
    until("the end of the task", || (!lives(&pid)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_renewed_lets_a_task_live() {
    let scheduler = Scheduler::start().await;
    scheduler.manners().lease_ms = 1500;
    let agent = Agent::start(&scheduler, "n1").await;
    let mut order = script(1, "sleep 4; exit 5");
    order.workdir = agent.folder.display().to_string();
    let end = scheduler.run("n1", order).await;
    assert_eq!((end.exit_code, end.platform_error.as_str()), (5, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_shim_is_noticed_and_nothing_of_its_task_stays() {
    let scheduler = Scheduler::start().await;
    let agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", patient(&agent, 1));
    scheduler.started("n1", key(1, 1)).await;
    let pid = pid(&agent, 1).await;
    let shim: serde_json::Value =
        serde_json::from_slice(&std::fs::read(agent.task("1-1").join("shim.json")).unwrap()).unwrap();
    let shim = i32::try_from(shim["pid"].as_i64().unwrap()).unwrap();
    assert!(shim > 1);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(shim),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let end = scheduler.ended("n1", key(1, 1)).await;
    assert!(end.platform_error.contains("is gone"), "{}", end.platform_error);
    assert!(!lives(&pid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_records_are_reported_and_the_agent_goes_on() {
    let scheduler = Scheduler::start().await;
    let mut agent = Agent::start(&scheduler, "n1").await;
    scheduler.order("n1", patient(&agent, 1));
    scheduler.started("n1", key(1, 1)).await;
    agent.kill();
    let spoil = |task: &str, file: &str, text: &[u8]| {
        std::fs::create_dir_all(agent.task(task)).unwrap();
        std::fs::write(agent.task(task).join(file), text).unwrap();
    };
    spoil("1-1", "spec.json", b"\xff\xfe{");
    spoil("1-1", "stop.json", b"[]");
    spoil("7-1", "spec.json", b"{}");
    spoil("8-1", "exit.json", b"{\"code\": \"five\"}");
    spoil("9-1", "nothing", b"");
    spoil("lost+found", "x", b"");
    std::fs::write(agent.folder.join("lease"), "\0\0\0").unwrap();
    std::fs::write(agent.folder.join("identity.json"), "").unwrap();
    agent.start_again();
    let hello = scheduler.hello("n1", 2).await;
    assert_eq!(hello.running, [key(1, 1)]);
    assert!(
        scheduler
            .ended("n1", key(7, 1))
            .await
            .platform_error
            .contains("never started")
    );
    let not_known = scheduler.ended("n1", key(8, 1)).await.platform_error;
    assert!(not_known.contains("exit.json: damaged"), "{not_known}");
    assert!(
        scheduler
            .ended("n1", key(9, 1))
            .await
            .platform_error
            .contains("never started")
    );
    go(&agent);
    assert_eq!(scheduler.ended("n1", key(1, 1)).await.exit_code, 5);
    assert_eq!(scheduler.run("n1", script(3, "exit 3")).await.exit_code, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_scheduler_is_dialled_again_and_a_refusal_for_good_ends_the_agent() {
    let scheduler = Scheduler::start().await;
    let agent = Agent::start(&scheduler, "n1").await;
    scheduler.manners().acks_beats = false;
    scheduler.hello("n1", 2).await;
    scheduler.manners().refusal = Some(dovetail_proto::v1::Refused {
        why: "another agent is called n1".into(),
        for_good: true,
    });
    let said = tokio::task::spawn_blocking(|| agent.last_words()).await.unwrap();
    assert!(
        said.contains("refused this node: another agent is called n1"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_of_tasks_that_ended_are_deleted_when_they_take_too_much_room() {
    let scheduler = Scheduler::start().await;
    let little = serde_json::json!({"keep_ended_bytes": 150_000});
    let mut agent = Agent::start_with(&scheduler, "n1", little);
    scheduler.hello("n1", 1).await;
    for job in 1..=3 {
        scheduler.run("n1", script(job, "head -c 100000 /dev/zero")).await;
        let told = agent.task(&format!("{job}-1")).join("told");
        until("the record of it", || told.exists().then_some(())).await;
    }
    // It looks when it starts.
    agent.kill();
    agent.start_again();
    until("the older ones to go", || {
        (!agent.task("2-1").exists() && !agent.task("1-1").exists()).then_some(())
    })
    .await;
    scheduler.hello("n1", 2).await;
    assert!(agent.task("3-1").exists());
    // What was deleted is not run again.
    let again = scheduler.run("n1", script(9, "true")).await;
    assert_eq!(again.exit_code, 0);
    scheduler.order("n1", script(1, "true"));
    let refusals =
        || scheduler.count(|said| matches!(said, Said::Ended(e) if e.platform_error.contains("too old")));
    until("the refusal", || (refusals() > 0).then_some(())).await;
}
