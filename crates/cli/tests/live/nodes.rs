//! Nodes that are drained, fail and return, and jobs that resume on other nodes.

use std::collections::BTreeMap;

use crate::harness::{Cluster, project, python};

/// A trainer whose ranks all print each step.
const TRAINER: &str = r#"
import json, os, sys, time
import dovetail
path = os.path.join(dovetail.checkpoint_dir(), "state.json")
step = dovetail.resume_step()
if step and dovetail.rank() == 0:  # rank 0 writes it; the others may start after it has written the next one
    assert json.load(open(path))["step"] == step
@dovetail.on_checkpoint
def save(step):
    if dovetail.rank() == 0:
        with open(path + ".new", "w") as file:
            json.dump({"step": step}, file)
        os.replace(path + ".new", path)
for _ in dovetail.iterate(range(10**6), total_steps=int(sys.argv[1]), checkpoint_every=10):
    step += 1
    sys.stdout.write("rank %d step %d\n" % (dovetail.rank(), step))  # in one write: the ranks share a log
    time.sleep(0.02 + 0.01 * dovetail.rank())
"#;

/// Returns the first and last step of each rank.
fn steps(log: &str) -> BTreeMap<u64, (u64, u64)> {
    let mut ranks: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split_whitespace().rev().take(4).collect();
        let [step, "step", rank, "rank"] = words[..] else {
            continue;
        };
        let (rank, step) = (rank.parse().unwrap(), step.parse().unwrap());
        ranks.entry(rank).or_insert((step, step)).1 = step;
    }
    ranks
}

#[test]
fn a_preempted_gang_stops_at_one_step_and_resumes_on_another_node() {
    let Some(python) = python() else { return };
    let policy = "policy: fifo\nparts: {order: 'fifo:priority=true', discipline: preempt}\n";
    let cluster = Cluster::start(2, 2, policy);
    let script = cluster.script("trainer.py", TRAINER);
    let gang = ["--gpus", "2", "--processes", "per-gpu"];
    let low = cluster.submit(&gang, &[python, &script, "150"]);
    cluster.until("the gang has made steps", |c| {
        c.job(low)["steps"]["step"].as_u64().unwrap_or(0) >= 15
    });
    let first = cluster.job(low)["placement"][0]["node"]
        .as_str()
        .unwrap()
        .to_owned();
    let other = cluster.submit(&["--gpus", "2", "--priority", "5"], &["sleep", "1000"]);
    cluster.until_state(other, "running");
    let high = cluster.submit(&["--gpus", "2", "--priority", "9"], &["sleep", "1000"]);
    cluster.until_state(high, "running");
    cluster.until("the gang is preempted", |c| {
        c.job(low)["state_reason"] == "preempted"
    });
    let job = cluster.job(low);
    let end = job["attempts"][0]["end"].as_str().unwrap();
    assert!(
        end.starts_with("preempted: ") && end.contains(&format!("job {high} is ahead of it")),
        "{end}"
    );
    let stopped = steps(&cluster.log(low));
    let last = stopped[&0].1;
    assert_eq!(stopped, BTreeMap::from([(0, (1, last)), (1, (1, last))]));
    assert_eq!(job["steps"]["checkpoint"], last, "no step is lost: {job}");

    cluster.ok(&["job", "stop", &other.to_string()]);
    cluster.until_state(low, "completed");
    let job = cluster.job(low);
    assert_eq!(job["attempt_count"], 2);
    assert_ne!(
        job["attempts"][1]["placement"][0]["node"],
        first.as_str(),
        "{job}"
    );
    let resumed = steps(&cluster.log(low));
    assert_eq!(
        resumed,
        BTreeMap::from([(0, (last + 1, 150)), (1, (last + 1, 150))])
    );
    cluster.ok(&["job", "stop", &high.to_string()]);
    cluster.until_idle();
}

#[test]
fn a_job_of_a_lost_node_resumes_elsewhere_and_never_runs_twice_at_once() {
    let mut cluster = Cluster::start(2, 1, "lease: 3s\n");
    // A running attempt and its children hold a lock, so a second one at the same time would be noticed.
    let line = "exec 9> held; flock -n 9 || { echo TWICE >> trouble; exit 1; }; echo $DOVETAIL_NODE >> where; \
                i=0; while [ $i -lt 60 ]; do sleep 0.1; i=$((i+1)); done";
    let id = cluster.submit(&["--retries", "0"], &["sh", "-c", line]);
    cluster.until_state(id, "running");
    cluster.until("the job has written its node", |c| !c.read("where").is_empty());
    let node = cluster.read("where").trim().to_owned();
    let i: usize = node.trim_start_matches('n').parse().unwrap();
    cluster.kill_agent(i);
    cluster.until("the node is lost", |c| {
        c.nodes()
            .iter()
            .any(|n| n["name"] == node.as_str() && n["state"] == "lost")
    });
    cluster.until_state(id, "completed");
    let job = cluster.job(id);
    let end = job["attempts"][0]["end"].as_str().unwrap();
    assert!(end.contains(&format!("node {node} was lost")), "{end}");
    assert_eq!(cluster.read("where").lines().count(), 2);
    assert_eq!(cluster.read("trouble"), "");
    // The node returns and is used again.
    cluster.start_agent(i);
    cluster.until("the node has returned", |c| {
        c.nodes().iter().all(|n| n["state"] == "up")
    });
    let both = cluster.run(&["run", "--gpus", "2", "--", "echo", "both"]);
    assert_eq!(both.code, 0, "{both:?}");
}

#[test]
fn a_drained_node_finishes_its_jobs_and_gets_no_new_ones() {
    let cluster = Cluster::start(2, 1, "");
    let running = cluster.submit(&[], &["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]);
    cluster.until_state(running, "running");
    let node = cluster.job(running)["placement"][0]["node"]
        .as_str()
        .unwrap()
        .to_owned();
    let output = cluster.ok(&["node", "drain", &node, "--why", "new fans"]);
    assert!(output.contains("is draining; 1 job still runs on it"), "{output}");
    for _ in 0..3 {
        let output = cluster.run(&["run", "--", "sh", "-c", "echo $DOVETAIL_NODE"]);
        assert!(output.code == 0 && output.out.trim() != node, "{output:?}");
    }
    assert!(cluster.ok(&["nodes"]).contains("new fans"));
    std::fs::write(cluster.path("go"), "").unwrap();
    cluster.until_state(running, "completed");
    let queued = cluster.submit(&["--gpus", "2"], &["true"]);
    let explanation = cluster.ok(&["job", "explain", &queued.to_string()]);
    assert!(explanation.contains("asks for 2 GPUs"), "{explanation}");
    assert_eq!(cluster.state(queued), "queued");
    cluster.ok(&["node", "resume", &node]);
    cluster.until_state(queued, "completed");
    let unknown = cluster.run(&["node", "drain", "n77"]);
    assert!(unknown.code == 2 && unknown.err.contains("n77"), "{unknown:?}");
}

#[test]
fn a_restarted_agent_adopts_its_tasks() {
    let mut cluster = Cluster::start(1, 1, "");
    let id = cluster.submit(
        &[],
        &[
            "sh",
            "-c",
            "echo begins; while [ ! -e go ]; do sleep 0.05; done; echo ends",
        ],
    );
    cluster.until_state(id, "running");
    for _ in 0..3 {
        cluster.kill_agent(0);
        cluster.start_agent(0);
        cluster.until("the agent has reconnected", |c| c.nodes()[0]["connected"] == true);
    }
    // The next agent reports a task that ended while no agent ran.
    cluster.kill_agent(0);
    std::fs::write(cluster.path("go"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    cluster.start_agent(0);
    cluster.until_state(id, "completed");
    assert_eq!(cluster.job(id)["attempt_count"], 1);
    assert_eq!(cluster.log(id), "begins\nends");
}

#[test]
fn the_policy_is_changed_while_the_server_runs() {
    let mut cluster = Cluster::start(1, 1, "");
    cluster.ok(&["operate", "pause"]);
    let id = cluster.submit(&[], &["true"]);
    assert!(cluster.ok(&["job", "explain", "last"]).contains("paused"));
    let output = cluster.ok(&["operate", "policy", "srtf", "--part", "placement=spread"]);
    assert!(
        output.contains("Policy srtf, placement spread") && output.contains("paused"),
        "{output}"
    );
    let warning = "warning: srtf orders by remaining time; 1 of 1 queued job has none: it is ordered last\n\
                   help: submit with `--expected`";
    assert!(output.contains(warning), "{output}");
    let why = cluster.ok(&["job", "explain", "last"]);
    assert!(why.contains("no run time known: ordered last"), "{why}");
    // The change survives a restart.
    cluster.stop_server("KILL");
    cluster.start_server();
    let shown = cluster.ok(&["operate", "show"]);
    assert!(
        shown.contains("Policy srtf, placement spread") && shown.contains("paused"),
        "{shown}"
    );
    assert!(shown.contains(warning), "{shown}");
    assert!(cluster.read("server.log").contains("1 of 1 queued job has none"));
    cluster.ok(&["operate", "resume"]);
    cluster.until_state(id, "completed");
    let wrong = cluster.run(&["operate", "policy", "srft"]);
    assert!(wrong.code == 2 && wrong.err.contains("srtf"), "{wrong:?}");
    assert!(cluster.ok(&["operate", "round", "2s"]).contains("rounds:2s"));
    let events = cluster.ok(&["events"]);
    assert!(
        events.contains("operated") && events.contains("rounds of 2 s"),
        "{events}"
    );
}

/// Returns a Python with PyTorch, or prints `SKIPPED` if there is none.
fn pytorch() -> Option<&'static str> {
    let has_torch = |python: &&str| {
        let tried = std::process::Command::new(python)
            .args(["-c", "import torch"])
            .output();
        tried.is_ok_and(|out| out.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_torch);
    if found.is_none() {
        dovetail_testkit::skip("PyTorch is not installed (apt-get install python3-torch)");
    }
    found
}

/// Returns the step and loss of each `step N loss X` line.
fn losses(log: &str) -> Vec<(u64, f64)> {
    let line = |text: &str| {
        let (_, rest) = text.split_once("step ")?;
        let (step, loss) = rest.split_once(" loss ")?;
        Some((step.parse().ok()?, loss.parse().ok()?))
    };
    log.lines().filter_map(line).collect()
}

#[test]
fn a_pytorch_gang_resumes_after_a_preemption_with_its_loss() {
    let Some(python) = pytorch() else { return };
    let policy = "policy: fifo\nparts: {order: 'fifo:priority=true', discipline: preempt}\n";
    let cluster = Cluster::start(2, 1, policy);
    let script = project().join("examples/trainers/ddp.py");
    let command = [
        python,
        script.to_str().unwrap(),
        "--steps",
        "400",
        "--every",
        "50",
    ];
    let flags = [
        "--gpus",
        "2",
        "--processes",
        "per-gpu",
        "--env",
        "OMP_NUM_THREADS=1",
    ];
    let low = cluster.submit(&flags, &command);
    cluster.until("the gang has made steps", |c| {
        c.job(low)["steps"]["step"].as_u64().unwrap_or(0) >= 60
    });
    let high = cluster.submit(&["--priority", "9"], &["sleep", "1"]);
    cluster.until_state(high, "completed");
    cluster.until_state(low, "completed");
    let job = cluster.job(low);
    assert_eq!(job["attempt_count"], 2, "{job}");
    let end = job["attempts"][0]["end"].as_str().unwrap();
    assert!(end.starts_with("preempted: "), "{end}");
    let before = cluster.ok(&["job", "logs", &low.to_string(), "--attempt", "1"]);
    let after = cluster.log(low);
    assert!(after.contains("resumed after step "), "{after}");
    assert!(after.contains("done after step 400"), "{after}");
    let (before, after) = (losses(&before), losses(&after));
    let (last, next) = (*before.last().unwrap(), after[0]);
    assert_eq!(
        next.0,
        last.0 + 20,
        "each step is made exactly once: {before:?} {after:?}"
    );
    // A model trained from scratch would be back at the loss of its first steps.
    let (start, end) = (before[0].1, after.last().unwrap().1);
    assert!(
        next.1 < (start + end) / 2.0 + 0.35 && end < start,
        "{before:?} {after:?}"
    );
    println!("{before:?}\n{after:?}");
}
