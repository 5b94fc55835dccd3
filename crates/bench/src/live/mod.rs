//! `dovetail bench live`: a server with a real journal, real TLS and real sockets, and agents that only speak the
//! protocol, all in one process.

mod agents;
mod load;
mod progress;
mod restart;
mod start;

use std::path::PathBuf;

use dovetail_cluster::{DriverConfig, JobRequest, PolicyText};
use dovetail_engine::Clock;

use crate::BenchError;
use crate::error::StepResult;
use crate::measurement::GoalMeasurement;

/// Measures throughput with many agents, the restart of a server, the start of single jobs, and progress reports.
pub(crate) fn measure() -> Result<Vec<GoalMeasurement>, BenchError> {
    let runtime = runtime()?;
    let mut measurements = runtime.block_on(load::measure())?;
    measurements.push(restart::measure()?);
    measurements.extend(start::measure()?);
    measurements.extend(progress::measure()?);
    Ok(measurements)
}

/// Creates a runtime on all cores.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, BenchError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .step("create a runtime")
}

/// Returns the settings of a driver whose journal is in this folder.
pub(crate) fn driver_config(dir: PathBuf) -> DriverConfig {
    DriverConfig {
        dir,
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 50_000,
        runtime: dovetail_cluster::Capabilities::ALL,
    }
}

/// Returns the request of a job.
pub(crate) fn job_request(gpus: u32) -> JobRequest {
    JobRequest {
        name: "bench".to_owned(),
        command: vec!["python3".to_owned(), "train.py".to_owned()],
        gpus,
        ..JobRequest::default()
    }
}
