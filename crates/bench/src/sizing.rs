//! `dovetail bench sizing`: the cost of a round that gives CPU and memory by need.

use std::sync::Arc;

use dovetail_engine::{Clock, Engine};
use dovetail_model::{ClusterSpec, Command, Event, JobKey, JobSpec, Outcome, Share, Time, Work};
use dovetail_policies::sizing::opt::{BUDGET, Weight, cluster_bound};
use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_workload::SensitivityTable;

use crate::BenchError;
use crate::engine::{RunningJob, acknowledge, decide};
use crate::measurement::{CpuMeasurement, median, thread_cpu_seconds};

/// CPU seconds of a round of Synergy's simulator on 2,048 GPUs, as measured: the mean of three rounds, each of which
/// places all jobs from scratch.
const REFERENCE_S: [(&str, f64); 3] = [("proportional", 1.145), ("greedy", 1.494), ("tune", 1.555)];
/// Rounds that are measured after the first one, which starts all jobs.
const ROUNDS: usize = 21;
/// Runs of a setting; the best counts, because other processes may use the machine.
const RUNS: u32 = 5;
const PERIOD: Time = Time::from_secs(300);
const GPUS_PER_NODE: u32 = 8;
/// CPUs of a node, in thousandths.
const NODE_CPU_MILLI: u32 = 24_000;
const NODE_MEMORY_MIB: u64 = 500 * 1024;

/// A policy with a sizing, on a cluster with a number of jobs.
struct Setting {
    policy: &'static str,
    sizing: &'static str,
    nodes: u32,
    jobs: u32,
}

/// CPU seconds of rounds.
#[derive(Clone, Copy)]
struct RoundTimes {
    first: f64,
    /// Median of the later rounds.
    later: f64,
}

/// Measures rounds on 2,048 GPUs beside the reference, and on 16,384 GPUs, and the integer program of `opt`.
pub(crate) fn measure() -> Result<Vec<CpuMeasurement>, BenchError> {
    let mut measurements = Vec::new();
    for (sizing, reference_s) in REFERENCE_S {
        measurements.extend(compare_with_reference(sizing, reference_s)?);
    }
    for policy in ["fifo-backfill", "srtf"] {
        let setting = Setting {
            policy,
            sizing: "tune",
            nodes: 2_048,
            jobs: 20_000,
        };
        let name = format!("{policy}, tune");
        measurements.extend(setting.measure(&name, "less than 20 ms")?.1);
    }
    for (nodes, goal) in [(16, "less than 100 ms"), (64, "")] {
        let setting = Setting {
            policy: "fifo-backfill",
            sizing: "opt",
            nodes,
            jobs: nodes * GPUS_PER_NODE * 5 / 4,
        };
        measurements.extend(setting.measure("opt", goal)?.1);
        measurements.extend(integer_program(nodes, goal));
    }
    Ok(measurements)
}

/// Measures rounds on 2,048 GPUs, and how much faster they are than the reference's.
fn compare_with_reference(sizing: &'static str, reference_s: f64) -> Result<Vec<CpuMeasurement>, BenchError> {
    let setting = Setting {
        policy: "fifo-backfill",
        sizing,
        nodes: 256,
        jobs: 2_560,
    };
    let (times, mut measurements) = setting.measure(sizing, "")?;
    let ratio = |ours: &str, seconds: f64, goal| CpuMeasurement {
        name: format!("{sizing}, 2,048 GPUs: the reference's {reference_s} s over our {ours}"),
        seconds,
        value: reference_s / seconds.max(1e-9),
        unit: "times",
        goal,
    };
    let mean_of_three = (times.first + 2.0 * times.later) / 3.0;
    measurements.extend([
        ratio("first round", times.first, ""),
        ratio("round", times.later, "at least 1,000"),
        ratio("mean of three", mean_of_three, "at least 1,000"),
    ]);
    Ok(measurements)
}

/// Measures the integer program of a whole cluster, and how far its solution is below the bound at most.
fn integer_program(nodes: u32, goal: &'static str) -> [CpuMeasurement; 2] {
    let table = sensitivity_table();
    let gpus = nodes * GPUS_PER_NODE;
    let jobs: Vec<JobSpec> = (0..gpus).map(|i| job(i, Time::ZERO, &table)).collect();
    let capacity = [
        u64::from(nodes * NODE_CPU_MILLI),
        u64::from(nodes) * NODE_MEMORY_MIB,
    ];
    let fair = Share::new(3000, 64_000);
    let start = thread_cpu_seconds();
    let requests = jobs.iter().map(|job| (job, fair.times(GPUS_PER_NODE)));
    let solution = cluster_bound(requests, capacity, fair, Weight::Gpus, BUDGET);
    let seconds = thread_cpu_seconds() - start;
    let solution = solution.expect("proportional shares fit");
    let missing = (solution.bound - solution.gain) as f64 / solution.bound as f64;
    let name = format!("opt, {} GPUs: integer program of the cluster", count(gpus.into()));
    let proof = if solution.exact { "exact" } else { "not proven" };
    [
        CpuMeasurement {
            name: name.clone(),
            seconds,
            value: seconds * 1000.0,
            unit: "ms",
            goal,
        },
        CpuMeasurement {
            name: format!("{name}: below the linear bound ({proof})"),
            seconds,
            value: missing * 1e6,
            unit: "ppm",
            goal: "",
        },
    ]
}

impl Setting {
    /// Returns the best times of several runs, and the measurements of the first and a later round.
    fn measure(
        &self,
        name: &str,
        goal: &'static str,
    ) -> Result<(RoundTimes, Vec<CpuMeasurement>), BenchError> {
        let mut best = RoundTimes {
            first: f64::INFINITY,
            later: f64::INFINITY,
        };
        for _ in 0..RUNS {
            let times = self.run()?;
            best.first = best.first.min(times.first);
            best.later = best.later.min(times.later);
        }
        let measurement = |round: &str, seconds: f64| CpuMeasurement {
            name: format!(
                "{name}, {} GPUs, {} jobs: {round}",
                count((self.nodes * GPUS_PER_NODE).into()),
                count(self.jobs.into())
            ),
            seconds,
            value: seconds * 1000.0,
            unit: "ms",
            goal,
        };
        let measurements = vec![
            measurement("first round", best.first),
            measurement("round", best.later),
        ];
        Ok((best, measurements))
    }

    /// Runs rounds. The first starts all jobs; before each later one a hundredth of the running jobs has ended and as
    /// many have been submitted. Times are of whole decisions, commands included, in CPU time like the reference's.
    fn run(&self) -> Result<RoundTimes, BenchError> {
        let table = sensitivity_table();
        let mut engine = self.engine()?;
        let mut now = Time::ZERO;
        let mut next_job = 0;
        let mut running: Vec<RunningJob> = Vec::new();
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            let submitted = if round == 0 {
                self.jobs
            } else {
                self.nodes * GPUS_PER_NODE / 100
            };
            for _ in 0..submitted {
                engine.handle(now, Event::Submitted(job(next_job, now, &table)));
                next_job += 1;
            }
            engine.handle(now, Event::Wake);
            let start = thread_cpu_seconds();
            let commands = decide(&mut engine);
            times.push(thread_cpu_seconds() - start);
            for command in &commands {
                if let Command::Stop { job, .. } = command {
                    running.retain(|(id, _)| id != job);
                }
                running.extend(acknowledge(&mut engine, now, command));
            }
            now += PERIOD;
            end_some(&mut engine, now, &mut running);
        }
        let first = times.remove(0);
        Ok(RoundTimes {
            first,
            later: median(times),
        })
    }

    fn engine(&self) -> Result<Engine, BenchError> {
        let overrides = Overrides {
            sizing: Some(self.sizing.to_owned()),
            ..Overrides::default()
        };
        let (policy, _) = build(self.policy, &overrides)?;
        let mut cluster = ClusterSpec::uniform(self.nodes, GPUS_PER_NODE);
        for node in cluster.nodes.values_mut() {
            (node.cpu_milli, node.memory_mib) = (NODE_CPU_MILLI, NODE_MEMORY_MIB);
        }
        Ok(Engine::with_cluster(policy, Clock::rounds(PERIOD), &cluster))
    }
}

/// Ends a hundredth of the running jobs.
fn end_some(engine: &mut Engine, now: Time, running: &mut Vec<RunningJob>) {
    for i in 0..running.len() / 100 {
        let (job, attempt) = running.swap_remove(i * 97 % running.len());
        let outcome = Outcome::Completed;
        engine.handle(
            now,
            Event::Exited {
                job,
                attempt,
                outcome,
            },
        );
    }
}

fn sensitivity_table() -> SensitivityTable {
    SensitivityTable::builtin("synergy-3").expect("the table is built in")
}

/// Creates a job with one GPU; the models take turns.
fn job(number: u32, submit: Time, table: &SensitivityTable) -> JobSpec {
    let row = &table.rows[number as usize % table.rows.len()];
    JobSpec {
        sensitivity: Some(Arc::clone(&row.sensitivity)),
        submit,
        expected: Some(Work(
            u64::from(number).wrapping_mul(2_654_435_761) % 36_000_000_000 + 1,
        )),
        ..JobSpec::new(JobKey(number), 1)
    }
}
