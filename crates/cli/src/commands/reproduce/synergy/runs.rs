//! Runs of Synergy's experiments: its clusters, its jobs, and what they give.

use std::path::Path;

use dovetail_model::run::RunRecord;
use dovetail_model::{ClusterSpec, Rate, Work};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{Journal, SimConfig, Speeds, compat, simulate, simulate_with, speeds};
use dovetail_workload::{Format, SensitivityTable, Workload, read};

use crate::failure::{Blame, Failure};

/// Sizings, in the order they are shown.
pub(super) const SIZINGS: [&str; 3] = ["proportional", "greedy", "tune"];

/// Nodes of 8 GPUs, so many CPUs for each, and 500 GB.
pub(super) fn cluster(nodes: u32, cpus_per_gpu: u32) -> ClusterSpec {
    let mut cluster = ClusterSpec::uniform(nodes, 8);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (8000 * cpus_per_gpu, 500 * 1024);
    }
    cluster
}

/// Jobs of a replay file, or of a file of results, as they run on that cluster.
pub(super) fn jobs(path: &Path, cluster: &ClusterSpec) -> Result<Workload, Failure> {
    let mut workload = read(path, Some(Format::Synergy)).or_request()?;
    join(&mut workload, cluster);
    Ok(workload)
}

/// Gives the jobs the curves that suit the cluster.
pub(super) fn join(workload: &mut Workload, cluster: &ClusterSpec) {
    if let Some(table) = SensitivityTable::of_cluster(cluster) {
        workload.join_sensitivity(&table);
    }
}

/// Our preset for a policy of Synergy.
pub(super) fn preset(policy: &str) -> &str {
    match policy {
        "fifo" => "fifo-backfill",
        other => other,
    }
}

/// A run with our own model of time, over jobs of these positions.
pub(super) fn exact(
    workload: &Workload,
    cluster: &ClusterSpec,
    policy: &str,
    sizing: &str,
    track: Option<(u32, u32)>,
) -> Result<RunRecord, Failure> {
    let mut config = SimConfig::new(cluster.clone());
    (config.segments, config.track) = (0, track);
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (built, needs) = build(preset(policy), &overrides).or_work()?;
    simulate(workload, built, needs, &config).or_work()
}

/// A run with our own model of time over all jobs, with their speeds and the bound of them.
pub(super) fn exact_with_speeds(
    workload: &Workload,
    cluster: &ClusterSpec,
    policy: &str,
    sizing: &str,
) -> Result<(RunRecord, Speeds), Failure> {
    let mut config = SimConfig::new(cluster.clone());
    config.segments = 0;
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (built, needs) = build(preset(policy), &overrides).or_work()?;
    let mut journal = Journal::default();
    let record = simulate_with(workload, built, needs, &config, Some(&mut journal), &mut |_| {}).or_work()?;
    Ok((record, speeds(workload, cluster, &journal)))
}

/// The same as Synergy's simulator counts.
pub(super) fn as_reference(
    workload: &Workload,
    cluster: &ClusterSpec,
    policy: &str,
    sizing: &str,
) -> Result<RunRecord, Failure> {
    let mut config = SimConfig::new(cluster.clone());
    config.segments = 0;
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (built, needs) = compat::synergy(policy, &overrides, workload, &mut config).or_work()?;
    simulate(workload, built, needs, &config).or_work()
}

/// Models of each class: image, language, speech.
const CLASSES: [&[&str]; 3] = [
    &["alexnet", "res18", "res50", "mobilenet", "shufflenet"],
    &["gnmt", "transformer", "lstm"],
    &["m5", "deepspeech"],
];

/// The same jobs with other models: the class that is furthest behind its part is next, and its models take turns. Run
/// times at the proportional share stay as they are.
pub(super) fn with_split(workload: &Workload, split: [u32; 3], cluster: &ClusterSpec) -> Workload {
    let mut changed = workload.clone();
    let names = &mut changed.names.models;
    let ids: Vec<Vec<_>> = CLASSES
        .iter()
        .map(|models| models.iter().map(|m| names.push((*m).to_owned())).collect())
        .collect();
    let mut count = [0_usize; 3];
    for (i, job) in changed.jobs.iter_mut().enumerate() {
        let behind = |class: usize| {
            let part = if i == 0 {
                0.0
            } else {
                count[class] as f64 / i as f64
            };
            f64::from(split[class]) / f64::from(split.iter().sum::<u32>().max(1)) - part
        };
        let class = (0..3).fold(0, |best, c| if behind(c) > behind(best) { c } else { best });
        job.model = Some(ids[class][count[class] % ids[class].len()]);
        job.iterations = None;
        count[class] += 1;
    }
    join(&mut changed, cluster);
    changed
}

/// The part of all work that the speed of ideal shares would save, for people to see how much there is to gain.
pub(super) fn possible_gain(workload: &Workload) -> f64 {
    let time = |job: &dovetail_workload::TraceJob| {
        let top = job.sensitivity.as_ref().map_or(Rate::FULL, |s| s.top());
        top.time_for(job.work).as_secs_f64() * f64::from(job.gpus)
    };
    let alone: f64 = workload
        .jobs
        .iter()
        .map(|j| Work(j.work.0).as_secs_f64() * f64::from(j.gpus))
        .sum();
    alone / workload.jobs.iter().map(time).sum::<f64>().max(1e-9)
}
