//! `dovetail reproduce muri-testbed --live`: jobs of a trace as real processes, beside the forecast.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dovetail_kubelab::Subprocess;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Cluster, CommandOutput, DOVETAIL, python, send};

/// Two models with complementary stages; one job asks for more GPUs than the cluster has.
const TRACE: &str = "\
job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority
7,8,0,4000,bert,4,800000,0,200,20,180,0,0
8,1,1000,4000,dqn,128,800000,1000,200,180,20,0,0
9,1,2000,1000,bert,4,200000,1000,200,20,180,0,0
";

/// A folder with the trace, in which temporary files are made.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let traces = dir.path().join("data/muri/trace-data");
    fs::create_dir_all(&traces).unwrap();
    fs::write(traces.join("cluster_trace.csv"), TRACE).unwrap();
    fs::create_dir(dir.path().join("tmp")).unwrap();
    dir
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(DOVETAIL);
    command
        .args(["reproduce", "muri-testbed", "--live", "--synthetic"])
        .args(args)
        .arg("--data")
        .arg(dir.join("data"))
        .env("TMPDIR", dir.join("tmp"))
        .env("NO_COLOR", "1")
        .current_dir(dir);
    command
}

fn run(dir: &Path, args: &[&str]) -> CommandOutput {
    Subprocess::output(&mut command(dir, args)).unwrap().into()
}

/// Returns the processes that have a folder in their command line, except those that have ended.
fn processes_of(folder: &Path) -> Vec<String> {
    let name = folder.display().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|line| line.contains(&name)).collect()
}

/// Waits until nothing of a run is left.
fn until_gone(dir: &Path) {
    let tmp = dir.join("tmp");
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let processes = processes_of(&tmp);
        if processes.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "still running: {processes:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let left: Vec<_> = fs::read_dir(&tmp).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn jobs_of_the_trace_run_live_beside_their_forecast() {
    if python().is_none() {
        return;
    }
    let dir = folder();
    let flags = ["--nodes", "1", "--gpus", "2", "--scale", "0.002"];
    let policies = ["--policies", "fifo-backfill,muri-l", "--json"];
    let output = run(dir.path(), &[&flags[..], &policies].concat());
    assert_eq!(output.code, 0, "{output:?}");
    let data: Value = serde_json::from_str(&output.out).unwrap();
    let jobs = data["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 3);
    // Job 7 asks for 8 GPUs.
    assert_eq!((&jobs[0]["gpus"], &jobs[0]["trace_gpus"]), (&2.into(), &8.into()));
    for profile in data["profiles"].as_array().unwrap() {
        // A tenth of 200 ms, and what a busy machine adds.
        let step_ms = profile["measured"]["step_ms"].as_f64().unwrap();
        assert!((19.5..100.0).contains(&step_ms), "{profile}");
    }
    let runs = data["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let number = |side: &str, name: &str| run[side][name].as_f64().unwrap();
        for side in ["live", "forecast"] {
            assert_eq!(run["jobs"][side].as_array().unwrap().len(), 3);
            assert!(number(side, "avg_jct_s") <= number(side, "p99_jct_s"), "{run}");
            assert!(number(side, "p99_jct_s") <= number(side, "makespan_s"), "{run}");
        }
        // Two jobs of 1.6 s and one of 0.4 s, of which the first needs both GPUs.
        assert!(number("forecast", "makespan_s") >= 1.6, "{run}");
        let ratio = number("live", "makespan_s") / number("forecast", "makespan_s");
        assert!((0.5..4.0).contains(&ratio), "{run}");
    }
    let published = data["published"].as_array().unwrap();
    assert!(published.iter().any(|run| run["policy"] == "Muri-L"));
    assert!(
        output.err.contains("running 3 jobs under muri-l:limits="),
        "{output:?}"
    );
    until_gone(dir.path());
}

#[test]
fn an_existing_cluster_gets_its_policy_back() {
    let Some(_) = python() else { return };
    let dir = folder();
    let cluster = Cluster::start(1, 1, "policy: sjf\n");
    let client = cluster.client().display().to_string();
    let output = run(
        dir.path(),
        &[
            "--on",
            &client,
            "--jobs",
            "1",
            "--policies",
            "las",
            "--scale",
            "1e-6",
        ],
    );
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.out.contains("✓ 1 of 1 jobs completed under las"),
        "{output:?}"
    );
    let shown: Value = serde_json::from_str(&cluster.ok(&["operate", "show", "-o", "json"])).unwrap();
    assert_eq!(shown["policy"], "sjf");
    // A busy cluster is not comparable.
    cluster.submit(&[], &["sleep", "600"]);
    cluster.until("the job runs", |c| c.nodes()[0]["used_gpus"] == 1);
    let output = run(dir.path(), &["--on", &client]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("requires an idle cluster"), "{output:?}");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    if python().is_none() {
        return;
    }
    let dir = folder();
    // The jobs would run for minutes.
    let mut command = command(
        dir.path(),
        &[
            "--nodes",
            "1",
            "--gpus",
            "1",
            "--scale",
            "1",
            "--policies",
            "fifo",
        ],
    );
    let mut child = Subprocess::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped())).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let running = lines.find(|line| line.as_ref().unwrap().starts_with("running"));
    assert!(running.is_some());
    std::thread::sleep(Duration::from_secs(1));
    assert!(!processes_of(&dir.path().join("tmp")).is_empty());
    send(&child, "INT");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("interrupted")), "{rest:?}");
    until_gone(dir.path());
}

#[test]
fn invalid_requests_are_named() {
    let dir = folder();
    let plain = |args: &[&str]| -> CommandOutput {
        let mut command = Command::new(DOVETAIL);
        Subprocess::output(command.arg("reproduce").args(args))
            .unwrap()
            .into()
    };
    for (output, expected) in [
        (plain(&["muri-testbed"]), "add --live"),
        (
            plain(&["muri-fig9", "--live"]),
            "muri-fig9 runs in the simulator only",
        ),
        (plain(&["muri-fig", "--live"]), "unknown experiment `muri-fig`"),
        (plain(&["muri-testbed", "--jobs", "3"]), "--live"),
        (run(dir.path(), &["--policies", "muri"]), "unknown policy `muri`"),
        (run(dir.path(), &["--policies", "las:quantum=x"]), "quantum"),
        (run(dir.path(), &["--scale", "2"]), "--scale: found 2"),
        (
            run(dir.path(), &["--python", "/nowhere/python"]),
            "no python3 found",
        ),
        (
            run(dir.path(), &["--on", "/nowhere/client.yaml"]),
            "/nowhere/client.yaml",
        ),
    ] {
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.err.contains(expected), "{output:?}");
    }
}
