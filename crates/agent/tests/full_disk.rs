//! On a full disk output is lost, and nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and reports what it skips"
)]

mod common;

use common::agent::Agent;
use common::script;
use common::server::TestServer;

/// Returns whether a process may mount a small disk of its own.
fn can_mount() -> bool {
    let mut command = std::process::Command::new("unshare");
    let tried = command
        .args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    tried.is_ok_and(|out| out.status.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_task_is_reported_when_its_log_has_filled_the_disk() {
    if !can_mount() {
        println!("SKIPPED: only root can mount a disk");
        return;
    }
    let server = TestServer::start().await;
    let small = serde_json::json!({"disk_kib": 1024});
    let _agent = Agent::start_with(&server, "n1", small);
    server.hello("n1", 1).await;
    let end = server.run("n1", script(1, "seq 1 1000000; exit 6")).await;
    assert_eq!((end.exit_code, end.platform_error.as_str()), (6, ""));
    let next = server.run("n1", script(2, "true")).await;
    assert!(
        next.platform_error.contains("No space left on device"),
        "{}",
        next.platform_error
    );
    // The agent still runs and repeats its answers.
    server.disconnect("n1");
    server.hello("n1", 2).await;
    server.start_task("n1", script(1, "seq 1 1000000; exit 6"));
    let old = server.run("n1", {
        let mut old = script(1, "true");
        old.task = Some(common::key(1, 0));
        old
    });
    assert!(old.await.platform_error.contains("too old"));
}
