//! Jobs that share a GPU behind stage gates, while members, the agent and the server are killed.

use std::time::{Duration, Instant};

use dovetail_testkit::draws;

use crate::harness::{Cluster, python};

const JOBS: usize = 3;
const STEPS: u64 = 900;
/// Longest time without a step of a job whose processes live. A gate waits for at most some seconds, and a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// A trainer that writes the number of each step.
const TRAINER: &str = r#"
import sys, time
import dovetail

log = open(sys.argv[1], "a", buffering=1)

@dovetail.on_checkpoint
def save(step):
    pass

def batches():
    while True:
        time.sleep(0.02)
        yield 0

for step, _ in enumerate(dovetail.iterate(batches(), total_steps=int(sys.argv[2]), checkpoint_every=20), 1):
    time.sleep(0.01)
    with dovetail.stage("net"):
        time.sleep(0.01)
    print(step, file=log)
print("done", file=log)
"#;

/// Returns the number of lines that a job has written, over all attempts.
fn steps(cluster: &Cluster, job: usize) -> usize {
    cluster.read(&format!("log-{job}")).lines().count()
}

fn is_done(cluster: &Cluster, job: usize) -> bool {
    cluster.read(&format!("log-{job}")).ends_with("done\n")
}

/// Returns the IDs of processes whose command or environment has a text.
fn processes_with(text: &str) -> Vec<String> {
    let has_text = |pid: &String| {
        ["cmdline", "environ"].iter().any(|file| {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(text)
        })
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let numbers = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.filter(has_text).collect()
}

/// Waits until each of these jobs has made further steps or is done.
fn assert_steps(cluster: &Cluster, jobs: impl Iterator<Item = usize>, after: &str) {
    for job in jobs {
        let (before, since) = (steps(cluster, job), Instant::now());
        while steps(cluster, job) < before + 3 && !is_done(cluster, job) {
            assert!(
                since.elapsed() < PATIENCE,
                "job {job} makes no steps after {after}\n{}\n{}",
                cluster.ok(&["jobs", "--all"]),
                cluster.read("agent-0.log")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn whatever_is_killed_the_other_members_of_a_group_continue_and_nothing_is_left() {
    let Some(python) = python() else { return };
    let mut cluster = Cluster::start(1, 1, "policy: muri-l\n");
    let script = cluster.script("trainer.py", TRAINER);
    let total = STEPS.to_string();
    let ids: Vec<u64> = (0..JOBS)
        .map(|job| {
            let model = format!("kind-{job}");
            let flags = [
                "--gpus",
                "1",
                "--model",
                &model,
                "--stages",
                "data=20ms,gpu=10ms,net=10ms",
            ];
            let log = cluster.path(&format!("log-{job}")).display().to_string();
            cluster.submit(&flags, &[python, &script, &log, &total])
        })
        .collect();
    let is_gated = |c: &Cluster, id: u64| {
        let job = c.job(id);
        let last = job["attempts"].as_array().and_then(|attempts| attempts.last());
        last.is_some_and(|attempt| attempt["sharing"] == "stage gates")
    };
    cluster.until("all jobs share the GPU behind gates", |c| {
        ids.iter().all(|id| is_gated(c, *id))
    });
    let mut next = draws();
    for round in 0..9 {
        // At any stage of a cycle of about 40 ms.
        std::thread::sleep(Duration::from_millis(300 + next(45)));
        match round % 3 {
            0 => {
                let member = next(JOBS as u64) as usize;
                let log = cluster.path(&format!("log-{member}")).display().to_string();
                for pid in processes_with(&format!("{script}\0{log}")) {
                    let _ = std::process::Command::new("kill")
                        .args(["-s", "KILL", &pid])
                        .status();
                }
                let others = (0..JOBS).filter(|job| *job != member);
                assert_steps(&cluster, others, "a member was killed");
                assert_steps(&cluster, 0..JOBS, "the killed member was started again");
            }
            1 => {
                cluster.kill_agent(0);
                assert_steps(&cluster, 0..JOBS, "the agent was killed");
                cluster.start_agent(0);
                assert_steps(&cluster, 0..JOBS, "the agent was started");
            }
            _ => {
                cluster.stop_server("KILL");
                cluster.start_server();
                assert_steps(&cluster, 0..JOBS, "the server was killed");
            }
        }
    }
    // One leaves by a request, the others run to their end.
    cluster.ok(&["job", "stop", &ids[0].to_string()]);
    cluster.until_state(ids[0], "cancelled");
    assert_steps(&cluster, 1..JOBS, "a member was stopped");
    for id in &ids[1..] {
        cluster.until_state(*id, "completed");
    }
    cluster.until_idle();
    let folder = cluster.path("agent-0").display().to_string();
    cluster.until("no process of a task is left", |_| {
        processes_with(&format!("DOVETAIL_TASK_DIR={folder}")).is_empty()
    });
}
