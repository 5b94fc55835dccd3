//! HiveD's experiments: the reports that people see.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use dovetail_reproduce::{Options, Report, find};
use insta::assert_snapshot;

fn run(name: &str, data: &Path) -> Report {
    let options = Options {
        out: None,
        data: Some(data.to_owned()),
        seed: 1,
        full: false,
        json: false,
        quiet: true,
    };
    find(name).unwrap().run(&options).unwrap()
}

/// Runs an experiment of the lab on its own files, if they are available.
fn run_lab(name: &str) -> Option<String> {
    let folder = dovetail_testkit::shared(env!("CARGO_MANIFEST_DIR"), "hived")?;
    let report = run(name, folder.parent()?);
    report.check().unwrap();
    Some(report.text())
}

#[test]
fn four_users_share_a_virtual_cluster_of_one_machine() {
    if let Some(text) = run_lab("lab6-vc-safety") {
        assert_snapshot!(text);
    }
}

#[test]
fn a_job_of_higher_priority_preempts() {
    if let Some(text) = run_lab("lab6-preemption") {
        assert_snapshot!(text);
    }
}

#[test]
fn an_opportunistic_job_returns_what_it_borrowed() {
    if let Some(text) = run_lab("lab6-opportunistic") {
        assert_snapshot!(text);
    }
}

#[test]
fn a_gang_starts_together_or_not_at_all() {
    if let Some(text) = run_lab("lab6-gang") {
        assert_snapshot!(text);
    }
}

#[test]
fn instances_start_independently() {
    if let Some(text) = run_lab("lab6-incremental") {
        assert_snapshot!(text);
    }
}

/// Writes a trace of three tenants whose jobs arrive in bursts. Jobs of the tenant `odd` leave three GPUs of a machine
/// unused, which delays other tenants as soon as they share its machines.
fn write_trace(folder: &Path) {
    let mut jobs: Vec<(usize, String)> = Vec::new();
    for i in 0..120 {
        let burst = i / 12 * 300;
        jobs.push((burst + i % 12, format!("{},5,0,odd", 1800 + i % 13 * 2400)));
        jobs.push((burst + 1 + i % 12 * 3, format!("{},8,0,wide", 1200 + i % 5 * 900)));
        let mixed = format!("{},{},0,mixed", 900 + i % 7 * 1500, [1, 2, 4, 8][i % 4]);
        jobs.push((burst + 2 + i % 12 * 2, mixed));
    }
    jobs.sort_by_key(|(minute, _)| *minute);
    let mut text = "timestamp,duration,num_gpus,gpu_time,cluster\n".to_owned();
    for (minute, job) in jobs {
        let (day, hour, minute) = (1 + minute / 1440, minute / 60 % 24, minute % 60);
        let _ = writeln!(text, "2017-10-{day:02} {hour:02}:{minute:02}:00,{job}");
    }
    std::fs::create_dir_all(folder).unwrap();
    let file = std::fs::File::create(folder.join("philly.csv.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    packed.finish().unwrap();
}

#[test]
fn cells_have_no_sharing_anomaly() {
    let dir = tempfile::tempdir().unwrap();
    write_trace(&dir.path().join("traces/philly-pollux"));
    let report = run("hived-sharing-anomaly", dir.path());
    assert_snapshot!(report.text());
    report.save(&dir.path().join("out"), "title").unwrap();
    for policy in ["tiresias", "srsf"] {
        let figure = format!("out/figures/hived-sharing-anomaly-{policy}.svg");
        assert!(dir.path().join(figure).is_file());
    }
}
