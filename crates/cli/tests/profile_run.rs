//! `dovetail profile run` on real processes.

mod common;

use common::{dovetail, dovetail_in};
use serde_json::Value;

/// Two processes that compute and print a line for each unit of work.
const BURN: &str = "work() { while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; echo piece; done; }
work & work & wait";
/// Five steps every 50 ms, printed to standard error, independent of the number of CPUs.
const STEPS: &str = "i=100; while :; do i=$((i+5)); echo \"epoch 1 step $i of many\" >&2; sleep 0.05; done";

/// Returns the JSON that a successful run prints, without standard error.
fn json_of(shown: &str) -> Value {
    assert!(shown.contains("exit code 0"), "{shown}");
    let lines = shown.lines().skip_while(|l| *l != "{");
    let lines = lines.take_while(|l| !l.starts_with("! ") && !l.starts_with("exit code"));
    serde_json::from_str(&lines.collect::<String>()).unwrap_or_else(|e| panic!("{e}: {shown}"))
}

fn rates(json: &Value) -> Vec<(u64, f64)> {
    let points = json["points"].as_array().expect("points are a list");
    points
        .iter()
        .map(|p| {
            (
                p["cpus"].as_u64().expect("a number of CPUs"),
                p["rate"].as_f64().expect("a rate"),
            )
        })
        .collect()
}

#[test]
fn two_busy_processes_are_about_twice_as_fast_on_two_cpus() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        dovetail_testkit::skip("this machine has one CPU");
        return;
    }
    // Other processes on the machine may distort a measurement, but hardly five in a row.
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let args = [
            "profile",
            "run",
            "--cpus",
            "2,1",
            "--seconds",
            "2",
            "--json",
            "--quiet",
            "--",
            "sh",
            "-c",
            BURN,
        ];
        let json = json_of(&dovetail(&args));
        let [(2, two), (1, one)] = rates(&json)[..] else {
            panic!("{json}")
        };
        assert!(one > 0.0 && two > 0.0, "{json}");
        if (1.3..3.5).contains(&(two / one)) {
            return;
        }
        ratios.push(two / one);
    }
    panic!("speedups by a second CPU: {ratios:?}");
}

#[test]
fn progress_that_does_not_depend_on_cpus_has_a_flat_curve() {
    let args = [
        "profile",
        "run",
        "--cpus",
        "1",
        "--seconds",
        "2",
        "--pattern",
        r"step (\d+)",
        "--json",
        "--",
        "sh",
        "-c",
        STEPS,
    ];
    let json = json_of(&dovetail(&args));
    let (_, rate) = rates(&json)[0];
    // Five steps, at most twenty times a second.
    assert!(rate > 5.0 && rate < 101.0, "{json}");
    assert_eq!(json["points"][0]["speed"], 1.0);
}

#[test]
fn a_table_is_written_extended_and_read_by_simulate() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let count = "i=0; while :; do i=$((i+1)); echo $i > done.txt; sleep 0.02; done";
    let measure = |model: &str, share_gb: &str, more: &[&str]| {
        let base = [
            "profile",
            "run",
            "--cpus",
            "1",
            "--seconds",
            "1",
            "--progress",
            "done.txt",
            "--quiet",
        ];
        let rest = [
            "--model",
            model,
            "--share-cpus",
            "1",
            "--share-gb",
            share_gb,
            "--out",
            "mine.yaml",
        ];
        dovetail_in(
            dir,
            &[&base, &rest[..], more, &["--", "sh", "-c", count]].concat(),
        )
    };
    let data = [
        "--dataset-gb",
        "100",
        "--epoch-iterations",
        "2000",
        "--disk-mbps",
        "100",
        "--mem-gbps",
        "10",
    ];
    let shown = measure("alexnet", "50", &[&data[..], &["--svg", "c.svg"]].concat());
    assert!(
        shown.contains("table: mine.yaml (--sensitivity mine.yaml)"),
        "{shown}"
    );
    assert!(measure("gnmt", "50", &[]).contains("exit code 0"));
    let table = std::fs::read_to_string(dir.join("mine.yaml")).unwrap();
    assert!(table.contains("share: {cpu: 1, memory_gb: 50}"), "{table}");
    assert!(
        table.contains("\"alexnet\"") && table.contains("\"gnmt\""),
        "{table}"
    );
    assert!(
        std::fs::read_to_string(dir.join("c.svg"))
            .unwrap()
            .contains("alexnet: speed over memory")
    );
    std::fs::write(dir.join("t.csv"), "0,alexnet,0,500,1\n1,gnmt,0,500,1\n").unwrap();
    let run = [
        "simulate",
        "--trace",
        "t.csv",
        "--trace-format",
        "synergy",
        "--sensitivity",
        "mine.yaml",
    ];
    let shown = dovetail_in(dir, &run);
    assert!(
        shown.contains("2 of 2 finished") && shown.contains("exit code 0"),
        "{shown}"
    );
    let other = measure("gnmt", "60", &[]);
    assert!(other.contains("exit code 2"), "{other}");
    let error =
        "! error: mine.yaml: speed is 1 at 1 CPU and 50.0 GB per GPU there, but at 1 CPU and 60.0 GB here";
    assert!(other.contains(error), "{other}");
}

#[test]
fn a_failed_measurement_reports_why() {
    let first_line = |args: &[&str]| -> (String, String) {
        let shown = dovetail(&[&["profile", "run", "--quiet", "--cpus", "1"][..], args].concat());
        let line = shown
            .lines()
            .find_map(|l| l.strip_prefix("! "))
            .unwrap_or_default()
            .to_owned();
        (line, shown.lines().last().unwrap_or_default().to_owned())
    };
    let work = |args: &[&str]| {
        let (line, code) = first_line(args);
        assert_eq!(code, "exit code 1", "{line}");
        line
    };
    let request = |args: &[&str]| {
        let (line, code) = first_line(args);
        assert_eq!(code, "exit code 2", "{line}");
        line
    };
    insta::assert_snapshot!(work(&["--", "sh", "-c", "echo no data set >&2; exit 3"]), @"error: sh failed with exit status: 3: no data set");
    insta::assert_snapshot!(work(&["--patience", "0.3", "--", "sleep", "60"]), @"error: sleep reported 0 iterations, too few to measure: expected a line on standard output for each iteration");
    insta::assert_snapshot!(work(&["--pattern", "step", "--", "sh", "-c", "echo begin; echo end"]), @r#"error: sh reported 0 iterations, too few to measure: expected lines that match "step""#);
    insta::assert_snapshot!(work(&["--pattern", "at (.*)", "--", "sh", "-c", "echo at once; sleep 9"]), @r#"error: --pattern: the group matched "once", expected a number of iterations"#);
    insta::assert_snapshot!(work(&["--", "no-such-program-here"]), @"error: cannot start no-such-program-here: No such file or directory (os error 2)");
    insta::assert_snapshot!(request(&["--pattern", "step (", "--", "true"]), @r#"error: --pattern: found open group without closing ')' in "step (""#);
    insta::assert_snapshot!(request(&["--seconds", "0", "--", "true"]), @"error: --seconds: found 0, expected a number above 0 and below 1e9");
    insta::assert_snapshot!(request(&["--dataset-gb", "-1", "--epoch-iterations", "5", "--", "true"]), @"error: unexpected argument '-1' found");
    insta::assert_snapshot!(request(&["--cache", "50,120", "--", "true"]), @"error: --cache: expected percentages from 0 to 100");
}
