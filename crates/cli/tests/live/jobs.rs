//! What people do with jobs, from one line to its end.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::harness::{Cluster, project, python};

#[test]
fn run_prints_what_the_job_prints_and_ends_with_its_code() {
    let cluster = Cluster::start(1, 2, "");
    let said = cluster.say(&[
        "run",
        "--gpus",
        "2",
        "--",
        "sh",
        "-c",
        "echo on $DOVETAIL_GPUS GPUs; echo oops >&2; exit 7",
    ]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(
        said.out.contains("on 2 GPUs\n") && said.out.contains("oops\n"),
        "{said:?}"
    );
    assert!(
        said.err.contains("starts on 2 GPUs on n0") && said.err.contains("failed: exit code 7"),
        "{said:?}"
    );
    // Its own fault is not tried again, unless that was asked for.
    assert_eq!(cluster.job(1)["attempt_count"], 1);
    let again = cluster.submit(&["--retries", "2"], &["false"]);
    cluster.until_state(again, "failed");
    assert_eq!(cluster.job(again)["attempt_count"], 3);
    let said = cluster.say(&["run", "--quiet", "--", "no-such-program"]);
    assert_eq!((said.code, said.err.as_str()), (127, ""), "{said:?}");
    cluster.until_idle();
}

#[test]
fn a_gang_starts_whole_over_nodes() {
    let cluster = Cluster::start(2, 2, "");
    let line = "echo rank $RANK of $WORLD_SIZE on $DOVETAIL_NODE with $CUDA_VISIBLE_DEVICES at $MASTER_ADDR:$MASTER_PORT";
    let said = cluster.say(&[
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
    assert_eq!(said.code, 0, "{said:?}");
    for (rank, node) in [(0, "n0"), (1, "n0"), (2, "n1"), (3, "n1")] {
        let there = format!("rank {rank} of 4 on {node}");
        assert!(said.out.contains(&there), "{there}: {said:?}");
    }
    let wide = cluster.say(&["run", "--gpus", "5", "--", "true"]);
    assert_eq!(wide.code, 2, "{wide:?}");
    assert!(
        wide.err.contains("asks for 5 GPUs, but the cluster has only 4"),
        "{wide:?}"
    );
}

#[test]
fn an_example_trains_with_the_package_the_agent_brings() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(1, 2, "");
    let script = project().join("examples/trainers/linear.py");
    let script = script.to_str().unwrap();
    let said = cluster.say(&[
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
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("done after step 120"), "{said:?}");
    let job = cluster.job(1);
    assert_eq!(job["steps"]["total"], 120, "{job}");
    assert!(job["steps"]["checkpoint"].as_u64().unwrap() >= 100, "{job}");
}

#[test]
fn an_array_runs_so_many_at_once() {
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
fn a_job_waits_for_another() {
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
    let why = cluster.ok(&["job", "explain", &never.to_string()]);
    assert!(
        why.contains(&format!("waits for the end of job {second}")),
        "{why}"
    );
    cluster.until_idle();
    assert_eq!(cluster.read("order"), "first\nsecond\nanyway\n");
    assert_eq!(
        (cluster.state(never).as_str(), cluster.state(anyway).as_str()),
        ("cancelled", "completed")
    );
    let unknown = cluster.say(&["run", "--after", "99", "--", "true"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("no job 99"),
        "{unknown:?}"
    );
}

#[test]
fn a_log_is_followed_while_the_job_runs() {
    let cluster = Cluster::start(1, 1, "");
    let line = "for i in 1 2 3; do echo line $i; sleep 0.4; done; printf 'no end of line, but ü'";
    let id = cluster.submit(&["--name", "talker"], &["sh", "-c", line]);
    let mut follower = cluster
        .command(&["job", "logs", "-f", "talker"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
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
fn a_job_that_runs_for_too_long_is_stopped() {
    let cluster = Cluster::start(1, 1, "");
    let said = cluster.say(&[
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
    assert_eq!(said.code, 124, "{said:?}");
    assert!(said.err.contains("time-limit"), "{said:?}");
    assert_eq!(cluster.state(1), "failed");
    assert_eq!(cluster.job(1)["state_reason"], "time-limit");
    cluster.until_idle();
}

#[test]
fn a_job_is_held_released_and_stopped() {
    let cluster = Cluster::start(1, 1, "");
    let id = cluster.submit(&[], &["sleep", "1000"]);
    cluster.until_state(id, "running");
    let second = cluster.submit(&[], &["sleep", "1000"]);
    let why = cluster.ok(&["job", "explain", &second.to_string()]);
    assert!(why.contains("queued") && why.contains("GPU"), "{why}");
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
    let over = cluster.say(&["job", "stop", &id.to_string()]);
    assert!(over.code == 2 && over.err.contains("over already"), "{over:?}");
}

#[test]
fn a_file_is_sent_and_a_dry_run_says_what_would_happen() {
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
    assert_eq!(dry, "It would start now, on n0 (GPU 0,1), n1 (GPU 0,1).");
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
    assert!(later.starts_with("It would wait: "), "{later}");
    let wrong = cluster.script("wrong.yaml", "command: x\ngpu: 1\n");
    let said = cluster.say(&["submit", &wrong]);
    assert!(
        said.code == 2
            && said
                .err
                .contains("wrong.yaml: unknown key \"gpu\" (did you mean \"gpus\"?)"),
        "{said:?}"
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
fn the_past_is_a_trace_and_the_simulator_tells_it_again() {
    let mut cluster = Cluster::start(2, 2, "");
    for i in 0..12 {
        let (gpus, seconds) = (format!("{}", 1 + i % 3), format!("0.{}", 3 + i % 5));
        cluster.submit(&["--gpus", &gpus, "--tenant", "blue"], &["sleep", &seconds]);
    }
    let never = cluster.submit(&["--hold"], &["true"]);
    cluster.until("only that one is left", |c| {
        c.ok(&["jobs", "-o", "csv"]).lines().count() == 2
    });
    // While the server runs, and after it was killed.
    let folder = cluster.path("server/journal");
    let folder = folder.to_str().unwrap();
    let said = cluster.ok(&["trace", "from-journal", folder, "--out", "past.csv"]);
    assert_eq!(
        said,
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
    let empty = cluster.say(&["trace", "from-journal", "nowhere", "--fidelity"]);
    assert!(empty.code == 2 && empty.err.contains("nowhere"), "{empty:?}");
}

#[test]
fn a_job_that_starts_its_own_processes_ends_with_the_one_on_the_first_node() {
    let cluster = Cluster::start(2, 1, "");
    let line = "echo $DOVETAIL_NODE_RANK of $DOVETAIL_NODES; cat $DOVETAIL_HOSTFILE; exit $CODE";
    for code in ["0", "3"] {
        let variable = format!("CODE={code}");
        let said = cluster.say(&[
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
        assert_eq!(said.code.to_string(), code, "{said:?}");
        assert_eq!(said.out, "0 of 2\n127.0.0.1 slots=2\n", "{said:?}");
    }
    cluster.until_idle();
}
