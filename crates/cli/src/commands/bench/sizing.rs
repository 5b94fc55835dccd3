//! `dovetail bench sizing`: what a round costs that gives CPU and memory by need.

use std::sync::Arc;

use dovetail_engine::{Clock, Engine};
use dovetail_model::{
    ClusterSpec, Command, Event, Generation, JobId, JobSpec, Outcome, Rate, Share, Time, Work,
};
use dovetail_policies::sizing::opt::{BUDGET, Weight, cluster_bound};
use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_workload::SensitivityTable;

use super::{Figure, cpu_seconds};
use crate::failure::{Blame, Failure};

/// CPU seconds of a round of Synergy's simulator on 2,048 GPUs (proportional, greedy, tune), as measured: the mean of three,
/// each of which places everybody anew.
const REFERENCE_S: [(&str, f64); 3] = [("proportional", 1.145), ("greedy", 1.494), ("tune", 1.555)];
/// Rounds that are measured, after the one that starts everybody.
const ROUNDS: usize = 21;

/// The figures: rounds of 2,048 GPUs beside the reference, and of 16,384.
///
/// # Errors
/// When a policy cannot be built.
pub(super) fn figures() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (sizing, reference) in REFERENCE_S {
        let (first, round) = rounds("fifo-backfill", sizing, 256, 2_560)?;
        figures.push(figure(sizing, 2_048, 2_560, "first round", first, ""));
        figures.push(figure(sizing, 2_048, 2_560, "round", round, ""));
        let mean = (first + 2.0 * round) / 3.0;
        let ratio = |ours: &str, seconds: f64, goal| Figure {
            what: format!("{sizing}, 2,048 GPUs: the reference's {reference} s over our {ours}"),
            seconds,
            figure: reference / seconds.max(1e-9),
            unit: "times",
            goal,
        };
        figures.push(ratio("first round", first, ""));
        figures.push(ratio("round", round, "at least 1,000"));
        figures.push(ratio("mean of three", mean, "at least 1,000"));
    }
    for policy in ["fifo-backfill", "srtf"] {
        let (first, round) = rounds(policy, "tune", 2_048, 20_000)?;
        let what = format!("{policy}, tune");
        let goal = "less than 20 ms";
        figures.push(figure(&what, 16_384, 20_000, "first round", first, goal));
        figures.push(figure(&what, 16_384, 20_000, "round", round, goal));
    }
    for (nodes, goal) in [(16, "less than 100 ms"), (64, "")] {
        let gpus = nodes * 8;
        let (first, round) = rounds("fifo-backfill", "opt", nodes, gpus * 5 / 4)?;
        figures.push(figure("opt", gpus, gpus * 5 / 4, "first round", first, goal));
        figures.push(figure("opt", gpus, gpus * 5 / 4, "round", round, goal));
        figures.extend(program(nodes, goal));
    }
    Ok(figures)
}

/// The integer program for a whole cluster at once, and how far its answer is from the bound at most.
fn program(nodes: u32, goal: &'static str) -> Vec<Figure> {
    let table = SensitivityTable::builtin("synergy-3").expect("it comes with the program");
    let jobs: Vec<JobSpec> = (0..nodes * 8).map(|i| job(i, Time::ZERO, &table)).collect();
    let capacity = [u64::from(nodes) * 24_000, u64::from(nodes) * 500 * 1024];
    let before = cpu_seconds();
    let fair = Share::new(3000, 64_000);
    let each = jobs.iter().map(|job| (job, fair.times(8)));
    let choice = cluster_bound(each, capacity, fair, Weight::Gpus, BUDGET);
    let seconds = cpu_seconds() - before;
    let choice = choice.expect("proportional shares fit");
    let missing = (choice.bound - choice.gain) as f64 / choice.bound as f64;
    let what = format!(
        "opt, {} GPUs: the program of the cluster",
        count((nodes * 8).into())
    );
    let solved = Figure {
        what: what.clone(),
        seconds,
        figure: seconds * 1000.0,
        unit: "ms",
        goal,
    };
    let exact = if choice.exact { "exact" } else { "not proven" };
    vec![
        solved,
        Figure {
            what: format!("{what}: below the linear bound ({exact})"),
            seconds,
            figure: missing * 1e6,
            unit: "ppm",
            goal: "",
        },
    ]
}

fn figure(what: &str, gpus: u32, jobs: u32, which: &str, seconds: f64, goal: &'static str) -> Figure {
    Figure {
        what: format!(
            "{what}, {} GPUs, {} jobs: {which}",
            count(gpus.into()),
            count(jobs.into())
        ),
        seconds,
        figure: seconds * 1000.0,
        unit: "ms",
        goal,
    }
}

/// The best of five, for the machine may be busy with other things.
fn rounds(policy: &str, sizing: &str, nodes: u32, jobs: u32) -> Result<(f64, f64), Failure> {
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..5 {
        let (first, round) = run(policy, sizing, nodes, jobs)?;
        best = (best.0.min(first), best.1.min(round));
    }
    Ok(best)
}

/// The first round, which starts everybody, and the median of those after it, in each of which one in a hundred of the
/// running jobs ends and as many come. Whole decisions, commands included, in CPU time as the reference's are.
fn run(policy: &str, sizing: &str, nodes: u32, jobs: u32) -> Result<(f64, f64), Failure> {
    let table = SensitivityTable::builtin("synergy-3").expect("it comes with the program");
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (policy, _) = build(policy, &overrides).or_work()?;
    let mut cluster = ClusterSpec::uniform(nodes, 8);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (24_000, 500 * 1024);
    }
    let period = Time::from_secs(300);
    let mut engine = Engine::with_cluster(policy, Clock::rounds(period), &cluster);
    let mut now = Time::ZERO;
    let mut next = 0;
    let mut running: Vec<(JobId, Generation)> = Vec::new();
    let mut times = Vec::new();
    for _ in 0..=ROUNDS {
        let wanted = if next == 0 { jobs } else { nodes * 8 / 100 };
        for _ in 0..wanted {
            engine.handle(now, Event::Submitted(job(next, now, &table)));
            next += 1;
        }
        engine.handle(now, Event::Wake);
        let before = cpu_seconds();
        let mut commands = Vec::new();
        while let Some(command) = engine.poll() {
            commands.push(command);
        }
        times.push(cpu_seconds() - before);
        answer(&mut engine, now, commands, &mut running);
        now += period;
        for i in 0..running.len() / 100 {
            let (job, generation) = running.swap_remove(i * 97 % running.len());
            let outcome = Outcome::Completed;
            engine.handle(
                now,
                Event::Exited {
                    job,
                    generation,
                    outcome,
                },
            );
        }
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok((first, times[times.len() / 2]))
}

fn answer(engine: &mut Engine, now: Time, commands: Vec<Command>, running: &mut Vec<(JobId, Generation)>) {
    for command in commands {
        match command {
            Command::Launch { job, generation, .. } => {
                running.push((job, generation));
                engine.handle(
                    now,
                    Event::Started {
                        job,
                        generation,
                        rate: Rate::FULL,
                    },
                );
            }
            Command::Stop { job, generation, .. } => {
                running.retain(|(id, _)| *id != job);
                engine.handle(
                    now,
                    Event::Stopped {
                        job,
                        generation,
                        done: Work(0),
                    },
                );
            }
            Command::Resize { .. } | Command::Reject { .. } => {}
        }
    }
}

/// A job on one GPU, of each model in turn.
fn job(number: u32, submit: Time, table: &SensitivityTable) -> JobSpec {
    let row = &table.rows[number as usize % table.rows.len()];
    JobSpec {
        sensitivity: Some(Arc::clone(&row.sensitivity)),
        submit,
        expected: Some(Work(
            u64::from(number).wrapping_mul(2_654_435_761) % 36_000_000_000 + 1,
        )),
        ..JobSpec::new(JobId(number), 1)
    }
}
