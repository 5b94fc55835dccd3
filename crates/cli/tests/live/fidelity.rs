//! Jobs end live when the simulator says, because the policy gets the same facts: work done, checkpoints, speed.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Cluster, project, python};

/// A trainer of steps of a tenth of a second on the requested GPUs; with other GPUs it is faster or slower in proportion.
const TRAINER: &str = r#"
import os, sys, time
import dovetail
steps, asked = int(sys.argv[1]), int(sys.argv[2])
@dovetail.on_checkpoint
def save(step):
    pass
length = 0.1 * asked / int(os.environ["DOVETAIL_GPUS"])
began = time.monotonic()
for n, _ in enumerate(dovetail.iterate(range(10**6), total_steps=steps, checkpoint_every=10), 1):
    time.sleep(max(0.0, began + n * length - time.monotonic()))
"#;

/// Seconds by which a live job may end earlier or later than simulated, if processes start quickly.
const TOLERANCE: f64 = 1.0;

/// A job of the test: when it is submitted, how long it runs alone, and its GPUs.
#[derive(Debug, Clone, Copy)]
struct Job {
    submit: f64,
    seconds: f64,
    gpus: u32,
    max_gpus: u32,
}

const fn job(submit: f64, seconds: f64) -> Job {
    Job {
        submit,
        seconds,
        gpus: 1,
        max_gpus: 1,
    }
}

/// Something that happens during a run.
enum Incident {
    ServerKilled,
    AgentKilled,
    Held(usize),
    Released(usize),
}

/// A script of jobs and incidents that runs live and is compared with expected times of completion.
struct Script<'a> {
    policy: &'a str,
    /// Sizing instead of that of the policy.
    sizing: &'a str,
    gpus: u32,
    jobs: &'a [Job],
    incidents: &'a [(f64, Incident)],
}

impl Script<'_> {
    /// Returns when each job ends in the simulator, in seconds from the start.
    fn simulated(&self) -> Vec<f64> {
        let dir = tempfile::tempdir().unwrap();
        let mut text = "job_id,submit_s,duration_s,gpus,min_gpus,max_gpus\n".to_owned();
        for (i, job) in self.jobs.iter().enumerate() {
            let Job {
                submit,
                seconds,
                gpus,
                max_gpus,
            } = job;
            text += &format!("{i},{submit},{seconds},{gpus},{gpus},{max_gpus}\n");
        }
        std::fs::write(dir.path().join("jobs.csv"), text).unwrap();
        let output = std::process::Command::new(crate::harness::DOVETAIL)
            .args([
                "simulate",
                "--trace",
                "jobs.csv",
                "--policy",
                self.policy,
                "--sizing",
                self.sizing,
            ])
            .args(["--out", "out"])
            .args(["--cluster", &format!("1x{}", self.gpus)])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let rows = std::fs::read_to_string(dir.path().join("out/jobs.csv")).unwrap();
        let finish = |row: &str| row.split(',').nth(5).unwrap().parse().unwrap();
        rows.lines().skip(1).map(finish).collect()
    }

    /// Runs the script with real processes. Returns when each job ended, in seconds from the first submission, and the
    /// tolerance: a busy machine starts processes slowly, which the simulator does not know.
    fn run(&self, python: &str) -> (Vec<f64>, f64) {
        let settings = format!("policy: {}\nparts: {{sizing: '{}'}}\n", self.policy, self.sizing);
        let mut cluster = Cluster::start(1, self.gpus, &settings);
        let script = cluster.script("trainer.py", TRAINER);
        let overhead = (0..3)
            .map(|_| overhead(&cluster, python, &script))
            .fold(0.0, f64::max);
        enum Step<'a> {
            Submit(&'a Job),
            Incident(&'a Incident),
        }
        let mut steps: Vec<(f64, Step<'_>)> = Vec::new();
        steps.extend(self.jobs.iter().map(|j| (j.submit, Step::Submit(j))));
        steps.extend(
            self.incidents
                .iter()
                .map(|(at, what)| (*at, Step::Incident(what))),
        );
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (began, mut ids) = (Instant::now(), Vec::new());
        for (at, step) in steps {
            std::thread::sleep(Duration::from_secs_f64(at).saturating_sub(began.elapsed()));
            match step {
                Step::Submit(job) => ids.push(submit(&cluster, python, &script, job)),
                Step::Incident(Incident::ServerKilled) => {
                    cluster.stop_server("KILL");
                    cluster.start_server();
                }
                Step::Incident(Incident::AgentKilled) => {
                    cluster.kill_agent(0);
                    cluster.start_agent(0);
                }
                Step::Incident(Incident::Held(i)) => drop(cluster.ok(&["job", "hold", &ids[*i].to_string()])),
                Step::Incident(Incident::Released(i)) => {
                    drop(cluster.ok(&["job", "release", &ids[*i].to_string()]))
                }
            }
        }
        for id in &ids {
            cluster.until_state(*id, "completed");
        }
        let start = seconds(&cluster, ids[0], "submitted");
        let ends = ids
            .iter()
            .map(|id| seconds(&cluster, *id, "ended") - start)
            .collect();
        let launches: u64 = ids
            .iter()
            .map(|id| cluster.job(*id)["attempt_count"].as_u64().unwrap())
            .sum();
        (ends, TOLERANCE.max(2.0 * overhead * launches as f64))
    }

    /// Runs the script and checks when jobs end.
    fn check(&self, expected: &[f64]) {
        let Some(python) = python() else { return };
        let (live, tolerance) = self.run(python);
        let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance;
        assert!(
            live.iter().zip(expected).all(is_close),
            "{}: jobs must end at {expected:?} but end at {live:?} (tolerance {tolerance:.1} s)",
            self.policy
        );
    }
}

/// Returns a time of a job, in seconds.
fn seconds(cluster: &Cluster, id: u64, key: &str) -> f64 {
    cluster.job(id)[key].as_f64().unwrap() / 1e6
}

/// Returns how much longer a short job takes than its steps.
fn overhead(cluster: &Cluster, python: &str, script: &str) -> f64 {
    let id = submit(cluster, python, script, &job(0.0, 0.1));
    cluster.until_state(id, "completed");
    seconds(cluster, id, "ended") - seconds(cluster, id, "submitted") - 0.1
}

fn submit(cluster: &Cluster, python: &str, script: &str, job: &Job) -> u64 {
    let (gpus, most) = (job.gpus.to_string(), job.max_gpus.to_string());
    let (expected, steps) = (format!("{}s", job.seconds), format!("{:.0}", job.seconds * 10.0));
    let flags = ["--gpus", &gpus, "--max-gpus", &most, "--expected", &expected];
    cluster.submit(&flags, &[python, script, &steps, &gpus])
}

#[test]
fn srtf_keeps_the_work_of_preempted_jobs() {
    let script = Script {
        policy: "srtf",
        sizing: "rigid",
        gpus: 1,
        jobs: &[job(0.0, 30.0), job(20.0, 5.0), job(22.0, 20.0)],
        incidents: &[],
    };
    let simulated = script.simulated();
    assert_eq!(simulated, [35.0, 25.0, 55.0]);
    script.check(&simulated);
}

#[test]
fn killed_servers_and_agents_change_no_completion() {
    let script = Script {
        policy: "srtf",
        sizing: "rigid",
        gpus: 1,
        jobs: &[job(0.0, 15.0), job(10.0, 2.5), job(11.0, 10.0)],
        incidents: &[
            (5.0, Incident::ServerKilled),
            (11.5, Incident::AgentKilled),
            (14.0, Incident::ServerKilled),
        ],
    };
    let simulated = script.simulated();
    assert_eq!(simulated, [17.5, 12.5, 27.5]);
    script.check(&simulated);
}

#[test]
fn a_job_that_was_held_resumes_with_its_work() {
    let script = Script {
        policy: "srtf",
        sizing: "rigid",
        gpus: 1,
        jobs: &[job(0.0, 12.0), job(6.0, 10.0)],
        incidents: &[(5.0, Incident::Held(0)), (8.0, Incident::Released(0))],
    };
    // At 8 s the first job has 7 s left and the second one 8 s.
    script.check(&[15.0, 23.0]);
}

#[test]
fn a_job_that_changes_its_width_keeps_its_work() {
    let elastic = Job {
        max_gpus: 2,
        ..job(0.0, 20.0)
    };
    let script = Script {
        policy: "optimus",
        sizing: "optimus:interval=0s,overhead=0",
        gpus: 2,
        jobs: &[elastic, job(5.0, 4.0)],
        incidents: &[],
    };
    let simulated = script.simulated();
    assert_eq!(simulated, [12.0, 9.0]);
    script.check(&simulated);
}

/// Runs `scripts/fidelity`, which prints the table of the docs, with few jobs.
#[test]
fn policies_start_stop_and_end_jobs_as_simulated() {
    if python().is_none() {
        return;
    }
    let output = std::process::Command::new(project().join("scripts/fidelity"))
        .args(["--policies", "srtf,tiresias,cells", "--jobs", "8", "--json"])
        .env("DOVETAIL_BIN", crate::harness::DOVETAIL)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), 3);
    for line in lines.lines() {
        let run: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&run["jobs"], &run["start_inversions"]),
            (&8.into(), &0.into()),
            "{run}"
        );
        assert_eq!(run["live_stops"], run["simulated_stops"], "{run}");
        assert!(run["mean_finish_error"].as_f64().unwrap() < 0.05, "{run}");
    }
}

#[test]
fn models_are_measured_and_run_times_are_predicted() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(1, 2, "policy: srtf\n");
    let script = cluster.script("trainer.py", TRAINER);
    let toy = cluster.submit(&["--model", "toy"], &[python, &script, "60", "1"]);
    for i in 0..2 {
        let id = cluster.submit(&["--name", &format!("short-{i}")], &["sleep", "1"]);
        cluster.until_state(id, "completed");
    }
    let third = cluster.submit(&["--name", "short-2"], &["sleep", "1"]);
    assert_eq!(cluster.job(third)["estimate"]["source"], "prediction");
    let shown = cluster.ok(&["job", "show", &third.to_string()]);
    assert!(shown.contains("(predicted from 2 similar jobs: "), "{shown}");
    cluster.until_state(toy, "completed");
    assert_eq!(cluster.job(toy)["estimate"]["source"], "steps");

    let list: Value = serde_json::from_str(&cluster.ok(&["profile", "list", "--json"])).unwrap();
    let profile = &list[0];
    assert_eq!(
        (&profile["model"], &profile["jobs"]),
        (&"toy".into(), &1.into()),
        "{list}"
    );
    let step = profile["measurements"][0]["step_ms"].as_f64().unwrap();
    assert!((90.0..200.0).contains(&step), "{list}");
    assert!(
        cluster
            .ok(&["profile", "show", "toy"])
            .starts_with("toy: measured on 1 job")
    );
    let exported = cluster.ok(&["profile", "export", "--out", "profiles.yaml"]);
    assert_eq!(exported, "profiles.yaml: 1 model");
    cluster.script(
        "jobs.csv",
        "submit_s,duration_s,gpus,model\n0,10,1,toy\n0,10,1,toy\n",
    );
    let simulated = cluster.ok(&[
        "simulate",
        "--trace",
        "jobs.csv",
        "--cluster",
        "1x1",
        "--policy",
        "muri-s",
        "--profiles",
        "profiles.yaml",
        "--json",
    ]);
    assert!(simulated.contains("\"finished\": 2"), "{simulated}");

    cluster.ok(&["profile", "forget", "toy"]);
    assert_eq!(cluster.ok(&["profile", "list", "--json"]), "[]");
    let again = cluster.run(&["profile", "forget", "toy"]);
    assert!(
        again.code == 2 && again.err.contains("no profile of model \"toy\""),
        "{again:?}"
    );
}
