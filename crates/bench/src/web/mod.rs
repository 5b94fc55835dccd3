//! `dovetail bench web`: the HTTP API over a real socket with a million jobs, a job of a thousand tasks, a log of ten
//! gigabytes, and a thousand pages that follow events.

mod http;
mod server;
mod watchers;

use self::http::HttpClient;
use self::server::{LOG_BYTES, TASKS, WebServer};
use crate::live::runtime;
use crate::measurement::GoalMeasurement;
use crate::{BenchError, Options};

const JOBS: usize = 1_000_000;
/// Requests of each kind; the median counts.
const REQUESTS: usize = 5;
/// Lists of jobs, with their queries.
const LISTS: [(&str, &str); 7] = [
    ("the newest 100", ""),
    ("one user", "?user=user-7"),
    ("part of a name", "?q=sweep-77"),
    ("wide jobs, widest first", "?gpus_min=8&sort=-gpus"),
    ("by GPU time", "?sort=-gpu_seconds&state=cancelled"),
    ("a label", "?label=kind=3"),
    ("active jobs", "?state=live"),
];

/// Measures requests and event streams; a tenth of the jobs if the benchmark is short.
pub(crate) fn measure(options: &Options) -> Result<Vec<GoalMeasurement>, BenchError> {
    let jobs = if options.short { JOBS / 10 } else { JOBS };
    runtime()?.block_on(async {
        let server = WebServer::start(jobs).await?;
        let admin = server.client("bench", true)?;
        let mut measurements = lists(&server, &admin, jobs).await?;
        measurements.extend(wide_job(&server, &admin).await?);
        measurements.extend(watchers::measure(&admin, server.handle()).await?);
        server.stop().await;
        Ok(measurements)
    })
}

/// Measures lists of jobs, for an administrator and for a user.
async fn lists(
    server: &WebServer,
    admin: &HttpClient,
    jobs: usize,
) -> Result<Vec<GoalMeasurement>, BenchError> {
    let mut measurements = Vec::new();
    for (name, query) in LISTS {
        let seconds = admin
            .median_seconds(&format!("/api/v1/jobs{query}"), REQUESTS)
            .await?;
        let name = format!("list of {jobs} jobs: {name}");
        measurements.push(GoalMeasurement::below(name, seconds * 1e3, "ms", 300.0));
    }
    let user = server.client("user", false)?;
    let seconds = user.median_seconds("/api/v1/jobs?q=sweep-77", REQUESTS).await?;
    let name = format!("list of {jobs} jobs: part of a name, without administrator rights");
    measurements.push(GoalMeasurement::below(name, seconds * 1e3, "ms", 300.0));
    Ok(measurements)
}

/// Measures the page of a job with many tasks, and the end of its log.
async fn wide_job(server: &WebServer, admin: &HttpClient) -> Result<Vec<GoalMeasurement>, BenchError> {
    let id = server.wide_job()?;
    let job_s = admin
        .median_seconds(&format!("/api/v1/jobs/{id}"), REQUESTS)
        .await?;
    let log = format!("/api/v1/jobs/{id}/logs?node=node-0&tail=200");
    let log_s = admin.median_seconds(&log, REQUESTS).await?;
    let log_name = format!("last 200 lines of a log of {} GB", LOG_BYTES / 1_000_000_000);
    Ok(vec![
        GoalMeasurement::below(format!("job with {TASKS} tasks"), job_s * 1e3, "ms", 1000.0),
        GoalMeasurement::below(log_name, log_s * 1e3, "ms", 100.0),
    ])
}
