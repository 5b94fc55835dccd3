//! Stage gates: real trainers with the Python package, which share a GPU on a real agent.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and reports what it skips"
)]

mod common;

use std::path::Path;

use common::agent::Agent;
use common::server::TestServer;
use common::{key, peer, script, until};
use dovetail_model::stages::{Ordering, Stages, period_us};
use dovetail_proto::v1::agent_message::Body as AgentBody;
use dovetail_proto::v1::server_message::Body;
use dovetail_proto::v1::{Interleaving, Processes, Progress, ResizeTask, StartTask};

/// A trainer whose stages take a fixed time. It writes when it computed, on a clock that all processes share.
const TRAINER: &str = r#"
import sys, time
import dovetail

log, data, gpu, net = open(sys.argv[1], "a", buffering=1), *(float(a) / 1e6 for a in sys.argv[2:5])

@dovetail.on_resize
def resized(cpus, memory_mib):
    print("resized", cpus, memory_mib, file=log)

class Loader:
    def __iter__(self):
        while True:
            time.sleep(data)
            yield 0

for batch in dovetail.iterate(Loader(), total_steps=100000):
    begin = time.monotonic()
    time.sleep(gpu)
    print("gpu", begin, time.monotonic(), file=log)
    if net:
        with dovetail.stage("net"):
            time.sleep(net)
"#;

fn has_python() -> bool {
    let found = std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_ok();
    if !found {
        println!("SKIPPED: python3 is not installed");
    }
    found
}

/// Stages of a job, in microseconds.
type Times = [u32; 3];

fn stages([data, gpu, net]: Times) -> Stages {
    Stages::three(data, gpu, net, data + gpu + net)
}

/// Returns the command that starts a job with these stages on the first GPU.
fn trainer(folder: &Path, job: u64, times: Times) -> StartTask {
    let log = folder.join(format!("log-{job}")).display().to_string();
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
    let mut command = script(job, "");
    command.command = ["python3", "-c", TRAINER, &log].map(str::to_owned).to_vec();
    command.command.extend(times.iter().map(u32::to_string));
    command.env = [("PYTHONPATH".to_owned(), package.to_owned())].into();
    command.processes = Processes::PerGpu.into();
    command.gpus = vec![0];
    command.peers = vec![peer("n1", &[0])];
    command.shared = true;
    command.cpu_milli = 1000;
    command.memory_mib = 512;
    command.interleaving = Some(Interleaving {
        stage_us: times.to_vec(),
        iteration_us: times.iter().sum(),
        worst_order: false,
    });
    command
}

/// Waits for a report of a job with these partners, whose period was measured if `is_measured` is set.
async fn gated(server: &TestServer, job: u64, partners: &[u64], is_measured: bool) -> Progress {
    let find = |message: &AgentBody| match message {
        AgentBody::Progress(p) if p.task == Some(key(job, 1)) => {
            let gates = p.gates.as_ref()?;
            let is_complete = gates.partners == partners && (!is_measured || gates.measured_period_us > 0);
            is_complete.then(|| p.clone())
        }
        _ => None,
    };
    server.wait_for("n1", "a report of a job with gates", find).await
}

/// Returns when a job computed, in microseconds.
fn gpu_uses(folder: &Path, job: u64) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(folder.join(format!("log-{job}"))).unwrap_or_default();
    let micros = |text: &str| (text.parse::<f64>().unwrap() * 1e6) as u64;
    let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines).lines();
    complete
        .filter_map(|line| {
            let mut words = line.split(' ');
            (words.next() == Some("gpu"))
                .then(|| (micros(words.next().unwrap()), micros(words.next().unwrap())))
        })
        .collect()
}

/// Checks that jobs do not compute at the same time, except for a few steps when gates are switched on, and returns the mean
/// time between steps of the first one.
fn check_turns(folder: &Path, jobs: &[u64], skip: usize) -> f64 {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for job in jobs {
        all.extend(gpu_uses(folder, *job));
    }
    all.sort_unstable();
    let all = &all[skip..];
    let overlaps = all
        .windows(2)
        .filter(|pair| pair[1].0 + 1_000 < pair[0].1)
        .count();
    assert!(
        overlaps <= all.len() / 20,
        "{overlaps} of {} uses of the GPU overlap",
        all.len()
    );
    let own = gpu_uses(folder, jobs[0]);
    let own = &own[skip..];
    (own[own.len() - 1].0 - own[0].0) as f64 / (own.len() - 1) as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_jobs_interleave_their_stages_and_the_agent_measures_the_period() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let times: [Times; 2] = [[120_000, 40_000, 0], [40_000, 100_000, 20_000]];
    let planned = period_us(&times.map(stages), Ordering::Best);
    let in_turn: u32 = times.iter().flatten().sum();
    for (job, times) in (1..).zip(times) {
        server.start_task("n1", trainer(folder.path(), job, times));
    }
    let report = gated(&server, 1, &[2], true).await;
    let gates = report.gates.unwrap();
    assert_eq!(gates.planned_period_us as f64, planned);
    // How near to the plan depends on what else the machine does; `scripts/interleave` measures that.
    let is_interleaved = |period: f64| (planned * 0.98..f64::from(in_turn) * 0.8).contains(&period);
    assert!(is_interleaved(gates.measured_period_us as f64), "{gates:?}");
    until("a hundred steps", || {
        (gpu_uses(folder.path(), 1).len() > 100).then_some(())
    })
    .await;
    let period = check_turns(folder.path(), &[1, 2], 20);
    println!(
        "planned {planned} us, agent {} us, scripts {period:.0} us, in turn {in_turn} us",
        gates.measured_period_us
    );
    assert!(is_interleaved(period), "{period} instead of {planned}");
    // Stages exclude the wait at gates.
    let other = gated(&server, 2, &[1], true).await;
    let measured = [other.data_time_us, other.gpu_time_us, other.network_time_us];
    for (measured, stated) in measured.into_iter().zip(times[1]) {
        assert!(
            measured.abs_diff(stated.into()) < 5_000 + u64::from(stated) / 5,
            "{other:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_jobs_run_in_phases_and_the_others_continue_when_one_stops() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let mut agent = Agent::start(&server, "n1").await;
    let times: [Times; 3] = [
        [60_000, 30_000, 30_000],
        [30_000, 40_000, 10_000],
        [50_000, 20_000, 30_000],
    ];
    let planned = |jobs: &[Times]| {
        let stages: Vec<Stages> = jobs.iter().copied().map(stages).collect();
        period_us(&stages, Ordering::Best)
    };
    let check_period = |measured_us: u64, jobs: &[Times]| {
        let (measured, planned) = (measured_us as f64, planned(jobs));
        let in_turn: u32 = jobs.iter().flatten().sum();
        println!("planned {planned} us, measured {measured_us} us, in turn {in_turn} us");
        assert!(measured > planned * 0.98 && measured < f64::from(in_turn) * 0.8);
    };
    for (job, times) in (1..).zip(times) {
        server.start_task("n1", trainer(folder.path(), job, times));
    }
    let gates = gated(&server, 1, &[2, 3], true).await.gates.unwrap();
    check_period(gates.measured_period_us, &times);
    // The trainers connect to the next agent, which has the stages of their jobs in its records.
    agent.kill();
    agent.restart();
    server.hello("n1", 2).await;
    server.received().all.clear();
    gated(&server, 2, &[1, 3], true).await;
    server.stop("n1", key(3, 1), false);
    let gates = gated(&server, 1, &[2], true).await.gates.unwrap();
    assert_eq!(gates.planned_period_us as f64, planned(&times[..2]));
    check_period(gates.measured_period_us, &times[..2]);
    assert_eq!(server.ended("n1", key(3, 1)).await.exit_code, 75);
    server.stop("n1", key(2, 1), false);
    server.ended("n1", key(2, 1)).await;
    server.received().all.clear();
    // Alone, the job does not wait at gates.
    let find = |message: &AgentBody| match message {
        AgentBody::Progress(p) if p.task == Some(key(1, 1)) && p.gates.is_none() => Some(()),
        _ => None,
    };
    server.wait_for("n1", "a report without gates", find).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_stages_is_not_gated_and_trainers_are_told_of_a_resize() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let _agent = Agent::start(&server, "n1").await;
    let times = [5_000, 5_000, 0];
    let mut without_stages = trainer(folder.path(), 2, times);
    without_stages.interleaving = None;
    server.start_task("n1", trainer(folder.path(), 1, times));
    server.start_task("n1", without_stages);
    until("steps of both", || {
        [1, 2]
            .iter()
            .all(|job| gpu_uses(folder.path(), *job).len() > 50)
            .then_some(())
    })
    .await;
    let is_gated = |message: &AgentBody| matches!(message, AgentBody::Progress(p) if p.gates.is_some());
    let received = server.received().all.clone();
    assert!(
        !received
            .iter()
            .any(|(_, message)| message.body.as_ref().is_some_and(is_gated))
    );
    let resize = ResizeTask {
        task: Some(key(1, 1)),
        cpu_milli: 500,
        memory_mib: 256,
    };
    server.send("n1", Body::ResizeTask(resize));
    until("the resize", || {
        let text = std::fs::read_to_string(folder.path().join("log-1")).unwrap_or_default();
        text.contains("resized 0.5 256").then_some(())
    })
    .await;
}
