//! Runs of Synergy's experiments: its clusters and its jobs.

use std::path::Path;

use dovetail_engine::{Knowledge, Policy};
use dovetail_model::run::RunRecord;
use dovetail_model::{ClusterSpec, Rate};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{Journal, SimConfig, Speeds, compat, simulate, simulate_with, speeds};
use dovetail_workload::{Format, SensitivityTable, TraceJob, Workload, read};

use crate::ReproduceError;

/// Returns nodes with 8 GPUs, this many CPUs per GPU, and 500 GB of memory.
pub(super) fn cluster(nodes: u32, cpus_per_gpu: u32) -> ClusterSpec {
    let mut cluster = ClusterSpec::uniform(nodes, 8);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (8000 * cpus_per_gpu, 500 * 1024);
    }
    cluster
}

/// Reads the jobs of a replay file or a result file, with the speeds they have on the cluster.
pub(super) fn read_jobs(path: &Path, cluster: &ClusterSpec) -> Result<Workload, ReproduceError> {
    let mut workload = read(path, Some(Format::Synergy))?;
    join_sensitivity(&mut workload, cluster);
    Ok(workload)
}

/// Sets the speeds of jobs by CPU and memory from the table for the cluster.
pub(super) fn join_sensitivity(workload: &mut Workload, cluster: &ClusterSpec) {
    if let Some(table) = SensitivityTable::of_cluster(cluster) {
        dovetail_workload::join_sensitivity(workload, &table);
    }
}

fn overrides(sizing: &str) -> Overrides {
    Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    }
}

/// Builds our preset for a policy of Synergy.
fn preset(policy: &str, sizing: &str) -> Result<(Policy, Knowledge), ReproduceError> {
    let name = match policy {
        "fifo" => "fifo-backfill",
        other => other,
    };
    Ok(build(name, &overrides(sizing))?)
}

/// Runs a policy with our own time model. Averages are computed over the jobs in `track`.
pub(super) fn exact(
    workload: &Workload,
    cluster: &ClusterSpec,
    policy: &str,
    sizing: &str,
    track: Option<(u32, u32)>,
) -> Result<RunRecord, ReproduceError> {
    let mut config = SimConfig::new(cluster.clone());
    (config.segments, config.track) = (0, track);
    let (built, needs) = preset(policy, sizing)?;
    Ok(simulate(workload, built, needs, &config)?)
}

/// Runs a policy with our own time model, and returns the speeds of its jobs and their upper bound as well.
pub(super) fn exact_with_speeds(
    workload: &Workload,
    cluster: &ClusterSpec,
    policy: &str,
    sizing: &str,
) -> Result<(RunRecord, Speeds), ReproduceError> {
    let mut config = SimConfig::new(cluster.clone());
    config.segments = 0;
    let (built, needs) = preset(policy, sizing)?;
    let mut journal = Journal::default();
    let record = simulate_with(workload, built, needs, &config, Some(&mut journal), &mut |_| {})?;
    Ok((record, speeds(workload, cluster, &journal)))
}

/// Runs a policy with the time model of Synergy's simulator.
pub(super) fn reference(
    workload: &Workload,
    cluster: &ClusterSpec,
    policy: &str,
    sizing: &str,
) -> Result<RunRecord, ReproduceError> {
    let mut config = SimConfig::new(cluster.clone());
    config.segments = 0;
    let (built, needs) = compat::synergy(policy, &overrides(sizing), workload, &mut config)?;
    Ok(simulate(workload, built, needs, &config)?)
}

/// Models of each class: image, language, speech.
const CLASSES: [&[&str]; 3] = [
    &["alexnet", "res18", "res50", "mobilenet", "shufflenet"],
    &["gnmt", "transformer", "lstm"],
    &["m5", "deepspeech"],
];

/// Returns the same jobs with other models. Each job gets a model of the class that is furthest below its share, and the
/// models of a class take turns. Run times with proportional shares do not change.
pub(super) fn with_split(workload: &Workload, split: [u32; 3], cluster: &ClusterSpec) -> Workload {
    let mut changed = workload.clone();
    let names = &mut changed.names.models;
    let models: Vec<Vec<_>> = CLASSES
        .iter()
        .map(|models| models.iter().map(|m| names.push((*m).to_owned())).collect())
        .collect();
    let mut jobs_by_class = [0_usize; 3];
    for (i, job) in changed.jobs.iter_mut().enumerate() {
        let below_share = |class: usize| {
            let share = if i == 0 {
                0.0
            } else {
                jobs_by_class[class] as f64 / i as f64
            };
            f64::from(split[class]) / f64::from(split.iter().sum::<u32>().max(1)) - share
        };
        let class = (0..3).fold(0, |best, class| {
            if below_share(class) > below_share(best) {
                class
            } else {
                best
            }
        });
        job.model = Some(models[class][jobs_by_class[class] % models[class].len()]);
        job.iterations = None;
        jobs_by_class[class] += 1;
    }
    join_sensitivity(&mut changed, cluster);
    changed
}

/// Returns by how much faster all jobs would be with ideal shares of CPU and memory, weighted by GPUs.
pub(super) fn possible_gain(workload: &Workload) -> f64 {
    let gpu_seconds = |rate: fn(&TraceJob) -> Rate| -> f64 {
        workload
            .jobs
            .iter()
            .map(|job| rate(job).time_for(job.work).as_secs_f64() * f64::from(job.gpus))
            .sum()
    };
    let ideal = gpu_seconds(|job| job.sensitivity.as_ref().map_or(Rate::FULL, |s| s.top()));
    gpu_seconds(|_| Rate::FULL) / ideal.max(1e-9)
}
