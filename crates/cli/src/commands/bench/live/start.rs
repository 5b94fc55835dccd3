//! From a word to a process: a real server and agent in a process of their own, and jobs sent over HTTPS.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use dovetail_web::views::{JobView, NodeView, Submission, Submitted};

use super::{Row, job};
use crate::failure::{Blame, Failure};
use crate::live::args::ClientArgs;
use crate::live::client::{Client, block_on};
use crate::live::show::now;
use crate::scratch::Scratch;

const JOBS: usize = 101;

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Median and worst time from the request to the running process, on an idle node.
pub(super) fn latency() -> Result<Vec<Row>, Failure> {
    let dir = Scratch::new("bench-start")?;
    let this = std::env::current_exe().or_work()?;
    let mut child = Command::new(this)
        .args([
            "up",
            "--virtual-gpus",
            "8",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--data",
        ])
        .arg(&dir.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("dovetail up")
        .or_work()?;
    let out = child.stdout.take();
    let up = Up(child);
    let mut line = String::new();
    BufReader::new(out.ok_or_else(|| Failure::Work(anyhow!("no output")))?)
        .read_line(&mut line)
        .or_work()?;
    let client = Client::open(&ClientArgs {
        config: Some(dir.0.join("client.yaml")),
    })?;
    let mut times = block_on(async {
        while client.get::<Vec<NodeView>>("/api/v1/nodes").await?.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut times = Vec::new();
        for _ in 0..JOBS {
            let mut job = job(1);
            job.command = vec!["/bin/true".to_owned()];
            let submission = Submission {
                job,
                array: None,
                dry_run: false,
            };
            let begin = now();
            let sent: Submitted = client.post("/api/v1/jobs", &submission).await?;
            let id = sent.id.unwrap_or_default();
            let view = loop {
                let view: JobView = client.get(&format!("/api/v1/jobs/{id}")).await?;
                if view.over {
                    break view;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            let started = view
                .started
                .ok_or_else(|| Failure::Work(anyhow!("job {id} never ran: {}", view.detail)))?;
            times.push(started.since(begin).as_secs_f64() * 1e3);
        }
        Ok(times)
    })?;
    drop(up);
    times.sort_by(f64::total_cmp);
    let p95 = times[JOBS * 95 / 100];
    Ok(vec![
        Row::new(
            "submit over HTTPS until the process runs: median",
            times[JOBS / 2],
            "ms",
            20.0,
            false,
        ),
        Row::new("the same, 95th percentile", p95, "ms", 100.0, false),
    ])
}
