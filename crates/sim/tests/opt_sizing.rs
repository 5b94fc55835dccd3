//! The sizing `opt`: no job below its proportional share, no node over-allocated, and the best use of the rest.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use dovetail_model::run::RunRecord;
use dovetail_model::{ClusterSpec, JobKey, JobSpec, Rate, Share};
use dovetail_policies::sizing::opt::{BUDGET, Weight, cluster_bound};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::{Format, SensitivityTable, Workload, join_sensitivity, read_from};
use proptest::prelude::*;

/// Synergy's models with the iteration time at the proportional share.
const MODELS: [(&str, f64); 10] = [
    ("alexnet", 0.6),
    ("res18", 0.64),
    ("res50", 0.78),
    ("mobilenet", 0.71),
    ("shufflenet", 0.615),
    ("gnmt", 0.12),
    ("transformer", 0.67),
    ("lstm", 0.011),
    ("m5", 0.6),
    ("deepspeech", 0.757),
];

fn cluster(nodes: u32) -> ClusterSpec {
    let mut cluster = ClusterSpec::uniform(nodes, 8);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (24_000, 500 * 1024);
    }
    cluster
}

fn workload(lines: &str) -> Workload {
    let mut workload = read_from(lines.as_bytes(), "jobs", Some(Format::Synergy)).unwrap();
    join_sensitivity(&mut workload, &SensitivityTable::builtin("synergy-3").unwrap());
    workload
}

fn run(workload: &Workload, nodes: u32, preset: &str, sizing: &str) -> RunRecord {
    let mut config = SimConfig::new(cluster(nodes));
    config.check = true;
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (policy, needs) = build(preset, &overrides).unwrap();
    simulate(workload, policy, needs, &config).unwrap()
}

fn ends(record: &RunRecord) -> Vec<f64> {
    let end = |row: &dovetail_model::run::JobRow| row.finish.unwrap().as_secs_f64();
    record.rows.iter().map(end).collect()
}

#[test]
fn cpus_that_language_models_leave_are_used_where_they_gain_most() {
    // Two AlexNets of 3000 s at their proportional share; six other jobs leave 18 CPUs and 375 GB. The optimum is 12
    // CPUs at speed 2.94 for one and 6 at 1.75 for the other, until the first finishes.
    let mut lines = "0,alexnet,0,5000,1\n1,alexnet,0,5000,1\n".to_owned();
    (2..8).for_each(|i| lines += &format!("{i},gnmt,0,100000,1\n"));
    let ends = ends(&run(&workload(&lines), 1, "fifo-backfill", "opt"));
    let mut alexnets = [ends[0], ends[1]];
    alexnets.sort_by(f64::total_cmp);
    let first = 3000.0 / 2.94;
    let second = first + (3000.0 - first * 1.75) / 2.94;
    assert!(
        (alexnets[0] - first).abs() < 0.1,
        "{alexnets:?}, expected {first}"
    );
    assert!(
        (alexnets[1] - second).abs() < 0.1,
        "{alexnets:?}, expected {second}"
    );
    assert!(
        ends[2..].iter().all(|end| (end - 12_000.0).abs() < 0.1),
        "{ends:?}"
    );
}

#[test]
fn the_bound_of_a_cluster_is_reached_with_a_single_node() {
    let table = SensitivityTable::builtin("synergy-3").unwrap();
    let job = |i: u32, model: &str| {
        let mut spec = JobSpec::new(JobKey(i), 1);
        spec.sensitivity = Some(Arc::clone(&table.find(model, 1, None).unwrap().sensitivity));
        spec
    };
    let models = [
        "alexnet", "alexnet", "gnmt", "gnmt", "gnmt", "gnmt", "gnmt", "gnmt",
    ];
    let jobs: Vec<JobSpec> = (0..).zip(models).map(|(i, model)| job(i, model)).collect();
    let fair = Share::new(3000, 64_000);
    let each = jobs.iter().map(|job| (job, fair.times(8)));
    let choice = cluster_bound(each, [24_000, 512_000], fair, Weight::Jobs, BUDGET).unwrap();
    let full = u64::from(Rate::FULL.0);
    assert_eq!(choice.gain, 6 * full + 2_940_000 + 1_750_000);
    assert!(choice.exact && choice.bound >= choice.gain, "{choice:?}");
}

#[test]
fn opt_shortens_completion_times_under_every_order() {
    let mut lines = String::new();
    for i in 0..40u32 {
        let (model, seconds) = MODELS[(i * 7 % 10) as usize];
        let gpus = [1, 1, 2, 1, 4, 1, 8, 1][(i % 8) as usize];
        let iterations = (600.0 + f64::from(i * 37 % 23) * 300.0) / seconds;
        lines += &format!("{i},{model},{},{},{gpus}\n", i * 120, iterations as u64);
    }
    let workload = workload(&lines);
    for preset in [
        "fifo-backfill",
        "srtf",
        "srsf",
        "las",
        "tiresias",
        "themis",
        "fifo-easy",
    ] {
        let opt = run(&workload, 2, preset, "opt");
        let fair = run(&workload, 2, preset, "proportional");
        assert_eq!(opt.summary.finished, 40, "{preset}");
        assert!(
            opt.summary.avg_jct_s < fair.summary.avg_jct_s,
            "{preset}: {} and {} s",
            opt.summary.avg_jct_s,
            fair.summary.avg_jct_s
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Jobs that all fit at once never wait: each finishes no later than alone with its proportional share.
    #[test]
    fn no_job_is_slower_than_with_its_proportional_share(
        jobs in prop::collection::vec((0..10usize, 300..5000u32, 0..900u32), 1..=8),
        by_jobs in any::<bool>(),
    ) {
        let mut lines = String::new();
        for (i, (model, seconds, at)) in jobs.iter().enumerate() {
            let (model, each) = MODELS[*model];
            lines += &format!("{i},{model},{at},{},1\n", (f64::from(*seconds) / each).ceil() as u64);
        }
        let workload = workload(&lines);
        let record = run(&workload, 1, "fifo-backfill", if by_jobs { "opt:weight=jobs" } else { "opt" });
        for (row, job) in record.rows.iter().zip(&workload.jobs) {
            let latest = job.submit.as_secs_f64() + job.work.0 as f64 / 1e6;
            let end = row.finish.unwrap().as_secs_f64();
            prop_assert!(end <= latest + 0.01, "ends at {} s, {} s at the latest", end, latest);
        }
    }
}
