//! The start of single jobs: a server and an agent in a process of their own, and requests over HTTPS.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dovetail_client::{Client, block_on};
use dovetail_console::ScratchFolder;
use dovetail_model::Time;
use dovetail_web::views::{JobView, NodeView, Submission, SubmitResponse};

use super::job_request;
use crate::BenchError;
use crate::measurement::{GoalMeasurement, median, percentile};
use crate::server_process::ServerProcess;

const JOBS: usize = 101;

/// Measures the time from the request to the running process, on an idle node.
pub(super) fn measure() -> Result<Vec<GoalMeasurement>, BenchError> {
    let folder = ScratchFolder::new("bench-start")?;
    let server = ServerProcess::start(&["up", "--virtual-gpus", "8"], folder.path())?;
    let client = Client::open(Some(&folder.path().join("client.yaml")))?;
    let times = block_on(start_times(&client))?;
    drop(server);
    let p95 = percentile(times.clone(), 95);
    Ok(vec![
        GoalMeasurement::below(
            "submit over HTTPS until the process runs: median",
            median(times),
            "ms",
            20.0,
        ),
        GoalMeasurement::below("the same, 95th percentile", p95, "ms", 100.0),
    ])
}

/// Returns milliseconds from the request to the running process, for one job after the other.
async fn start_times(client: &Client) -> Result<Vec<f64>, BenchError> {
    while client.get::<Vec<NodeView>>("/api/v1/nodes").await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut job = job_request(1);
    job.command = vec!["/bin/true".to_owned()];
    let submission = Submission {
        job,
        array: None,
        dry_run: false,
    };
    let mut times = Vec::new();
    for _ in 0..JOBS {
        let submitted_at = now();
        let submitted: SubmitResponse = client.post("/api/v1/jobs", &submission).await?;
        let id = submitted.id.unwrap_or_default();
        let view = wait_for_end(client, id).await?;
        let started = view
            .started
            .ok_or_else(|| BenchError::Unexpected(format!("job {id} did not start: {}", view.detail)))?;
        times.push(started.since(submitted_at).as_secs_f64() * 1e3);
    }
    Ok(times)
}

async fn wait_for_end(client: &Client, id: u64) -> Result<JobView, BenchError> {
    loop {
        let view: JobView = client.get(&format!("/api/v1/jobs/{id}")).await?;
        if view.has_ended() {
            return Ok(view);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the current time in microseconds since 1970.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
