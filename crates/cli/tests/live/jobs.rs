//! Jobs from submission to their end, by the commands of a user.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use dovetail_kubelab::Subprocess;

use crate::harness::{Cluster, project, python};

#[test]
fn run_prints_the_output_of_the_job_and_exits_with_its_code() {
    let cluster = Cluster::start(1, 2, "");
    let output = cluster.run(&[
        "run",
        "--gpus",
        "2",
        "--",
        "sh",
        "-c",
        "echo on $DOVETAIL_GPUS GPUs; echo oops >&2; exit 7",
    ]);
    assert_eq!(output.code, 7, "{output:?}");
    assert!(
        output.out.contains("on 2 GPUs\n") && output.out.contains("oops\n"),
        "{output:?}"
    );
    assert!(
        output.err.contains("starting on 2 GPUs on n0") && output.err.contains("failed: exit code 7"),
        "{output:?}"
    );
    // A job that fails by itself is retried only if it asks for retries.
    assert_eq!(cluster.job(1)["attempt_count"], 1);
    let again = cluster.submit(&["--retries", "2"], &["false"]);
    cluster.until_state(again, "failed");
    assert_eq!(cluster.job(again)["attempt_count"], 3);
    let output = cluster.run(&["run", "--quiet", "--", "no-such-program"]);
    assert_eq!((output.code, output.err.as_str()), (127, ""), "{output:?}");
    cluster.until_idle();
}

#[test]
fn a_gang_starts_on_all_its_nodes_at_once() {
    let cluster = Cluster::start(2, 2, "");
    let line = "echo rank $RANK of $WORLD_SIZE on $DOVETAIL_NODE with $CUDA_VISIBLE_DEVICES at $MASTER_ADDR:$MASTER_PORT";
    let output = cluster.run(&[
        "run",
        "--gpus",
        "4",
        "--processes",
        "per-gpu",
        "--",
        "sh",
        "-c",
        line,
    ]);
    assert_eq!(output.code, 0, "{output:?}");
    for (rank, node) in [(0, "n0"), (1, "n0"), (2, "n1"), (3, "n1")] {
        let line = format!("rank {rank} of 4 on {node}");
        assert!(output.out.contains(&line), "{line}: {output:?}");
    }
    let wide = cluster.run(&["run", "--gpus", "5", "--", "true"]);
    assert_eq!(wide.code, 2, "{wide:?}");
    assert!(
        wide.err.contains("asks for 5 GPUs, but the cluster has only 4"),
        "{wide:?}"
    );
}

#[test]
fn an_example_trains_with_the_package_of_the_agent() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(1, 2, "");
    let script = project().join("examples/trainers/linear.py");
    let script = script.to_str().unwrap();
    let output = cluster.run(&[
        "run",
        "--gpus",
        "2",
        "--processes",
        "per-gpu",
        "--",
        python,
        script,
        "--steps",
        "120",
        "--every",
        "50",
    ]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.contains("done after step 120"), "{output:?}");
    let job = cluster.job(1);
    assert_eq!(job["steps"]["total"], 120, "{job}");
    assert!(job["steps"]["checkpoint"].as_u64().unwrap() >= 100, "{job}");
}

#[test]
fn an_array_runs_at_most_its_limit_at_once() {
    let cluster = Cluster::start(1, 4, "");
    let line = "echo + >> marks; sleep 0.3; echo - >> marks; echo $DOVETAIL_ARRAY_INDEX >> indices";
    let ids = cluster.ok(&["run", "--detach", "--array", "3-8%2", "--", "sh", "-c", line]);
    assert_eq!(ids, "1-6");
    cluster.until_idle();
    let mut indices: Vec<u32> = cluster
        .read("indices")
        .lines()
        .map(|l| l.parse().unwrap())
        .collect();
    indices.sort_unstable();
    assert_eq!(indices, [3, 4, 5, 6, 7, 8]);
    let (mut now, mut most) = (0, 0);
    for mark in cluster.read("marks").lines() {
        now += if mark == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!(most, 2);
}

#[test]
fn a_job_waits_for_the_job_it_depends_on() {
    let cluster = Cluster::start(1, 4, "");
    let first = cluster.submit(&[], &["sh", "-c", "sleep 0.5; echo first >> order"]);
    let second = cluster.submit(
        &["--after", &first.to_string()],
        &["sh", "-c", "echo second >> order; exit 1"],
    );
    let never = cluster.submit(
        &["--after", &second.to_string()],
        &["sh", "-c", "echo never >> order"],
    );
    let anyway = cluster.submit(
        &["--after", &format!("{second}:any")],
        &["sh", "-c", "echo anyway >> order"],
    );
    let explanation = cluster.ok(&["job", "explain", &never.to_string()]);
    assert!(
        explanation.contains(&format!("waits for the end of job {second}")),
        "{explanation}"
    );
    cluster.until_idle();
    assert_eq!(cluster.read("order"), "first\nsecond\nanyway\n");
    assert_eq!(
        (cluster.state(never).as_str(), cluster.state(anyway).as_str()),
        ("cancelled", "completed")
    );
    let unknown = cluster.run(&["run", "--after", "99", "--", "true"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("after: unknown job 99"),
        "{unknown:?}"
    );
}

#[test]
fn a_log_is_followed_while_the_job_runs() {
    let cluster = Cluster::start(1, 1, "");
    let line = "for i in 1 2 3; do echo line $i; sleep 0.4; done; printf 'no end of line, but ü'";
    let id = cluster.submit(&["--name", "talker"], &["sh", "-c", line]);
    let mut command = cluster.command(&["job", "logs", "-f", "talker"]);
    let mut follower = Subprocess::spawn(command.stdout(Stdio::piped())).unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "line 1");
    assert_eq!(cluster.state(id), "running");
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["line 2", "line 3", "no end of line, but ü"]);
    assert!(follower.wait().unwrap().success());
    assert_eq!(
        cluster.ok(&["job", "logs", "--tail", "2", "last"]),
        "line 3\nno end of line, but ü"
    );
}

#[test]
fn a_job_that_exceeds_its_time_limit_is_stopped() {
    let cluster = Cluster::start(1, 1, "");
    let output = cluster.run(&[
        "run",
        "--time-limit",
        "0.5s",
        "--grace",
        "0.2s",
        "--",
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 0.1; done",
    ]);
    assert_eq!(output.code, 124, "{output:?}");
    assert!(output.err.contains("time-limit"), "{output:?}");
    assert_eq!(cluster.state(1), "failed");
    assert_eq!(cluster.job(1)["state_reason"], "time-limit");
    cluster.until_idle();
}

#[test]
fn an_explanation_has_the_expected_start_the_jobs_ahead_and_alternatives() {
    let cluster = Cluster::start(1, 2, "");
    let first = cluster.submit(&["--gpus", "1", "--expected", "60s"], &["sleep", "1000"]);
    cluster.until_state(first, "running");
    let ahead = cluster.submit(&["--gpus", "2", "--expected", "20s"], &["sleep", "1000"]);
    let last = cluster.submit(&["--gpus", "2", "--expected", "5s"], &["sleep", "1000"]);
    let text = cluster.ok(&["job", "explain", &last.to_string()]);
    assert!(
        text.contains(&format!("1 job ahead of it in the queue: {ahead}")),
        "{text}"
    );
    assert!(
        text.contains("expected to start in") && text.contains("90 % interval"),
        "{text}"
    );
    assert!(text.contains("would start now with 1 GPU on"), "{text}");
    let json = cluster.ok(&["job", "explain", &last.to_string(), "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let seconds = |key: &str| json["eta"][key].as_f64().unwrap();
    assert!(
        seconds("p5_s") <= seconds("p50_s") && seconds("p50_s") <= seconds("p95_s"),
        "{json}"
    );
    // The first job ends in about a minute, the second one 20 seconds later.
    assert!(
        (40.0..130.0).contains(&seconds("p50_s")) && seconds("p95_s") < 400.0,
        "{json}"
    );
    assert_eq!(
        (&json["ahead"], &json["jobs_ahead"][0]["id"]),
        (&1.into(), &ahead.into())
    );
    assert_eq!(json["alternatives"][0]["starts_now"], true);
    let running = cluster.ok(&["job", "explain", &first.to_string()]);
    assert!(!running.contains("expected start"), "{running}");
    cluster.ok(&["job", "stop", "@mine"]);
    cluster.until_idle();
}

#[test]
fn a_job_is_held_released_and_stopped() {
    let cluster = Cluster::start(1, 1, "");
    let id = cluster.submit(&[], &["sleep", "1000"]);
    cluster.until_state(id, "running");
    let second = cluster.submit(&[], &["sleep", "1000"]);
    let explanation = cluster.ok(&["job", "explain", &second.to_string()]);
    assert!(explanation.contains("asks for 1 GPU"), "{explanation}");
    assert_eq!(cluster.state(second), "queued");
    cluster.ok(&["job", "hold", &id.to_string()]);
    cluster.until_state(second, "running");
    assert_eq!(cluster.state(id), "held");
    cluster.ok(&["job", "release", &id.to_string()]);
    cluster.until_state(id, "queued");
    cluster.ok(&["job", "stop", "@mine"]);
    cluster.until_idle();
    assert_eq!(
        (cluster.state(id).as_str(), cluster.state(second).as_str()),
        ("cancelled", "cancelled")
    );
    let ended = cluster.run(&["job", "stop", &id.to_string()]);
    assert!(
        ended.code == 2 && ended.err.contains("has already ended"),
        "{ended:?}"
    );
}

#[test]
fn a_job_file_is_submitted_and_a_dry_run_prints_what_would_happen() {
    let cluster = Cluster::start(
        2,
        2,
        "policy: fifo\nparts: {order: 'fifo:priority=true', discipline: preempt}\n",
    );
    let file = cluster.script(
        "job.yaml",
        "name: from-file\ncommand: sleep 1000\ngpus: 4\nlabels: {team: blue}\n",
    );
    let dry = cluster.ok(&["submit", &file, "--dry-run"]);
    assert_eq!(dry, "Would start now, on n0 (GPU 0,1), n1 (GPU 0,1).");
    assert_eq!(cluster.ok(&["jobs", "--all", "-o", "csv"]).lines().count(), 1);
    let id: u64 = cluster.ok(&["submit", &file]).parse().unwrap();
    cluster.until_state(id, "running");
    assert!(
        cluster
            .ok(&["jobs", "--label", "team=blue"])
            .contains("from-file")
    );
    let urgent = cluster.ok(&["run", "--dry-run", "--priority", "9", "--", "true"]);
    assert!(urgent.contains(&format!("preempt job {id}")), "{urgent}");
    let later = cluster.ok(&["run", "--dry-run", "--", "true"]);
    assert!(later.starts_with("Would be queued: "), "{later}");
    let wrong = cluster.script("wrong.yaml", "command: x\ngpu: 1\n");
    let output = cluster.run(&["submit", &wrong]);
    assert!(
        output.code == 2
            && output
                .err
                .contains("wrong.yaml: unknown key \"gpu\" (did you mean \"gpus\"?)"),
        "{output:?}"
    );
    cluster.ok(&["job", "stop", "from-file"]);
    cluster.until_idle();
    let usage = cluster.ok(&["usage", "--by", "tenant", "-o", "csv"]);
    assert!(
        usage.starts_with("tenant,gpu-hours,jobs\ndefault,0.00"),
        "{usage}"
    );
}

#[test]
fn the_journal_becomes_a_trace_that_the_simulator_predicts() {
    let mut cluster = Cluster::start(2, 2, "");
    for i in 0..12 {
        let (gpus, seconds) = (format!("{}", 1 + i % 3), format!("0.{}", 3 + i % 5));
        cluster.submit(&["--gpus", &gpus, "--tenant", "blue"], &["sleep", &seconds]);
    }
    let never = cluster.submit(&["--hold"], &["true"]);
    cluster.until("only the held job is unfinished", |c| {
        c.ok(&["jobs", "-o", "csv"]).lines().count() == 2
    });
    // The journal is read while the server runs, and after it was killed.
    let folder = cluster.path("server/journal");
    let folder = folder.to_str().unwrap();
    let output = cluster.ok(&["trace", "from-journal", folder, "--out", "past.csv"]);
    assert_eq!(
        output,
        "past.csv: 12 jobs; 1 skipped that never ran or have not finished"
    );
    cluster.ok(&["job", "stop", &never.to_string()]);
    cluster.stop_server("KILL");
    let info = cluster.ok(&["trace", "info", "past.csv", "--json"]);
    assert!(info.contains("\"jobs\": 12"), "{info}");
    let report = cluster.ok(&["trace", "from-journal", folder, "--fidelity", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (&report["jobs"], &report["policy"]),
        (&12.into(), &"fifo-backfill:priority=true".into())
    );
    assert!(report["mean_error"].as_f64().unwrap() < 0.5, "{report}");
    let empty = cluster.run(&["trace", "from-journal", "nowhere", "--fidelity"]);
    assert!(empty.code == 2 && empty.err.contains("nowhere"), "{empty:?}");
}

#[test]
fn a_job_with_processes_on_the_first_node_only_ends_with_them() {
    let cluster = Cluster::start(2, 1, "");
    let line = "echo $DOVETAIL_NODE_RANK of $DOVETAIL_NODES; cat $DOVETAIL_HOSTFILE; exit $CODE";
    for code in ["0", "3"] {
        let variable = format!("CODE={code}");
        let output = cluster.run(&[
            "run",
            "--gpus",
            "2",
            "--processes",
            "first-node",
            "--env",
            &variable,
            "--",
            "sh",
            "-c",
            line,
        ]);
        assert_eq!(output.code.to_string(), code, "{output:?}");
        assert_eq!(output.out, "0 of 2\n127.0.0.1 slots=2\n", "{output:?}");
    }
    cluster.until_idle();
}
