//! A full disk loses words of a log, and nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it skips"
)]

mod common;

use common::agent::Agent;
use common::scheduler::Scheduler;
use common::script;

/// Whether a process of ours may have a small disk of its own.
fn can_mount() -> bool {
    let mut command = std::process::Command::new("unshare");
    let tried = command
        .args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    tried.is_ok_and(|out| out.status.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_task_ended_is_told_also_when_its_log_has_filled_the_disk() {
    if !can_mount() {
        println!("SKIPPED: only root can mount a small disk");
        return;
    }
    let scheduler = Scheduler::start().await;
    let small = serde_json::json!({"disk_kib": 1024});
    let _agent = Agent::start_with(&scheduler, "n1", small);
    scheduler.hello("n1", 1).await;
    let end = scheduler.run("n1", script(1, "seq 1 1000000; exit 6")).await;
    assert_eq!((end.exit_code, end.platform_error.as_str()), (6, ""));
    let next = scheduler.run("n1", script(2, "true")).await;
    assert!(
        next.platform_error.contains("No space left on device"),
        "{}",
        next.platform_error
    );
    // It is still there and says the same to whoever asks again.
    scheduler.drop_link("n1");
    scheduler.hello("n1", 2).await;
    scheduler.order("n1", script(1, "seq 1 1000000; exit 6"));
    let old = scheduler.run("n1", {
        let mut old = script(1, "true");
        old.task = Some(common::key(1, 0));
        old
    });
    assert!(old.await.platform_error.contains("too old"));
}
