//! Logs are read from any offset, followed and rotated.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::agent::Agent;
use common::server::TestServer;
use common::{key, script, until};
use dovetail_proto::v1::ReadLog;
use dovetail_proto::v1::server_message::Body;

fn read(request: u64, job: u64, offset: i64) -> ReadLog {
    ReadLog {
        request,
        task: Some(key(job, 1)),
        offset,
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_read_from_any_offset_and_from_its_end() {
    let server = TestServer::start().await;
    let small = serde_json::json!({"log_segment_bytes": 1000});
    let _agent = Agent::start_with(&server, "n1", small);
    server.hello("n1", 1).await;
    server.run("n1", script(1, "seq 1 2000")).await;
    let all: String = (1..=2000).map(|i| format!("{i}\n")).collect();
    let (text, end, _) = server.log("n1", read(1, 1, 0)).await;
    assert_eq!((text.len(), end), (all.len(), all.len() as u64));
    assert_eq!(text, all);
    let (text, _, _) = server.log("n1", read(2, 1, -10)).await;
    assert_eq!(text, all[all.len() - 10..]);
    let mut some = read(3, 1, 5000);
    some.max_bytes = 3000;
    let (text, end, _) = server.log("n1", some).await;
    assert_eq!((text.as_str(), end), (&all[5000..8000], 8000));
    let (text, _, error) = server.log("n1", read(4, 99, 0)).await;
    assert!(
        text.is_empty() && error.contains("no log of this task"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_followed_until_the_task_ends() {
    let server = TestServer::start().await;
    let agent = Agent::start(&server, "n1").await;
    let text = "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two";
    let mut command = script(1, text);
    command.workdir = agent.folder.display().to_string();
    // Followed before the task has started.
    server.start_task("n1", command);
    let mut follow = read(1, 1, 0);
    follow.follow = true;
    server.send("n1", Body::ReadLog(follow));
    until("the first line", || (server.log_text(1) == "one\n").then_some(())).await;
    // A second reader that is cancelled ends without disturbing the first.
    let mut other = read(2, 1, 0);
    other.follow = true;
    server.send("n1", Body::ReadLog(other.clone()));
    until("the second reader", || {
        (server.log_text(2) == "one\n").then_some(())
    })
    .await;
    other.cancel = true;
    server.send("n1", Body::ReadLog(other));
    std::fs::write(agent.folder.join("go"), "").unwrap();
    until("the second line", || {
        (server.log_text(1) == "one\ntwo\n").then_some(())
    })
    .await;
    server.ended("n1", key(1, 1)).await;
    assert_eq!(server.log_text(2), "one\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_output_is_deleted_when_a_log_exceeds_its_limit() {
    let server = TestServer::start().await;
    let small = serde_json::json!({"log_segment_bytes": 100_000, "log_keep_bytes": 300_000});
    let agent = Agent::start_with(&server, "n1", small);
    server.hello("n1", 1).await;
    let end = server.run("n1", script(1, "seq 1 500000")).await;
    assert!(end.log_tail.ends_with("499999\n500000\n"));
    assert!(end.log_tail.len() <= 4096);
    let files = std::fs::read_dir(agent.task("1-1")).unwrap().flatten();
    let logs = files.filter(|f| f.file_name().to_string_lossy().starts_with("log."));
    let kept: u64 = logs.map(|f| f.metadata().unwrap().len()).sum();
    assert!(kept <= 300_000, "{kept}");
    // The deleted part is skipped, and the offset counts it.
    let (text, end, _) = server.log("n1", read(1, 1, 0)).await;
    assert_eq!((text.len() as u64, end), (kept, 3_388_895));
}
