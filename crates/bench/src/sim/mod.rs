//! `dovetail bench sim`: the cost of replays and decisions.

mod decisions;
mod replay;

use dovetail_model::ClusterSpec;
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::read;

use crate::measurement::CpuMeasurement;
use crate::{BenchError, Options};

/// Jobs of the generated workload, as many as the public Philly trace has.
const PHILLY_JOBS: u64 = 82_247;
/// Policies to replay, with their goals.
const REPLAYED: [(&str, &str); 6] = [
    ("fifo-backfill", "1,000,000 events/s"),
    ("sjf", ""),
    ("srsf", "200,000 events/s"),
    ("tiresias", "200,000 events/s"),
    ("las", ""),
    ("gittins", ""),
];

/// Measures replays, and decisions for a large cluster.
pub(crate) fn measure(options: &Options) -> Result<Vec<CpuMeasurement>, BenchError> {
    let philly = match &options.trace {
        Some(path) => read(path, None)?,
        None => generate(&GenerateSpec {
            jobs: PHILLY_JOBS,
            ..GenerateSpec::default()
        })?,
    };
    let mut measurements = Vec::new();
    for (policy, goal) in REPLAYED {
        for cluster in [ClusterSpec::uniform(534, 1), ClusterSpec::uniform(67, 8)] {
            measurements.push(replay::replay(&philly, policy, cluster, goal)?);
        }
    }
    measurements.extend(replay::blox_sets()?);
    measurements.push(replay::all_cores(&philly)?);
    measurements.extend(decisions::measure()?);
    if !options.short {
        measurements.push(replay::million_jobs()?);
    }
    Ok(measurements)
}
