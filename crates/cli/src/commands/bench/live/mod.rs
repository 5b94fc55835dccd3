//! `dovetail bench live`: a server with a real journal, real TLS and real sockets, and agents that are no more than their
//! words, all in one process.

mod agents;
mod restart;
mod start;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use dovetail_agents::{Authority, Hub, HubConfig};
use dovetail_control::{Driver, DriverConfig, Handle, JobRequest, PolicyText};
use dovetail_engine::Clock;
use dovetail_report::format::{count, significant};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::args::BenchArgs;
use crate::failure::{Blame, Failure};
use crate::scratch::Scratch;
use crate::show;

/// One line of the result.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    what: String,
    figure: f64,
    unit: &'static str,
    goal: f64,
    /// Whether more is better than the goal.
    more: bool,
}

impl Row {
    pub(super) fn new(
        what: impl Into<String>,
        figure: f64,
        unit: &'static str,
        goal: f64,
        more: bool,
    ) -> Self {
        Self {
            what: what.into(),
            figure,
            unit,
            goal,
            more,
        }
    }

    fn is_met(&self) -> bool {
        (self.figure >= self.goal) == self.more || self.figure == self.goal
    }
}

pub(super) fn config(dir: PathBuf) -> DriverConfig {
    DriverConfig {
        dir,
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 50_000,
    }
}

pub(super) fn job(gpus: u32) -> JobRequest {
    JobRequest {
        name: "bench".to_owned(),
        command: vec!["python3".to_owned(), "train.py".to_owned()],
        gpus,
        ..JobRequest::default()
    }
}

/// Measures and shows.
///
/// # Errors
/// When a socket or a file cannot be used.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_work()?;
    let mut rows = runtime.block_on(load())?;
    rows.push(restart::first_decision()?);
    rows.extend(start::latency()?);
    print(args, &rows)
}

/// A table of rows with their goals.
///
/// # Errors
/// When nothing can be printed.
pub(super) fn print(args: &BenchArgs, rows: &[Row]) -> Result<(), Failure> {
    if args.json {
        return show::print(serde_json::to_string_pretty(rows).or_work()?);
    }
    let mut table = show::table(&["what", "figure", "goal", ""]);
    for row in rows {
        let value = |x: f64| match x >= 1000.0 {
            true => count(x as u64),
            false => significant(x),
        };
        let sign = if row.more { "≥" } else { "<" };
        table.add_row([
            row.what.clone(),
            format!("{} {}", value(row.figure), row.unit),
            format!("{sign} {}", value(row.goal)),
            if row.is_met() { "met" } else { "missed" }.to_owned(),
        ]);
    }
    show::align_numbers(&mut table);
    show::print(table)
}

const AGENTS: usize = 1_000;
const GPUS: u32 = 8;

/// Agents, submissions and starts.
async fn load() -> Result<Vec<Row>, Failure> {
    let dir = Scratch::new("bench-live")?;
    let authority = Arc::new(Authority::open(&dir.0.join("pki")).or_work()?);
    let (driver, handle, _) = Driver::open(&config(dir.0.join("journal"))).or_work()?;
    let hub = Hub::new(HubConfig::default());
    let driving = driver.spawn(hub.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.or_work()?;
    let port = listener.local_addr().or_work()?.port();
    let (a, h, l) = (Arc::clone(&authority), hub.clone(), handle.clone());
    let served = tokio::spawn(async move {
        let names = ["localhost".to_owned()];
        dovetail_agents::serve(listener, &names, a, h, l, std::future::pending()).await
    });
    let mut rows = Vec::new();

    // Submissions, while nobody is there to run them.
    const JOBS: usize = 50_000;
    let begin = Instant::now();
    submit(&handle, JOBS).await?;
    rows.push(Row::new(
        "durable submissions (group commit)",
        JOBS as f64 / begin.elapsed().as_secs_f64(),
        "/s",
        5_000.0,
        true,
    ));

    let begin = Instant::now();
    let crowd = agents::Crowd::attach(&authority, port, AGENTS, GPUS).await?;
    wait_for(
        || handle.read(|book| book.nodes().count()) == AGENTS,
        "all agents are there",
    )
    .await?;
    rows.push(Row::new(
        "agents connected over TLS",
        AGENTS as f64,
        "",
        1_000.0,
        true,
    ));
    // All of them start what waits, and end it at once.
    let done = |count: u64| crowd.started() >= count && handle.read(|book| book.jobs_up().next().is_none());
    wait_for(|| done(JOBS as u64), "all jobs are over").await?;
    let first = begin.elapsed();

    // Starts alone: agents are there, jobs come and go.
    let begin = Instant::now();
    let before = crowd.started();
    submit(&handle, JOBS).await?;
    wait_for(|| done(before + JOBS as u64), "all jobs are over").await?;
    let starts = crowd.started() - before;
    rows.push(Row::new(
        "tasks submitted, decided, started, acknowledged and ended",
        starts as f64 / begin.elapsed().as_secs_f64(),
        "/s",
        5_000.0,
        true,
    ));
    rows.push(Row::new(
        format!("{AGENTS} agents join and run {} waiting jobs", count(JOBS as u64)),
        first.as_secs_f64(),
        "s",
        30.0,
        false,
    ));
    handle
        .read(|book| book.check())
        .map_err(|why| Failure::Work(anyhow!(why)))?;
    served.abort();
    let _ = handle.shut_down().wait();
    let _ = tokio::task::spawn_blocking(move || driving.join()).await;
    Ok(rows)
}

/// Sends jobs and waits until all of them are durable.
async fn submit(handle: &Handle, jobs: usize) -> Result<(), Failure> {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let handle = handle.clone();
    let sending = tokio::task::spawn_blocking(move || {
        for _ in 0..jobs {
            let answered = sender.clone();
            handle
                .submit("bench", job(1))
                .then(move |result| drop(answered.send(result)));
        }
    });
    for _ in 0..jobs {
        let answer = receiver
            .recv()
            .await
            .ok_or_else(|| Failure::Work(anyhow!("the driver is gone")))?;
        answer.or_work()?;
    }
    sending.await.or_work()
}

async fn wait_for(is_so: impl Fn() -> bool, what: &str) -> Result<(), Failure> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > Duration::from_secs(300) {
            return Err(Failure::Work(anyhow!(
                "after five minutes it is not so that {what}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
