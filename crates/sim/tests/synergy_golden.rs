//! `--compat synergy` gives the finish times of Synergy's own simulator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_model::ClusterSpec;
use dovetail_policies::Overrides;
use dovetail_sim::{SimConfig, compat, simulate};
use dovetail_testkit::shared;
use dovetail_workload::{Format, SensitivityTable, Workload, join_sensitivity, read};

/// Four servers of 8 GPUs, 24 CPUs and 500 GB, as in all runs of the reference.
fn cluster() -> ClusterSpec {
    let mut cluster = ClusterSpec::uniform(4, 8);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (24_000, 500 * 1024);
    }
    cluster
}

/// Returns the jobs of a run: its results are a trace themselves.
fn jobs_of(path: &Path) -> Workload {
    let mut workload = read(path, Some(Format::Synergy)).unwrap_or_else(|e| panic!("{e}"));
    join_sensitivity(&mut workload, &SensitivityTable::of_cluster(&cluster()).unwrap());
    workload
}

/// Checks that every job that ended in the reference ends at the same time here; the message names the first that does not.
fn every_job(path: &Path, order: &str, sizing: &str) -> Result<usize, String> {
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let workload = jobs_of(path);
    let mut config = SimConfig::new(cluster());
    config.check = workload.jobs.len() <= 100;
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (policy, needs) = compat::synergy(order, &overrides, &workload, &mut config).unwrap();
    let record = simulate(&workload, policy, needs, &config).unwrap();
    let ours: BTreeMap<&str, f64> = record
        .rows
        .iter()
        .zip(&record.job_names)
        .map(|(row, name)| (name.as_str(), row.finish.map_or(f64::NAN, |t| t.as_secs_f64())))
        .collect();
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name).unwrap();
    let (id, finish) = (column("job_id"), column("finish_s"));
    let mut theirs: Vec<(f64, &str)> = lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter_map(|cells| Some((cells[finish].parse().ok()?, cells[id])))
        .collect();
    theirs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let differ: Vec<&(f64, &str)> = theirs.iter().filter(|(end, job)| ours[job] != *end).collect();
    match differ.first() {
        None => Ok(theirs.len()),
        Some((end, job)) => Err(format!(
            "{file}: {} of {} jobs differ; the first: job {job} ends at {} s, in the reference at {end} s",
            differ.len(),
            theirs.len(),
            ours[job]
        )),
    }
}

#[test]
fn every_job_finishes_when_the_golden_files_state() {
    let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "synergy") else {
        return;
    };
    let mut runs = 0;
    let mut jobs = 0;
    let mut wrong = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(folder.join("outputs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".jobs.csv") else {
            continue;
        };
        let parts: Vec<&str> = name.split('_').collect();
        let [_, order, mode] = parts[..] else { continue };
        let sizing = match mode {
            "fair" => "proportional",
            "greedy" | "tune" => mode,
            other => panic!("{file}: no sizing for {other}"),
        };
        match every_job(&path, &order.to_lowercase(), sizing) {
            Ok(met) => (runs, jobs) = (runs + 1, jobs + met),
            Err(difference) => wrong.push(difference),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} files differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        runs >= 33 && jobs > 5000,
        "only {runs} runs with {jobs} jobs were found"
    );
}
