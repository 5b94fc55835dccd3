//! On Synergy's own workloads `tune` is never worse than `proportional` or `greedy`, and close to the bound.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_model::ClusterSpec;
use dovetail_policies::{Overrides, build};
use dovetail_sim::{Journal, SimConfig, Speeds, simulate_with, speeds};
use dovetail_testkit::shared;
use dovetail_workload::{Format, SensitivityTable, Workload, join_sensitivity, read};

/// The traces that come with Synergy, and jobs from its generator: on one GPU each, and on 1 to 16.
const WORKLOADS: [(&str, &str); 5] = [
    ("static", "inputs/static_100job.csv"),
    ("dynamic", "inputs/dynamic_srtf.csv"),
    ("phS32", "outputs/phS32_SRTF_greedy.jobs.csv"),
    ("phM32", "outputs/phM32_FIFO_greedy.jobs.csv"),
    ("phM32lo", "outputs/phM32lo_LAS_greedy.jobs.csv"),
];
const ORDERS: [&str; 6] = ["fifo-backfill", "srtf", "las", "ftf", "drf", "tetris"];

fn cluster() -> ClusterSpec {
    let mut cluster = ClusterSpec::uniform(4, 8);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (24_000, 500 * 1024);
    }
    cluster
}

/// Returns the average JCT in hours, and speeds with their bound.
fn run(workload: &Workload, order: &str, sizing: &str) -> (f64, Speeds) {
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (policy, needs) = build(order, &overrides).unwrap();
    let mut config = SimConfig::new(cluster());
    config.segments = 0;
    let mut journal = Journal::default();
    let record = simulate_with(workload, policy, needs, &config, Some(&mut journal), &mut |_| {}).unwrap();
    assert!(record.rows.iter().all(|row| row.finish.is_some()), "all jobs end");
    let speeds = speeds(workload, &cluster(), &journal);
    assert!(
        speeds.achieved <= speeds.bound * 1.000_001,
        "{order} {sizing}: {speeds:?} beyond the bound"
    );
    (record.summary.avg_jct_s / 3600.0, speeds)
}

#[test]
fn tune_is_never_worse_than_proportional_or_greedy() {
    let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "synergy") else {
        return;
    };
    let mut behind = Vec::new();
    for (name, file) in WORKLOADS {
        let mut workload = read(folder.join(file), Some(Format::Synergy)).unwrap_or_else(|e| panic!("{e}"));
        join_sensitivity(&mut workload, &SensitivityTable::of_cluster(&cluster()).unwrap());
        for order in ORDERS {
            let [proportional, greedy] = ["proportional", "greedy"].map(|s| run(&workload, order, s).0);
            let (tune, speeds) = run(&workload, order, "tune");
            let missing = speeds.missing();
            if tune > proportional.min(greedy) || missing > 0.05 {
                behind.push(format!(
                    "{name} {order}: {tune:.4} h, proportional {proportional:.4}, greedy {greedy:.4}; {:.2} % below the bound",
                    missing * 100.0
                ));
            }
        }
    }
    assert!(
        behind.is_empty(),
        "{} cells:\n{}",
        behind.len(),
        behind.join("\n")
    );
}
