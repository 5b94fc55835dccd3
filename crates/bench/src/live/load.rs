//! Submissions, agents and starts under load.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dovetail_cluster::{Driver, Handle};
use dovetail_console::ScratchFolder;
use dovetail_hub::{Authority, Hub, HubConfig};
use dovetail_report::format::count;
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_blocking;

use super::agents::{AgentPool, Tasks};
use super::{driver_config, job_request};
use crate::BenchError;
use crate::error::StepResult;
use crate::measurement::GoalMeasurement;

const AGENTS: usize = 1_000;
const GPUS_PER_AGENT: u32 = 8;
const JOBS: usize = 50_000;
/// How long a state of the cluster is waited for.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Measures submissions without agents, agents that join and run the queued jobs, and jobs with agents connected.
pub(super) async fn measure() -> Result<Vec<GoalMeasurement>, BenchError> {
    let server = InProcessServer::start().await?;
    let submissions = server.submit_without_agents().await?;
    let (agents, join_and_run) = server.join_and_run().await?;
    let throughput = server.submit_and_run(&agents).await?;
    server.stop().await?;
    Ok(vec![
        submissions,
        GoalMeasurement::at_least("agents connected over TLS", AGENTS as f64, "", 1_000.0),
        throughput,
        join_and_run,
    ])
}

/// A server in this process.
struct InProcessServer {
    authority: Arc<Authority>,
    handle: Handle,
    port: u16,
    driver: JoinHandle<()>,
    service: tokio::task::JoinHandle<()>,
    _folder: ScratchFolder,
}

impl InProcessServer {
    async fn start() -> Result<Self, BenchError> {
        let folder = ScratchFolder::new("bench-live")?;
        let authority = Arc::new(Authority::open(&folder.path().join("pki"))?);
        let (driver, handle, _) = Driver::open(&driver_config(folder.path().join("journal")))?;
        let hub = Hub::new(HubConfig::default());
        let driver = driver.spawn(hub.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.step("listen")?;
        let port = listener.local_addr().step("listen")?.port();
        let (served_authority, served_handle) = (Arc::clone(&authority), handle.clone());
        let service = tokio::spawn(async move {
            let names = ["localhost".to_owned()];
            let forever = std::future::pending();
            let _ =
                dovetail_hub::serve(listener, &names, served_authority, hub, served_handle, forever).await;
        });
        Ok(Self {
            authority,
            handle,
            port,
            driver,
            service,
            _folder: folder,
        })
    }

    /// Measures durable submissions while no agent runs the jobs.
    async fn submit_without_agents(&self) -> Result<GoalMeasurement, BenchError> {
        let start = Instant::now();
        submit(&self.handle, JOBS).await?;
        let rate = JOBS as f64 / start.elapsed().as_secs_f64();
        Ok(GoalMeasurement::at_least(
            "durable submissions (group commit)",
            rate,
            "/s",
            5_000.0,
        ))
    }

    /// Connects all agents, which run the queued jobs, and measures the time until all have ended.
    async fn join_and_run(&self) -> Result<(AgentPool, GoalMeasurement), BenchError> {
        let start = Instant::now();
        let agents = AgentPool::connect(
            &self.authority,
            self.port,
            (AGENTS, GPUS_PER_AGENT),
            Tasks::EndAtOnce,
        )
        .await?;
        let are_known = || self.handle.read(|state| state.nodes().count()) == AGENTS;
        wait_until("all agents are known", are_known).await?;
        self.wait_for_starts(&agents, JOBS as u64).await?;
        let name = format!("{AGENTS} agents join and run {} queued jobs", count(JOBS as u64));
        let seconds = start.elapsed().as_secs_f64();
        Ok((agents, GoalMeasurement::below(name, seconds, "s", 30.0)))
    }

    /// Measures jobs from submission to end with all agents connected.
    async fn submit_and_run(&self, agents: &AgentPool) -> Result<GoalMeasurement, BenchError> {
        let before = agents.started_tasks();
        let start = Instant::now();
        submit(&self.handle, JOBS).await?;
        self.wait_for_starts(agents, before + JOBS as u64).await?;
        let started = agents.started_tasks() - before;
        let rate = started as f64 / start.elapsed().as_secs_f64();
        let name = "tasks submitted, decided, started, acknowledged and ended";
        Ok(GoalMeasurement::at_least(name, rate, "/s", 5_000.0))
    }

    /// Waits until this many tasks have been started in all, and no job holds GPUs.
    async fn wait_for_starts(&self, agents: &AgentPool, tasks: u64) -> Result<(), BenchError> {
        let have_ended = || {
            agents.started_tasks() >= tasks && self.handle.read(|state| state.active_jobs().next().is_none())
        };
        wait_until("all jobs have ended", have_ended).await
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.handle
            .read(|state| state.check())
            .map_err(|problem| BenchError::Unexpected(problem.to_string()))?;
        self.service.abort();
        let _ = self.handle.shut_down().wait();
        let _ = spawn_blocking(move || self.driver.join()).await;
        Ok(())
    }
}

/// Submits jobs and waits until all of them are durable.
async fn submit(handle: &Handle, jobs: usize) -> Result<(), BenchError> {
    let (sender, mut receiver) = unbounded_channel();
    let handle = handle.clone();
    let submitting = spawn_blocking(move || {
        for _ in 0..jobs {
            let answered = sender.clone();
            handle
                .submit("bench", job_request(1))
                .then(move |result| drop(answered.send(result)));
        }
    });
    for _ in 0..jobs {
        let answer = receiver.recv().await;
        answer.ok_or_else(|| {
            BenchError::Unexpected("the driver ended while jobs were submitted".to_owned())
        })??;
    }
    submitting.await.step("submit jobs")
}

async fn wait_until(expected: &str, condition: impl Fn() -> bool) -> Result<(), BenchError> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > TIMEOUT {
            return Err(BenchError::Timeout {
                expected: expected.to_owned(),
                seconds: TIMEOUT.as_secs(),
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
