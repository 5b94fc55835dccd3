//! A test server, and agents that run as processes of their own.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test fails by panicking, and not every test uses all of this"
)]

pub(crate) mod agent;
pub(crate) mod server;

use dovetail_proto::v1::{Peer, Processes, StartTask, TaskKey};

pub(crate) fn key(job: u64, attempt: u64) -> TaskKey {
    TaskKey { job, attempt }
}

/// Returns the command that starts a shell script.
pub(crate) fn script(job: u64, text: &str) -> StartTask {
    StartTask {
        task: Some(key(job, 1)),
        job_name: format!("job-{job}"),
        command: vec!["sh".into(), "-c".into(), text.into()],
        workdir: "/".into(),
        processes: Processes::PerNode.into(),
        grace_ms: 30_000,
        master_port: 29500,
        ..Default::default()
    }
}

pub(crate) fn peer(node: &str, gpus: &[u32]) -> Peer {
    Peer {
        node: node.into(),
        address: "127.0.0.1".into(),
        gpus: gpus.to_vec(),
    }
}

/// Waits until `look` returns a value. The time limit is generous and only ends tests that have failed.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("timed out waiting for {what}");
}
