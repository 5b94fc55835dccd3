//! Nothing is lost when an agent is killed, a connection breaks or a message arrives twice, and no attempt runs that must
//! not run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::agent::Agent;
use common::server::TestServer;
use common::{key, script, until};
use dovetail_proto::v1::agent_message::Body as AgentBody;

/// Returns a task that writes its process ID and ends when [`release`] is called.
fn waiting_task(agent: &Agent, job: u64) -> dovetail_proto::v1::StartTask {
    let text = "echo $$ > pid.$DOVETAIL_JOB_ID; while [ ! -e go ]; do sleep 0.02; done; echo done; exit 5";
    let mut command = script(job, text);
    command.workdir = agent.folder.display().to_string();
    command
}

fn release(agent: &Agent) {
    std::fs::write(agent.folder.join("go"), "").unwrap();
}

fn is_alive(pid: &str) -> bool {
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
async fn a_killed_agent_adopts_its_tasks_again_and_learns_their_exit_codes() {
    let server = TestServer::start().await;
    let mut agent = Agent::start(&server, "n1").await;
    server.start_task("n1", waiting_task(&agent, 1));
    server.started("n1", key(1, 1)).await;
    let before = pid(&agent, 1).await;
    let identity = server.hello("n1", 1).await.identity;
    agent.kill();
    assert!(is_alive(&before));
    agent.restart();
    let hello = server.hello("n1", 2).await;
    assert_eq!(
        (hello.running.as_slice(), hello.identity),
        (&[key(1, 1)][..], identity)
    );
    release(&agent);
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!(
        (end.exit_code, end.log_tail.as_str(), end.was_stopped),
        (5, "done\n", false)
    );
    assert_eq!(pid(&agent, 1).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_while_no_agent_runs_is_reported_by_the_next_one() {
    let server = TestServer::start().await;
    let mut agent = Agent::start(&server, "n1").await;
    server.start_task("n1", waiting_task(&agent, 1));
    let pid = pid(&agent, 1).await;
    server.started("n1", key(1, 1)).await;
    agent.kill();
    release(&agent);
    until("the end of the task", || (!is_alive(&pid)).then_some(())).await;
    until("the record of it", || {
        agent.task("1-1").join("exit.json").exists().then_some(())
    })
    .await;
    agent.restart();
    assert!(server.hello("n1", 2).await.running.is_empty());
    assert_eq!(server.ended("n1", key(1, 1)).await.exit_code, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_can_be_stopped_by_an_agent_that_did_not_start_it() {
    let server = TestServer::start().await;
    let mut agent = Agent::start(&server, "n1").await;
    server.start_task("n1", waiting_task(&agent, 1));
    server.started("n1", key(1, 1)).await;
    agent.kill();
    agent.restart();
    server.hello("n1", 2).await;
    server.stop("n1", key(1, 1), false);
    let end = server.ended("n1", key(1, 1)).await;
    assert!(end.was_stopped);
    assert_eq!(end.signal, 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_killed_repeatedly_loses_nothing() {
    let server = TestServer::start().await;
    let mut agent = Agent::start(&server, "n1").await;
    let jobs = 1..=20;
    let mut commands = Vec::new();
    for job in jobs.clone() {
        let mut command = script(
            job,
            "echo $$ >> ran.$DOVETAIL_JOB_ID; exit $((DOVETAIL_JOB_ID % 3))",
        );
        command.workdir = agent.folder.display().to_string();
        server.start_task("n1", command.clone());
        commands.push(command);
        if job % 3 == 0 {
            // Each time at another moment of the start.
            tokio::time::sleep(std::time::Duration::from_millis(job)).await;
            agent.kill();
            agent.restart();
            server.hello("n1", 1 + job as usize / 3).await;
            // A server without an answer repeats its commands.
            for command in &commands {
                server.start_task("n1", command.clone());
            }
        }
    }
    for job in jobs {
        let end = server.ended("n1", key(job, 1)).await;
        let ran = std::fs::read_to_string(agent.folder.join(format!("ran.{job}"))).unwrap_or_default();
        assert!(ran.lines().count() <= 1, "job {job} ran twice: {ran}");
        if end.platform_error.is_empty() {
            assert_eq!(
                (end.exit_code, ran.lines().count()),
                (job as i32 % 3, 1),
                "job {job}"
            );
        } else {
            // The agent had received the command when it was killed, but had not started the task.
            assert!(ran.is_empty(), "job {job}: {} but {ran}", end.platform_error);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_is_resent_until_it_is_acknowledged() {
    let server = TestServer::start().await;
    let mut agent = Agent::start(&server, "n1").await;
    server.behavior().acks_facts = false;
    server.run("n1", script(1, "exit 4")).await;
    let ends = || server.count(|message| matches!(message, AgentBody::TaskEnded(end) if end.exit_code == 4));
    // Without an acknowledgement it is resent after a while, on the next connection, and by the next agent.
    until("the fact to be resent", || (ends() >= 2).then_some(())).await;
    assert_eq!(server.received().hellos.len(), 1);
    server.disconnect("n1");
    server.hello("n1", 2).await;
    agent.kill();
    agent.restart();
    let before = ends();
    server.hello("n1", 3).await;
    until("the fact from the next agent", || (ends() > before).then_some(())).await;
    server.behavior().acks_facts = true;
    server.disconnect("n1");
    until("the acknowledgement", || {
        agent.task("1-1").join("acknowledged").exists().then_some(())
    })
    .await;
    let sent = ends();
    let hellos = server.received().hellos.len();
    server.disconnect("n1");
    server.hello("n1", hellos + 1).await;
    server.run("n1", script(2, "true")).await;
    assert_eq!(ends(), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_command_is_carried_out_once_and_an_old_one_never() {
    let server = TestServer::start().await;
    server.behavior().copies = 3;
    let mut agent = Agent::start(&server, "n1").await;
    let mut command = script(1, "echo x >> count");
    command.workdir = agent.folder.display().to_string();
    command.task = Some(key(1, 7));
    server.run("n1", command.clone()).await;
    let count = || std::fs::read_to_string(agent.folder.join("count")).unwrap();
    assert_eq!(count(), "x\n");
    let mut old = command.clone();
    old.task = Some(key(1, 6));
    let end = server.run("n1", old.clone()).await;
    assert!(end.platform_error.contains("too old"), "{}", end.platform_error);
    // Also after a restart, and when the folder of the task has been deleted.
    agent.kill();
    std::fs::remove_dir_all(agent.task("1-7")).unwrap();
    agent.restart();
    server.hello("n1", 2).await;
    server.start_task("n1", command.clone());
    old.task = Some(key(1, 5));
    assert!(server.run("n1", old).await.platform_error.contains("too old"));
    command.task = Some(key(1, 8));
    server.run("n1", command).await;
    let count = std::fs::read_to_string(agent.folder.join("count")).unwrap();
    assert_eq!(count, "x\nx\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_the_server_does_not_keep_are_killed() {
    let server = TestServer::start().await;
    let agent = Agent::start(&server, "n1").await;
    server.start_task("n1", waiting_task(&agent, 1));
    server.start_task("n1", waiting_task(&agent, 2));
    server.started("n1", key(1, 1)).await;
    server.started("n1", key(2, 1)).await;
    server.behavior().not_kept = vec![key(1, 1)];
    server.disconnect("n1");
    let end = server.ended("n1", key(1, 1)).await;
    assert_eq!((end.signal, end.was_stopped), (9, true));
    assert!(is_alive(&pid(&agent, 2).await));
    release(&agent);
    assert_eq!(server.ended("n1", key(2, 1)).await.exit_code, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_end_when_their_lease_expires_even_without_an_agent() {
    let server = TestServer::start().await;
    server.behavior().lease_ms = 1500;
    let mut agent = Agent::start(&server, "n1").await;
    server.start_task("n1", waiting_task(&agent, 1));
    server.started("n1", key(1, 1)).await;
    // The server accepts connections but neither acknowledges heartbeats nor welcomes agents.
    server.behavior().acks_heartbeats = false;
    server.behavior().rejection = Some(dovetail_proto::v1::Rejection {
        reason: "busy".into(),
        permanent: false,
    });
    let first = pid(&agent, 1).await;
    until("the end of the task", || (!is_alive(&first)).then_some(())).await;
    let hellos = server.received().hellos.len();
    server.behavior().acks_heartbeats = true;
    server.behavior().rejection = None;
    let end = server.ended("n1", key(1, 1)).await;
    assert!(
        end.platform_error.contains("its lease expired"),
        "{}",
        end.platform_error
    );
    server.hello("n1", hellos + 1).await;
    server.start_task("n1", waiting_task(&agent, 2));
    server.started("n1", key(2, 1)).await;
    let pid = pid(&agent, 2).await;
    agent.kill();
    until("the end of the task", || (!is_alive(&pid)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_keeps_running_while_its_lease_is_renewed() {
    let server = TestServer::start().await;
    server.behavior().lease_ms = 1500;
    let agent = Agent::start(&server, "n1").await;
    let mut command = script(1, "sleep 4; exit 5");
    command.workdir = agent.folder.display().to_string();
    let end = server.run("n1", command).await;
    assert_eq!((end.exit_code, end.platform_error.as_str()), (5, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_shim_is_reported_and_its_processes_are_killed() {
    let server = TestServer::start().await;
    let agent = Agent::start(&server, "n1").await;
    server.start_task("n1", waiting_task(&agent, 1));
    server.started("n1", key(1, 1)).await;
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
    let end = server.ended("n1", key(1, 1)).await;
    assert!(
        end.platform_error.contains("was killed"),
        "{}",
        end.platform_error
    );
    assert!(!is_alive(&pid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_records_are_reported_and_other_tasks_continue() {
    let server = TestServer::start().await;
    let mut agent = Agent::start(&server, "n1").await;
    server.start_task("n1", waiting_task(&agent, 1));
    server.started("n1", key(1, 1)).await;
    // The process has read its record once it has written its ID.
    pid(&agent, 1).await;
    agent.kill();
    let damage = |task: &str, file: &str, text: &[u8]| {
        std::fs::create_dir_all(agent.task(task)).unwrap();
        std::fs::write(agent.task(task).join(file), text).unwrap();
    };
    damage("1-1", "spec.json", b"\xff\xfe{");
    damage("1-1", "stop.json", b"[]");
    damage("7-1", "spec.json", b"{}");
    damage("8-1", "exit.json", b"{\"code\": \"five\"}");
    damage("9-1", "nothing", b"");
    damage("lost+found", "x", b"");
    std::fs::write(agent.folder.join("lease"), "\0\0\0").unwrap();
    std::fs::write(agent.folder.join("identity.json"), "").unwrap();
    agent.restart();
    let hello = server.hello("n1", 2).await;
    assert_eq!(hello.running, [key(1, 1)]);
    assert!(
        server
            .ended("n1", key(7, 1))
            .await
            .platform_error
            .contains("before the task was started")
    );
    let unreadable = server.ended("n1", key(8, 1)).await.platform_error;
    assert!(unreadable.contains("exit.json: damaged"), "{unreadable}");
    assert!(
        server
            .ended("n1", key(9, 1))
            .await
            .platform_error
            .contains("before the task was started")
    );
    release(&agent);
    assert_eq!(server.ended("n1", key(1, 1)).await.exit_code, 5);
    assert_eq!(server.run("n1", script(3, "exit 3")).await.exit_code, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_connected_to_again_and_a_permanent_rejection_ends_the_agent() {
    let server = TestServer::start().await;
    let agent = Agent::start(&server, "n1").await;
    server.behavior().acks_heartbeats = false;
    server.hello("n1", 2).await;
    server.behavior().rejection = Some(dovetail_proto::v1::Rejection {
        reason: "another agent is called n1".into(),
        permanent: true,
    });
    let output = tokio::task::spawn_blocking(|| agent.wait_for_exit())
        .await
        .unwrap();
    assert!(
        output.contains("rejected this node: another agent is called n1"),
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_of_ended_tasks_are_deleted_when_they_take_too_much_space() {
    let server = TestServer::start().await;
    let little = serde_json::json!({"keep_ended_bytes": 150_000});
    let mut agent = Agent::start_with(&server, "n1", little);
    server.hello("n1", 1).await;
    for job in 1..=3 {
        server.run("n1", script(job, "head -c 100000 /dev/zero")).await;
        let acknowledged = agent.task(&format!("{job}-1")).join("acknowledged");
        until("the acknowledgement", || acknowledged.exists().then_some(())).await;
    }
    // The agent deletes old folders when it starts.
    agent.kill();
    agent.restart();
    until("the older folders to be deleted", || {
        (!agent.task("2-1").exists() && !agent.task("1-1").exists()).then_some(())
    })
    .await;
    server.hello("n1", 2).await;
    assert!(agent.task("3-1").exists());
    // An attempt whose folder was deleted is not started again.
    let again = server.run("n1", script(9, "true")).await;
    assert_eq!(again.exit_code, 0);
    server.start_task("n1", script(1, "true"));
    let rejections = || {
        server.count(
            |message| matches!(message, AgentBody::TaskEnded(e) if e.platform_error.contains("too old")),
        )
    };
    until("the answer", || (rejections() > 0).then_some(())).await;
}
