//! `dovetail bench grouping`: the cost of sharing GPUs, in a decision and in a replay.

use std::path::{Path, PathBuf};
use std::time::Instant;

use dovetail_engine::{Clock, Engine};
use dovetail_model::{ClusterSpec, Command, Event, JobKey, JobSpec, Time, Work};
use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::stage_table::{StageProfile, StageTable};
use dovetail_workload::{Format, Workload, read};

use crate::BenchError;
use crate::data::{existing, shared_file};
use crate::engine::{acknowledge, decide};
use crate::measurement::{CpuMeasurement, median, thread_cpu_seconds};

/// Policies that are replayed on each trace.
const POLICIES: [&str; 8] = [
    "srtf", "srsf", "tiresias", "antman", "sjf-bsbf", "themis", "muri-s", "muri-l",
];
/// Traces of Muri, from the shortest replay to the longest.
const TRACES: [&str; 3] = ["trace3", "trace1", "trace4"];
/// Decisions after one arrival each.
const ARRIVALS: u32 = 11;

/// Measures decisions with many queued jobs, and all policies over Muri's traces or the given one.
pub(crate) fn measure(trace: Option<&Path>) -> Result<Vec<CpuMeasurement>, BenchError> {
    let mut measurements = vec![
        regroup(1_000, "less than 10 ms")?,
        regroup(10_000, "less than 200 ms")?,
    ];
    let traces: Vec<PathBuf> = match trace {
        Some(path) => existing(path.to_owned()).into_iter().collect(),
        None => TRACES
            .iter()
            .filter_map(|name| shared_file(&format!("muri/trace-data/{name}.csv")))
            .collect(),
    };
    for path in traces {
        let workload = read(&path, Some(Format::Muri))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        measurements.extend(all_policies(&workload, &name)?);
    }
    Ok(measurements)
}

/// Replays a trace on 8 nodes with 8 GPUs with every policy, and adds up the CPU time.
fn all_policies(workload: &Workload, trace: &str) -> Result<Vec<CpuMeasurement>, BenchError> {
    let mut measurements = Vec::new();
    let mut total = 0.0;
    for policy in POLICIES {
        let mut config = SimConfig::new(ClusterSpec::uniform(8, 8));
        config.segments = 0;
        config.restart_cost = Time::from_secs(30);
        let (built, needs) = build(policy, &Overrides::default())?;
        let start = thread_cpu_seconds();
        let record = simulate(workload, built, needs, &config)?;
        let seconds = thread_cpu_seconds() - start;
        total += seconds;
        measurements.push(CpuMeasurement {
            name: format!("{trace}, {policy}"),
            seconds,
            value: record.summary.avg_jct_s,
            unit: "s average JCT",
            goal: "",
        });
    }
    measurements.push(CpuMeasurement {
        name: format!("{trace}, all {} policies", POLICIES.len()),
        seconds: total,
        value: total * 1000.0,
        unit: "ms",
        goal: "less than 2 s",
    });
    Ok(measurements)
}

/// Measures the decision after one arrival with this many jobs, all of which can run if four share GPUs: the median of
/// whole decisions, commands included, in wall time, because they are too short for the clock of CPU time.
fn regroup(jobs: u32, goal: &'static str) -> Result<CpuMeasurement, BenchError> {
    let profiles = StageTable::default().rows;
    let specs: Vec<JobSpec> = (0..jobs + ARRIVALS).map(|i| job(i, &profiles)).collect();
    let gpus: u32 = specs.iter().map(|spec| spec.gpus).sum();
    let (policy, _) = build("muri-s", &Overrides::default())?;
    let cluster = ClusterSpec::uniform(gpus.div_ceil(4 * 8) + 1, 8);
    let mut engine = Engine::with_cluster(policy, Clock::Events, &cluster);
    let mut times = Vec::new();
    let mut now = Time::ZERO;
    for (i, spec) in specs.into_iter().enumerate() {
        engine.handle(now, Event::Submitted(spec));
        if i as u32 + 1 < jobs {
            continue;
        }
        let start = Instant::now();
        let commands = decide(&mut engine);
        times.push(start.elapsed().as_secs_f64());
        acknowledge_all(&mut engine, now, commands);
        now += Time::from_secs(60);
    }
    // The first decision starts all jobs; each later one is for one arrival.
    times.remove(0);
    Ok(CpuMeasurement {
        name: format!("regroup {} jobs after an arrival, muri-s", count(u64::from(jobs))),
        seconds: times.iter().sum(),
        value: median(times) * 1e6,
        unit: "us",
        goal,
    })
}

/// Reports commands as done until the engine has no more of them.
fn acknowledge_all(engine: &mut Engine, now: Time, mut commands: Vec<Command>) {
    while !commands.is_empty() {
        for command in &commands {
            acknowledge(engine, now, command);
        }
        commands = decide(engine);
    }
}

/// Creates a job of one of the measured models, with one to eight GPUs.
fn job(number: u32, profiles: &[StageProfile]) -> JobSpec {
    // A multiplicative hash: looks random, and is the same in every run.
    let hash = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let narrow: Vec<&StageProfile> = profiles.iter().filter(|profile| profile.gpus <= 8).collect();
    let profile = narrow[hash as usize % narrow.len()];
    let mut spec = JobSpec::new(JobKey(number), profile.gpus);
    spec.stages = Some(profile.stages);
    spec.expected = Some(Work::from_secs_f64(3600.0 + (hash % 100_000) as f64));
    spec
}
