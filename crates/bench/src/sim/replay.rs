//! Replays of whole workloads.

use std::time::Instant;

use dovetail_model::ClusterSpec;
use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_sim::{SimConfig, compat, simulate, simulate_with};
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::{Workload, read};
use rayon::prelude::*;

use crate::BenchError;
use crate::data::shared_file;
use crate::measurement::{CpuMeasurement, thread_cpu_seconds};

/// Passes of a replay; the best counts, because other processes may use the machine.
const PASSES: u32 = 7;
/// Passes of a Blox set; the mean counts, because one pass is shorter than the clock's tick.
const BLOX_PASSES: usize = 50;
/// Sets of Blox's own runs: name, policies, and CPU seconds of the reference for all of them.
const BLOX_SETS: [(&str, &[&str], f64); 3] = [
    ("O_default_single_load2", &["las", "srtf", "optimus"], 26.0),
    ("M_small_multi_load16", &["fifo", "las", "srtf"], 32.1),
    ("S_small_single_load40", &["fifo", "las", "srtf"], 48.7),
];

/// Replays a workload. Measures the CPU time of the whole run, including its summary, and the rate at which its events
/// are processed.
pub(super) fn replay(
    workload: &Workload,
    policy: &str,
    cluster: ClusterSpec,
    goal: &'static str,
) -> Result<CpuMeasurement, BenchError> {
    let (jobs, nodes) = (count(workload.jobs.len() as u64), cluster.nodes.len());
    let mut config = SimConfig::new(cluster);
    config.segments = 0;
    let (mut seconds, mut rate) = (f64::INFINITY, 0.0f64);
    for _ in 0..PASSES {
        let (built, needs) = build(policy, &Overrides::default())?;
        let start = thread_cpu_seconds();
        let mut last_event = start;
        let mut on_progress = |_: u64| last_event = thread_cpu_seconds();
        let record = simulate_with(workload, built, needs, &config, None, &mut on_progress)?;
        seconds = seconds.min(thread_cpu_seconds() - start);
        rate = rate.max(record.summary.events as f64 / (last_event - start).max(1e-9));
    }
    Ok(CpuMeasurement {
        name: format!("replay {jobs} jobs, {policy}, {nodes} nodes"),
        seconds,
        value: rate,
        unit: "events/s",
        goal,
    })
}

/// Replays Blox's runs with identical results, and compares with the CPU time of the reference.
pub(super) fn blox_sets() -> Result<Vec<CpuMeasurement>, BenchError> {
    let mut measurements = Vec::new();
    for (set, policies, reference_s) in BLOX_SETS {
        let Some(path) = shared_file(&format!("blox/{set}/workload.csv")) else {
            continue;
        };
        let workload = read(&path, None)?;
        let start = thread_cpu_seconds();
        for policy in policies.iter().cycle().take(BLOX_PASSES * policies.len()) {
            let mut config = SimConfig::new(ClusterSpec::uniform(32, 4));
            let (built, needs) = compat::blox(policy, &Overrides::default(), &workload, None, &mut config)?;
            simulate(&workload, built, needs, &config)?;
        }
        let seconds = (thread_cpu_seconds() - start) / BLOX_PASSES as f64;
        measurements.push(CpuMeasurement {
            name: format!("Blox set {set}, {}", policies.join(" ")),
            seconds,
            value: reference_s / seconds.max(1e-9),
            unit: "times less CPU",
            goal: "1,000 times",
        });
    }
    Ok(measurements)
}

/// Measures the speed-up of a grid of runs on all cores: wall time on one thread over wall time on all.
pub(super) fn all_cores(workload: &Workload) -> Result<CpuMeasurement, BenchError> {
    let mut config = SimConfig::new(ClusterSpec::uniform(67, 8));
    config.segments = 0;
    let one_run = |_: u32| -> Result<(), BenchError> {
        let (built, needs) = build("srsf", &Overrides::default())?;
        simulate(workload, built, needs, &config)?;
        Ok(())
    };
    let cores = rayon::current_num_threads() as u32;
    let runs = 4 * cores;
    let start = Instant::now();
    (0..runs).try_for_each(one_run)?;
    let serial = start.elapsed().as_secs_f64();
    let start = Instant::now();
    (0..runs).into_par_iter().try_for_each(one_run)?;
    let parallel = start.elapsed().as_secs_f64();
    Ok(CpuMeasurement {
        name: format!("{runs} runs of srsf on {cores} cores against one"),
        seconds: parallel,
        value: serial / parallel * 100.0,
        unit: "% of one core",
        goal: "near-linear",
    })
}

/// Replays a million jobs on 100,000 GPUs with consolidated placement.
pub(super) fn million_jobs() -> Result<CpuMeasurement, BenchError> {
    let gpus = 100_000;
    let workload = generate(&GenerateSpec {
        jobs: 1_000_000,
        load: Some(0.95),
        cluster_gpus: Some(gpus),
        ..GenerateSpec::default()
    })?;
    let mut config = SimConfig::new(ClusterSpec::uniform(gpus / 8, 8));
    config.segments = 0;
    let (built, needs) = build("fifo-backfill", &Overrides::default())?;
    let start = thread_cpu_seconds();
    let record = simulate(&workload, built, needs, &config)?;
    let seconds = thread_cpu_seconds() - start;
    let memory = peak_memory_mib().map_or_else(|| "?".to_owned(), |mib| mib.to_string());
    Ok(CpuMeasurement {
        name: format!("1,000,000 jobs on 100,000 GPUs, fifo-backfill (peak memory {memory} MiB)"),
        seconds,
        value: record.summary.events as f64 / seconds,
        unit: "events/s",
        goal: "60 s, 4096 MiB",
    })
}

/// Returns the peak memory of this process, where the system reports it.
fn peak_memory_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    Some(kib / 1024)
}
