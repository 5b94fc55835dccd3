//! `dovetail simulate`, as people see it.

mod common;

use common::{dovetail, dovetail_in};
use insta::assert_snapshot;

#[test]
fn json_has_the_figures_scripts_rely_on() {
    let shown = dovetail(&[
        "simulate",
        "--jobs",
        "200",
        "--policy",
        "srsf",
        "--cluster",
        "4x8",
        "--json",
        "--check",
    ]);
    assert_snapshot!(shown);
    for key in [
        "policy",
        "trace",
        "cluster",
        "nodes",
        "gpus",
        "seed",
        "jobs",
        "finished",
        "avg_jct_s",
        "median_jct_s",
        "p95_jct_s",
        "p99_jct_s",
        "makespan_s",
        "avg_wait_s",
        "avg_slowdown",
        "preemptions",
        "gpu_utilization",
        "lower_bound_avg_jct_s",
        "events",
        "rounds",
    ] {
        assert!(shown.contains(&format!("\"{key}\"")), "{key} is missing");
    }
}

#[test]
fn out_writes_the_files_scripts_rely_on() {
    let dir = tempfile::tempdir().unwrap();
    let trace = "submit_s,duration_s,gpus,job_id,tenant\n0,100,4,a,red\n0,50.5,4,b,blue\n10,20,8,c,red\n";
    std::fs::write(dir.path().join("jobs.csv"), trace).unwrap();
    let args = [
        "simulate",
        "--trace",
        "jobs.csv",
        "--cluster",
        "1x8",
        "--policy",
        "fifo",
        "--out",
        "run",
        "--quiet",
    ];
    dovetail_in(dir.path(), &args);
    for file in ["summary.json", "jobs.csv", "timeline.csv", "report.html"] {
        assert!(dir.path().join("run").join(file).is_file(), "{file} is missing");
    }
    assert_snapshot!(std::fs::read_to_string(dir.path().join("run/jobs.csv")).unwrap());
    let again = std::fs::read(dir.path().join("run/jobs.csv")).unwrap();
    dovetail_in(dir.path(), &args);
    assert_eq!(
        again,
        std::fs::read(dir.path().join("run/jobs.csv")).unwrap(),
        "same seed, same bytes"
    );
}

#[test]
fn a_scenario_file_holds_flags_and_flags_win() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = "policy: las:quantum=10m\ncluster: 2x8\njobs: 60\nload: 1.2\nrestart-cost: 30s\nseed: 7\n";
    std::fs::write(dir.path().join("s.yaml"), scenario).unwrap();
    let shown = dovetail_in(dir.path(), &["simulate", "s.yaml", "--seed", "8", "--json"]);
    assert!(shown.contains("\"policy\": \"las:quantum=10m\""), "{shown}");
    assert!(shown.contains("\"seed\": 8"), "{shown}");
    assert!(shown.contains("\"gpus\": 16"), "{shown}");
}

#[test]
fn failures_and_rounds_run_through_with_every_check_on() {
    let shown = dovetail(&[
        "simulate",
        "--jobs",
        "150",
        "--cluster",
        "4x8",
        "--load",
        "1",
        "--policy",
        "tiresias",
        "--mtbf",
        "2d",
        "--checkpoint",
        "30m",
        "--checkpoint-cost",
        "10s",
        "--restart-cost",
        "1m",
        "--clock",
        "rounds:60s",
        "--check",
        "--json",
    ]);
    assert!(
        shown.contains("\"finished\": 150") && shown.ends_with("exit code 0\n"),
        "{shown}"
    );
}

#[test]
fn what_is_wrong_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("bad.csv", "submit_s,duration_s,gpus\n0,10,1\n5,20,four\n");
    write("cut.csv", "submit_s,duration_s\n0,10\n");
    write("empty.csv", "");
    write("fail.csv", "node-0,10,5\n");
    write("s.yaml", "clusters: 16x8\n");
    write("c.yaml", "racks:\n  - nodes: 2\n    gpu: 8\n");
    let cases: &[&[&str]] = &[
        &["simulate", "--policy", "tiresas"],
        &["simulate", "--policy", "tiresias:limit=3"],
        &["simulate", "--policy", "tiresias:limits=9/3"],
        &["simulate", "--placement", "consolidated"],
        &["simulate", "--policy", "srsf", "--knowledge", "none"],
        &["simulate", "--trace", "nowhere.csv"],
        &["simulate", "--trace", "bad.csv"],
        &["simulate", "--trace", "cut.csv"],
        &["simulate", "--trace", "empty.csv"],
        &["simulate", "--trace", "bad.csv", "--trace-format", "filly"],
        &["simulate", "--cluster", "16by8"],
        &["simulate", "--cluster", "c.yaml"],
        &["simulate", "--clock", "rounds:0s"],
        &["simulate", "--restart-cost", "soon"],
        &["simulate", "--track", "9..1"],
        &["simulate", "--track", "90000..90001"],
        &["simulate", "--failures", "fail.csv"],
        &["simulate", "--load", "-1"],
        &["simulate", "--generate", "phily-like"],
        &["simulate", "--elastic", "2..4"],
        &["simulate", "--spread-penalty", "1.5"],
        &["simulate", "--compat", "blox", "--policy", "srsf"],
        &["simulate", "--emit", "muri"],
        &["simulate", "--emit", "blox", "--out", "run"],
        &["simulate", "s.yaml"],
        &["simulate", "nowhere.yaml"],
    ];
    let shown: Vec<String> = cases.iter().map(|args| dovetail_in(dir.path(), args)).collect();
    for (args, shown) in cases.iter().zip(&shown) {
        assert!(
            shown.ends_with("exit code 2\n"),
            "{args:?} is a wrong request:\n{shown}"
        );
    }
    assert_snapshot!(shown.join("\n"));
}
