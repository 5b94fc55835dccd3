//! `--compat blox` gives the same finish second for every job of Blox's own runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_model::ClusterSpec;
use dovetail_policies::Overrides;
use dovetail_sim::{SimConfig, compat, simulate};
use dovetail_testkit::shared;
use dovetail_workload::{Format, read};

/// Runs one set and compares every job of the golden file; returns (jobs, average JCT, preemptions).
fn check(set: &str, policy: &str, admission: Option<&str>) -> Option<(usize, f64, u64)> {
    let folder = shared(env!("CARGO_MANIFEST_DIR"), "blox")?.join(set);
    let workload = read(folder.join("workload.csv"), Some(Format::Blox)).unwrap();
    let golden = {
        let mut name = policy.to_owned();
        name[..1].make_ascii_uppercase();
        std::fs::read_to_string(folder.join(format!("jct_{name}.csv"))).ok()
    };
    let tracked = golden.as_ref().map_or(100, |g| g.lines().count() as u32 - 1);
    let mut config = SimConfig::new(ClusterSpec::uniform(32, 4));
    config.track = Some((0, tracked - 1));
    config.check = true;
    let overrides = Overrides {
        admission: admission.map(str::to_owned),
        ..Overrides::default()
    };
    let (built, needs) = compat::blox(policy, &overrides, &workload, None, &mut config).unwrap();
    let record = simulate(&workload, built, needs, &config).unwrap();
    for line in golden.iter().flat_map(|g| g.lines().skip(1)) {
        let cells: Vec<&str> = line.split(',').collect();
        let (job, finish): (usize, i64) = (cells[0].parse().unwrap(), cells[4].parse().unwrap());
        let ours = record.rows[job].finish.map(|t| t.as_secs_f64());
        assert_eq!(
            ours,
            Some(finish as f64),
            "{set} {policy}: the first job that differs is {job}"
        );
    }
    Some((
        record.rows.len(),
        record.summary.avg_jct_s,
        record.summary.preemptions,
    ))
}

#[test]
fn every_job_finishes_when_the_golden_files_state() {
    check("S_small_single_load40", "fifo", None);
    check("S_small_single_load40", "las", None);
    check("S_small_single_load40", "srtf", None);
    check("M_small_multi_load16", "fifo", None);
    check("O_default_single_load2", "las", None);
    check("O_default_single_load2", "srtf", None);
    check("O_default_single_load2", "optimus", None);
    check("A_small_single_load80_admit1.2", "fifo", Some("load:1.2"));
    check("T_small_single_load40_tiresias", "tiresias", None);
}

#[test]
fn averages_match_for_runs_without_a_golden_file() {
    let near = |a: f64, b: f64| (a - b).abs() < 0.01;
    if let Some((_, avg, preemptions)) = check("M_small_multi_load16", "las", None) {
        assert!(
            near(avg, 10_819.12),
            "LAS on M: {avg} s, {preemptions} preemptions"
        );
    }
    if let Some((_, avg, preemptions)) = check("M_small_multi_load16", "srtf", None) {
        assert!(
            near(avg, 11_077.12),
            "SRTF on M: {avg} s, {preemptions} preemptions"
        );
    }
}
