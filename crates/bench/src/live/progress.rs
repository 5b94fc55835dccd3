//! The cost of progress reports for a server in a process of its own.

use std::net::TcpListener;
use std::time::Duration;

use dovetail_client::Client;
use dovetail_console::ScratchFolder;
use dovetail_hub::Authority;
use dovetail_jobfile::ArrayRequest;
use dovetail_web::views::{Submission, SubmitResponse};

use super::agents::{AgentPool, Tasks};
use super::{job_request, runtime};
use crate::BenchError;
use crate::error::StepResult;
use crate::measurement::GoalMeasurement;
use crate::server_process::ServerProcess;

const AGENTS: usize = 125;
const GPUS: u32 = 8;
const JOBS: u32 = 1_000;
/// Time until the measurements are steady.
const SETTLE: Duration = Duration::from_secs(8);
const MEASURE: Duration = Duration::from_secs(20);

/// Measures the CPU time of the server with and without jobs that report a step every second to their agents.
pub(super) fn measure() -> Result<Vec<GoalMeasurement>, BenchError> {
    let folder = ScratchFolder::new("bench-progress")?;
    let listener = TcpListener::bind("127.0.0.1:0").step("find a free port")?;
    let port = listener.local_addr().step("find a free port")?.port();
    drop(listener);
    let server = ServerProcess::start_on(port, &["server"], folder.path())?;
    let authority = Authority::open(folder.path())?;
    let client = Client::open(Some(&folder.path().join("client.yaml")))?;
    runtime()?.block_on(async {
        let agents = AgentPool::connect(&authority, port, (AGENTS, GPUS), Tasks::Run).await?;
        submit(&client).await?;
        while agents.started_tasks() < JOBS.into() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let idle = busy_share(&server).await?;
        agents.report_steps();
        let busy = busy_share(&server).await?;
        Ok(vec![GoalMeasurement::below(
            format!("{JOBS} jobs report a step every second: CPU of the server for it"),
            (busy - idle).max(0.0) * 100.0,
            "% of a core",
            2.0,
        )])
    })
}

async fn submit(client: &Client) -> Result<(), BenchError> {
    let submission = Submission {
        job: job_request(1),
        array: Some(ArrayRequest {
            indices: (0..JOBS).collect(),
            at_most: None,
        }),
        dry_run: false,
    };
    let _: SubmitResponse = client.post("/api/v1/jobs", &submission).await?;
    Ok(())
}

/// Returns the share of a core that the server uses.
async fn busy_share(server: &ServerProcess) -> Result<f64, BenchError> {
    tokio::time::sleep(SETTLE).await;
    let before = server.cpu_s()?;
    tokio::time::sleep(MEASURE).await;
    Ok((server.cpu_s()? - before) / MEASURE.as_secs_f64())
}
