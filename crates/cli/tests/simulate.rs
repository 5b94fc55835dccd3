//! Output and error messages of `dovetail simulate`.

mod common;

use common::{dovetail, dovetail_in};
use insta::assert_snapshot;

#[test]
fn json_has_the_keys_of_the_interface() {
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
fn out_writes_the_files_of_the_interface() {
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
fn flags_take_precedence_over_a_scenario_file() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = "policy: las:quantum=10m\ncluster: 2x8\njobs: 60\nload: 1.2\nrestart-cost: 30s\nseed: 7\n";
    std::fs::write(dir.path().join("s.yaml"), scenario).unwrap();
    let shown = dovetail_in(dir.path(), &["simulate", "s.yaml", "--seed", "8", "--json"]);
    assert!(shown.contains("\"policy\": \"las:quantum=10m\""), "{shown}");
    assert!(shown.contains("\"seed\": 8"), "{shown}");
    assert!(shown.contains("\"gpus\": 16"), "{shown}");
}

#[test]
fn a_run_with_failures_and_rounds_passes_all_checks() {
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

/// Four jobs, then a week without jobs, then two more.
const GAP: &str = "0,alexnet,0,3349,4\n1,gnmt,.286,26435,1\n2,res18,30.5,9000,2\n3,m5,44,2000,8\n\
                   4,transformer,700000,500,1\n5,lstm,700100.25,90000,8\n";

fn replay(dir: &std::path::Path, trace: &str, out: &str, more: &[&str]) -> String {
    let base = [
        "simulate",
        "--trace",
        trace,
        "--trace-format",
        "synergy",
        "--cluster",
        "2x4",
        "--policy",
        "las",
    ];
    let rest = ["--out", out, "--json", "--quiet", "--check"];
    let shown = dovetail_in(dir, &[&base[..], &rest, more].concat());
    assert!(shown.contains("exit code 0"), "{shown}");
    std::fs::read_to_string(dir.join(out).join("jobs.csv")).expect("the run wrote its jobs")
}

#[test]
fn a_replay_of_a_record_gives_the_same_jobs_across_gaps() {
    for clock in ["events", "rounds:300s"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("gap.csv"), GAP).unwrap();
        let first = replay(
            dir.path(),
            "gap.csv",
            "a",
            &["--record", "again.csv", "--clock", clock],
        );
        let again = replay(dir.path(), "again.csv", "b", &["--clock", clock]);
        assert_eq!(first, again);
        assert_eq!(
            first.lines().count(),
            7,
            "all jobs finish, also those after the gap:\n{first}"
        );
        let recorded = std::fs::read_to_string(dir.path().join("again.csv")).unwrap();
        assert_eq!(recorded.lines().next(), Some("0,alexnet,0,3349,4"));
        assert_eq!(recorded.lines().last(), Some("5,lstm,700100.25,90000,8"));
    }
}

#[test]
fn a_recorded_workload_is_replayed_and_missing_columns_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "simulate",
        "--generate",
        "blox-small",
        "--jobs",
        "30",
        "--cluster",
        "2x8",
        "--record",
        "r.csv.gz",
    ];
    let shown = dovetail_in(dir.path(), &args);
    assert!(
        shown.contains("! note: r.csv.gz cannot represent: model of 30 jobs"),
        "{shown}"
    );
    let again = replay(dir.path(), "r.csv.gz", "b", &[]);
    assert_eq!(again.lines().count(), 31);
}

#[test]
fn an_unknown_model_is_reported_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("t.csv"), "0,alexnet,0,10,1\n1,alexnetz,0,10,1\n").unwrap();
    let shown = dovetail_in(
        dir.path(),
        &["simulate", "--trace", "t.csv", "--trace-format", "synergy"],
    );
    let line = shown.lines().find(|l| l.starts_with("! ")).unwrap_or_default();
    assert!(
        line.contains("t.csv:2: field model: found \"alexnetz\", expected a model"),
        "{shown}"
    );
    assert!(shown.contains("exit code 2"), "{shown}");
}

#[test]
fn quotas_are_read_from_the_command_line_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let trace = "submit_s,duration_s,gpus,job_id,tenant,priority\n0,100,8,a,red,-1\n10,50,4,b,blue,0\n20,10,6,c,red,0\n";
    std::fs::write(dir.path().join("jobs.csv"), trace).unwrap();
    std::fs::write(
        dir.path().join("shares.yaml"),
        "tenants: {red: 4, blue: {guaranteed: 4, borrow: 0}}\n",
    )
    .unwrap();
    let run = |tenancy: &str| {
        let args = [
            "simulate",
            "--trace",
            "jobs.csv",
            "--cluster",
            "1x8",
            "--policy",
            "srsf",
            "--check",
            "--tenancy",
        ];
        dovetail_in(dir.path(), &[&args[..], &[tenancy]].concat())
    };
    assert_snapshot!(
        [
            run("quota:shares.yaml"),
            run("quota:red=4"),
            run("quota:red=8,default=4"),
            run("quota:red=four"),
            run("quota"),
        ]
        .join("\n")
    );
    std::fs::write(
        dir.path().join("shares.yaml"),
        "tenants: {red: 4, blue: {borrow: 0}}\n",
    )
    .unwrap();
    let shown = run("quota:shares.yaml");
    assert!(
        shown.contains("shares.yaml") && shown.contains("guaranteed"),
        "{shown}"
    );
}

#[test]
fn virtual_clusters_are_read_from_a_configuration_of_hived() {
    let dir = tempfile::tempdir().unwrap();
    let cells = "physicalCluster:
  cellTypes:
    NODE: {childCellType: V100, childCellNumber: 4, isNodeLevel: true}
  physicalCells: [{cellType: NODE, cellAddress: n0}, {cellType: NODE, cellAddress: n1}]
virtualClusters:
  red: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
  blue: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
";
    std::fs::write(dir.path().join("cells.yaml"), cells).unwrap();
    let trace = "submit_s,duration_s,gpus,job_id,tenant,priority\n0,100,8,a,red,-1\n10,50,4,b,blue,0\n20,10,6,c,red,0\n";
    std::fs::write(dir.path().join("jobs.csv"), trace).unwrap();
    let run = |cluster: &str, policy: &str| {
        let args = [
            "simulate",
            "--trace",
            "jobs.csv",
            "--check",
            "--tenancy",
            "cells:cells.yaml",
        ];
        dovetail_in(
            dir.path(),
            &[&args[..], &["--cluster", cluster, "--policy", policy]].concat(),
        )
    };
    let mut shown = vec![
        run("cells.yaml", "srsf"),
        run("2x4", "srsf"),
        run("cells.yaml", "fifo-easy"),
    ];
    let trace = trace.replace("c,red", "c,blue").replace("10,6,c", "10,3,c");
    std::fs::write(dir.path().join("jobs.csv"), &trace).unwrap();
    let args = ["simulate", "--trace", "jobs.csv", "--cluster", "cells.yaml"];
    let args = [
        &args[..],
        &["--tenancy", "cells:cells.yaml", "--explain", "c", "--explain"],
    ]
    .concat();
    shown.push(dovetail_in(dir.path(), &[&args[..], &["a"]].concat()));
    shown.push(dovetail_in(dir.path(), &[&args[..], &["z"]].concat()));
    std::fs::write(dir.path().join("jobs.csv"), trace.replace("blue", "green")).unwrap();
    shown.push(run("cells.yaml", "srsf"));
    assert_snapshot!(shown.join("\n"));
}
