//! `dovetail reproduce lab6-*` and `hived-sharing-anomaly`: what a person sees.

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::{dovetail, dovetail_in};
use insta::assert_snapshot;

/// Runs an experiment of the lab on its own files, if they are here.
fn lab(name: &str) -> Option<String> {
    let folder = dovetail_testkit::shared(env!("CARGO_MANIFEST_DIR"), "hived")?;
    let data = folder.parent()?.display().to_string();
    Some(dovetail(&["reproduce", name, "--data", &data]).replace(&data, "DATA"))
}

#[test]
fn one_virtual_cluster_one_machine_four_users() {
    if let Some(shown) = lab("lab6-vc-safety") {
        assert_snapshot!(shown);
    }
}

#[test]
fn higher_priority_comes_first() {
    if let Some(shown) = lab("lab6-preemption") {
        assert_snapshot!(shown);
    }
}

#[test]
fn who_borrows_gives_way() {
    if let Some(shown) = lab("lab6-opportunistic") {
        assert_snapshot!(shown);
    }
}

#[test]
fn all_instances_or_none() {
    if let Some(shown) = lab("lab6-gang") {
        assert_snapshot!(shown);
    }
}

#[test]
fn one_instance_at_a_time() {
    if let Some(shown) = lab("lab6-incremental") {
        assert_snapshot!(shown);
    }
}

/// Three tenants whose jobs come in bursts. Those of the first leave three GPUs of a machine over, which is nobody's trouble
/// but its own while it has machines to itself.
fn trace(folder: &Path) {
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
    std::fs::create_dir_all(folder).expect("a folder");
    let file = std::fs::File::create(folder.join("philly.csv.gz")).expect("a file");
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).expect("a full file");
    packed.finish().expect("a full file");
}

#[test]
fn cells_have_no_sharing_anomaly() {
    let dir = tempfile::tempdir().expect("a directory to run in");
    trace(&dir.path().join("data/traces/philly-pollux"));
    let args = [
        "reproduce",
        "hived-sharing-anomaly",
        "--data",
        "data",
        "--out",
        "out",
    ];
    let shown = dovetail_in(dir.path(), &args);
    assert_snapshot!(shown);
    for policy in ["tiresias", "srsf"] {
        let figure = format!("out/figures/hived-sharing-anomaly-{policy}.svg");
        assert!(dir.path().join(figure).is_file());
    }
}
