//! `dovetail bench history`: a server with many ended jobs, in a process of its own. Its journal and its history database are
//! written by a driver as in a live cluster.

use std::path::Path;
use std::time::{Duration, Instant};

use dovetail_client::{Client, block_on};
use dovetail_cluster::{Actor, Driver, Fact, Handle, IdleRuntime, JobRequest, NodeRegistration, TaskEnd};
use dovetail_cluster::{Transaction, state::JobState};
use dovetail_console::ScratchFolder;
use dovetail_history::{JobQuery, KnownJobs};
use dovetail_model::NodeSpec;
use dovetail_web::views::{JobPage, JobView, UsageRow};

use crate::error::StepResult;
use crate::live::{driver_config, job_request};
use crate::measurement::{GoalMeasurement, median};
use crate::server_process::ServerProcess;
use crate::{BenchError, Options};

/// How long the history is waited for.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Jobs that are submitted and end in one transaction.
const BATCH: u64 = 100;
/// Jobs that end after the last snapshot, before the server is killed.
const UNSAVED: u64 = 5_000;
/// Requests of each kind; the median counts.
const REQUESTS: usize = 5;
const USERS: u64 = 100;
const NAMES: u64 = 1_000;
const NODES: u64 = 4;

/// Lists of jobs, with their queries: each filter by itself, some together, and each order.
const LISTS: [(&str, &str); 18] = [
    ("the newest 100", ""),
    ("one state", "?state=failed"),
    ("one reason", "?state=dependency-failed"),
    ("one user", "?user=user-7"),
    ("one virtual cluster", "?tenant=default"),
    ("one name", "?name=sweep-77"),
    ("a label", "?label=kind=3"),
    ("a label with any value", "?label=kind"),
    ("wide jobs", "?gpus_min=8"),
    ("submitted until 1970", "?to=1"),
    ("submitted since 1970", "?from=1"),
    ("part of a name", "?q=sweep-77"),
    ("part of no name", "?q=nothing"),
    (
        "a user's failed wide jobs",
        "?user=user-7&state=failed&gpus_min=4",
    ),
    ("wide jobs, widest first", "?gpus_min=8&sort=-gpus"),
    ("by GPU time", "?sort=-gpu_seconds&state=completed"),
    ("by wait", "?sort=-wait"),
    ("by name", "?sort=name"),
];

/// Creates the history, and measures a server that starts with it; a tenth of the jobs if the benchmark is short.
pub(crate) fn measure(options: &Options) -> Result<Vec<GoalMeasurement>, BenchError> {
    let jobs = if options.short {
        options.jobs / 10
    } else {
        options.jobs
    };
    let folder = ScratchFolder::new("bench-history")?;
    let journal = folder.path().join("journal");
    let start = Instant::now();
    let early_bytes = run_driver(&journal, 0..jobs / 10, true)?;
    let bytes = run_driver(&journal, jobs / 10..jobs, true)?;
    let rate = jobs as f64 / start.elapsed().as_secs_f64();
    run_driver(&journal, jobs..jobs + UNSAVED, false)?;
    let start = Instant::now();
    let server = ServerProcess::start(&["server"], folder.path())?;
    let client = Client::open(Some(&folder.path().join("client.yaml")))?;
    let first = block_on(client.get::<JobPage>("/api/v1/jobs?limit=1"))?;
    let restart = start.elapsed().as_secs_f64();
    let total = jobs + UNSAVED;
    if first.total != total {
        return Err(BenchError::Unexpected(format!(
            "found {} jobs, expected {total}",
            first.total
        )));
    }
    let mut measurements = vec![
        GoalMeasurement::at_least("jobs submitted, run, ended and stored", rate, "/s", 1_000.0),
        GoalMeasurement::below(
            format!("restart after a kill, with {total} jobs"),
            restart,
            "s",
            1.0,
        ),
    ];
    measurements.extend(block_on(requests(&client, jobs))?);
    let mib = 1024.0 * 1024.0;
    let memory = server.memory_kib()? as f64 / 1024.0;
    let name = format!("memory of the server with {total} jobs");
    measurements.push(GoalMeasurement::below(name, memory, "MB", 200.0));
    let name = format!("snapshot with {jobs} jobs, relative to {}", jobs / 10);
    let ratio = bytes as f64 / early_bytes.max(1) as f64;
    measurements.push(GoalMeasurement::below(name, ratio, "", 1.1));
    measurements.push(GoalMeasurement::below("snapshot", bytes as f64 / mib, "MB", 20.0));
    let database = std::fs::metadata(journal.join("history.db")).step("measure the database")?;
    let per_job = database.len() as f64 / total as f64;
    measurements.push(GoalMeasurement::below(
        "history database",
        per_job,
        "bytes/job",
        4_096.0,
    ));
    Ok(measurements)
}

/// Measures lists and other reads.
async fn requests(client: &Client, jobs: u64) -> Result<Vec<GoalMeasurement>, BenchError> {
    let mut measurements = Vec::new();
    for (name, query) in LISTS {
        let path = format!("/api/v1/jobs{query}");
        let mut times = Vec::new();
        for _ in 0..REQUESTS {
            let start = Instant::now();
            let _: JobPage = client.get(&path).await?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        measurements.push(GoalMeasurement::below(
            format!("list: {name}"),
            median(times),
            "ms",
            300.0,
        ));
    }
    let start = Instant::now();
    let _: JobView = client.get(&format!("/api/v1/jobs/{}", jobs / 2)).await?;
    let shown = start.elapsed().as_secs_f64() * 1e3;
    measurements.push(GoalMeasurement::below(
        "show a job that left memory",
        shown,
        "ms",
        20.0,
    ));
    let start = Instant::now();
    let _: Vec<UsageRow> = client.get("/api/v1/usage").await?;
    let usage = start.elapsed().as_secs_f64() * 1e3;
    measurements.push(GoalMeasurement::below("usage", usage, "ms", 300.0));
    Ok(measurements)
}

/// Runs jobs to their ends. Returns the size of the last snapshot, which is written at the end unless the driver is killed.
fn run_driver(journal: &Path, jobs: std::ops::Range<u64>, is_saved: bool) -> Result<u64, BenchError> {
    let (driver, handle, _) = Driver::open(&driver_config(journal.to_owned()))?;
    let driving = driver.spawn(IdleRuntime);
    for i in 0..NODES {
        handle.register_node(registration(i)).wait()?;
    }
    for first in jobs.clone().step_by(BATCH as usize) {
        let last = (first + BATCH).min(jobs.end);
        run_jobs(&handle, first..last)?;
    }
    if is_saved {
        wait_for_history(&handle, jobs.end)?;
        handle.shut_down().wait()?;
    }
    drop(handle);
    let joined = driving.join();
    joined.map_err(|_| BenchError::Unexpected("the driver panicked".to_owned()))?;
    newest_snapshot(journal).step("measure the snapshot")
}

/// Waits until the history has this number of jobs: jobs leave memory after they are written there.
fn wait_for_history(handle: &Handle, jobs: u64) -> Result<(), BenchError> {
    let Some(history) = handle.history() else {
        return Err(BenchError::Unexpected("the driver has no history".to_owned()));
    };
    let all = KnownJobs {
        from: u64::MAX,
        below: Vec::new(),
    };
    let start = Instant::now();
    loop {
        let stored = history
            .list(&JobQuery::newest(1), &all)
            .map_err(|error| BenchError::Unexpected(error.to_string()))?;
        if stored.total >= jobs {
            return Ok(());
        }
        if start.elapsed() > TIMEOUT {
            return Err(BenchError::Timeout {
                expected: "the history has all jobs".to_owned(),
                seconds: TIMEOUT.as_secs(),
            });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn registration(i: u64) -> NodeRegistration {
    NodeRegistration {
        spec: NodeSpec::plain(format!("node-{i}"), 16),
        gpu_type: "virtual".to_owned(),
        rack: String::new(),
        address: "127.0.0.1".to_owned(),
        identity: i,
    }
}

fn run_jobs(handle: &Handle, jobs: std::ops::Range<u64>) -> Result<(), BenchError> {
    let ran = handle.in_transaction(move |transaction| {
        jobs.map(|i| run_job(transaction, i))
            .collect::<Result<Vec<()>, _>>()
    });
    ran.wait()??;
    Ok(())
}

/// Submits a job and ends it: every fifth is cancelled before it runs, every seventh fails.
fn run_job(transaction: &mut Transaction<'_>, i: u64) -> Result<(), BenchError> {
    let mut request = JobRequest {
        name: format!("sweep-{}", i % NAMES),
        hold: i.is_multiple_of(5),
        ..job_request(1 + (i % 16) as u32)
    };
    request.labels.insert("kind".to_owned(), (i % 10).to_string());
    let user = format!("user-{}", i % USERS);
    let job = transaction.submit(&user, request, None)?;
    let by = Actor::user(&user);
    let record = transaction.state().job(job);
    let attempt = record
        .filter(|r| r.state == JobState::Starting)
        .and_then(|r| r.attempt());
    let Some(attempt) = attempt else {
        transaction.record(Fact::Cancelled { job, by });
        return Ok(());
    };
    let (attempt, node) = (attempt.id, attempt.allocation.shares[0].node);
    transaction.record(Fact::TaskStarted {
        job,
        attempt,
        node,
        sharing: String::new(),
        remarks: Vec::new(),
    });
    let end = Box::new(TaskEnd {
        exit_code: i32::from(i.is_multiple_of(7)),
        ..TaskEnd::default()
    });
    transaction.record(Fact::TaskEnded {
        job,
        attempt,
        node,
        end,
    });
    Ok(())
}

fn newest_snapshot(journal: &Path) -> std::io::Result<u64> {
    let mut newest = (String::new(), 0);
    for entry in std::fs::read_dir(journal)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains("snapshot") && name > newest.0 {
            newest = (name, entry.metadata()?.len());
        }
    }
    Ok(newest.1)
}
