//! `dovetail bench`: what decisions and replays cost on this machine, on one core.

mod cells;
mod grouping;
pub mod kube;
mod live;
mod sizing;
mod web;

use std::time::Instant;

use dovetail_engine::{Clock, Engine, Knowledge};
use dovetail_model::{ClusterSpec, Command, Event, JobId, JobSpec, Outcome, Rate, Time, Work};
use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_sim::{SimConfig, compat, simulate, simulate_with};
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::{Workload, read};
use rayon::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::args::{BenchArg, BenchArgs};
use crate::failure::{Blame, Failure};
use crate::show;

/// One line of the result.
#[derive(Debug, Serialize)]
struct Figure {
    what: String,
    seconds: f64,
    figure: f64,
    unit: &'static str,
    goal: &'static str,
}

/// Measures and shows.
///
/// # Errors
/// When a trace cannot be read.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let figures = match args.what {
        BenchArg::Cells => return cells::run(args),
        BenchArg::Kube => return kube::run(args),
        BenchArg::Live => return live::run(args),
        BenchArg::Web => return web::run(args),
        BenchArg::Sim => simulation(args)?,
        BenchArg::Grouping => grouping::figures(args.trace.as_ref())?,
        BenchArg::Sizing => sizing::figures()?,
    };
    if args.json {
        return show::print(serde_json::to_string_pretty(&figures).or_work()?);
    }
    let mut table = show::table(&["what", "CPU time", "figure", "goal"]);
    for f in &figures {
        table.add_row([
            f.what.clone(),
            format!("{:.3} s", f.seconds),
            format!("{} {}", digits(f.figure), f.unit),
            f.goal.to_owned(),
        ]);
    }
    show::align_numbers(&mut table);
    show::print(table)
}

/// Replays, and rounds of a large cluster.
fn simulation(args: &BenchArgs) -> Result<Vec<Figure>, Failure> {
    let philly = match &args.trace {
        Some(path) => read(path, None).or_request()?,
        None => generate(&GenerateSpec {
            jobs: 82_247,
            ..GenerateSpec::default()
        })
        .or_request()?,
    };
    let mut figures = Vec::new();
    for (policy, goal) in [
        ("fifo-backfill", "1,000,000 events/s"),
        ("sjf", ""),
        ("srsf", "200,000 events/s"),
        ("tiresias", "200,000 events/s"),
        ("las", ""),
        ("gittins", ""),
    ] {
        for cluster in [ClusterSpec::uniform(534, 1), ClusterSpec::uniform(67, 8)] {
            figures.push(replay(&philly, policy, cluster, goal)?);
        }
    }
    figures.extend(blox_sets()?);
    figures.push(all_cores(&philly)?);
    figures.extend(rounds()?);
    if !args.short {
        figures.push(million()?);
    }
    Ok(figures)
}

/// Three digits at least.
fn digits(figure: f64) -> String {
    match figure {
        f if f >= 100.0 || f == 0.0 => count(f as u64),
        f if f >= 10.0 => format!("{f:.1}"),
        f if f >= 1.0 => format!("{f:.2}"),
        f => format!("{f:.3}"),
    }
}

/// Seconds this thread has spent on a core. What else the machine does hardly matters then.
fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// A replay, the best of seven, for the machine may be busy with other things: the CPU time of all of it, figures at the
/// end included, and the rate at which its events were handled.
fn replay(
    workload: &Workload,
    policy: &str,
    cluster: ClusterSpec,
    goal: &'static str,
) -> Result<Figure, Failure> {
    let (jobs, nodes) = (count(workload.jobs.len() as u64), cluster.nodes.len());
    let mut config = SimConfig::new(cluster);
    config.segments = 0;
    let (mut whole, mut rate) = (f64::INFINITY, 0.0f64);
    for _ in 0..7 {
        let (built, needs) = build(policy, &Overrides::default()).or_work()?;
        let before = cpu_seconds();
        let mut loop_ended = before;
        let mut told = |_: u64| loop_ended = cpu_seconds();
        let record = simulate_with(workload, built, needs, &config, None, &mut told).or_work()?;
        whole = whole.min(cpu_seconds() - before);
        rate = rate.max(record.summary.events as f64 / (loop_ended - before).max(1e-9));
    }
    let what = format!("replay {jobs} jobs, {policy}, {nodes} nodes");
    Ok(Figure {
        what,
        seconds: whole,
        figure: rate,
        unit: "events/s",
        goal,
    })
}

/// Sets of Blox's own runs: name, policies, CPU seconds of the reference for all of them.
const BLOX_SETS: [(&str, &[&str], f64); 3] = [
    ("O_default_single_load2", &["las", "srtf", "optimus"], 26.0),
    ("M_small_multi_load16", &["fifo", "las", "srtf"], 32.1),
    ("S_small_single_load40", &["fifo", "las", "srtf"], 48.7),
];

/// Blox's runs, job by job the same, against the CPU time of the reference; left out where its data is absent.
fn blox_sets() -> Result<Vec<Figure>, Failure> {
    let shared =
        std::env::var_os("DOVETAIL_SHARED").map_or_else(|| "../shared".into(), std::path::PathBuf::from);
    let mut figures = Vec::new();
    for (set, policies, reference) in BLOX_SETS {
        let path = shared.join("data/blox").join(set).join("workload.csv");
        if !path.is_file() {
            eprintln!("SKIPPED: {} is not there (set DOVETAIL_SHARED)", path.display());
            continue;
        }
        let workload = read(&path, None).or_request()?;
        let before = cpu_seconds();
        // One pass takes less than the clock's tick: take the mean of many.
        let passes = 50;
        for policy in policies.iter().cycle().take(passes * policies.len()) {
            let mut config = SimConfig::new(ClusterSpec::uniform(32, 4));
            let (built, needs) =
                compat::blox(policy, &Overrides::default(), &workload, None, &mut config).or_work()?;
            simulate(&workload, built, needs, &config).or_work()?;
        }
        let seconds = (cpu_seconds() - before) / passes as f64;
        figures.push(Figure {
            what: format!("Blox set {set}, {}", policies.join(" ")),
            seconds,
            figure: reference / seconds.max(1e-9),
            unit: "times less CPU",
            goal: "1,000 times",
        });
    }
    Ok(figures)
}

/// How much faster a grid of runs gets with all cores: wall time on one thread over wall time on all.
fn all_cores(workload: &Workload) -> Result<Figure, Failure> {
    let mut config = SimConfig::new(ClusterSpec::uniform(67, 8));
    config.segments = 0;
    let one_run = |_: u32| -> Result<(), Failure> {
        let (built, needs) = build("srsf", &Overrides::default()).or_work()?;
        simulate(workload, built, needs, &config).or_work().map(drop)
    };
    let cores = rayon::current_num_threads() as u32;
    let runs = 4 * cores;
    let began = Instant::now();
    (0..runs).try_for_each(one_run)?;
    let alone = began.elapsed().as_secs_f64();
    let began = Instant::now();
    (0..runs).into_par_iter().try_for_each(one_run)?;
    let together = began.elapsed().as_secs_f64();
    Ok(Figure {
        what: format!("{runs} runs of srsf on {cores} cores against one"),
        seconds: together,
        figure: alone / together * 100.0,
        unit: "% of one core",
        goal: "near-linear",
    })
}

/// Decisions at 100,000 GPUs with 100,000 jobs in line: nothing changed, one arrival, one completion.
fn rounds() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for policy in ["fifo-backfill", "srsf", "tiresias"] {
        let (built, needs) = build(policy, &Overrides::default()).or_work()?;
        let mut engine = Engine::with_cluster(built, Clock::Events, &ClusterSpec::uniform(12_500, 8));
        let mut running = Vec::new();
        let job = |id: u32| {
            let mut spec = JobSpec::new(JobId(id), [1, 1, 1, 2, 4, 8, 8, 16][id as usize % 8]);
            spec.expected = (needs != Knowledge::None).then_some(Work(3_600_000_000 + u64::from(id)));
            spec
        };
        let mut next = 0;
        while engine.idle().0 < 100_000 {
            engine.handle(Time(i64::from(next)), Event::Submitted(job(next)));
            settle(&mut engine, &mut running);
            next += 1;
        }
        let mut measure = |what: &str, goal: &'static str, step: &mut dyn FnMut(&mut Engine, u32)| {
            let mut times: Vec<f64> = (0..1001)
                .map(|i| {
                    let began = Instant::now();
                    step(&mut engine, i);
                    began.elapsed().as_secs_f64()
                })
                .collect();
            times.sort_unstable_by(f64::total_cmp);
            let median = times[500];
            figures.push(Figure {
                what: format!("{what}, 100,000 GPUs, 100,000 jobs in line, {policy}"),
                seconds: median,
                figure: median * 1e9,
                unit: "ns (median)",
                goal,
            });
        };
        let base = i64::from(next);
        let node = engine_node();
        measure("round that changes nothing", "50,000 ns", &mut |engine, i| {
            // A node that is already known reports again: the engine decides, and nothing comes of it.
            engine.handle(Time(base + i64::from(i)), node.clone());
            while engine.poll().is_some() {}
        });
        let mut started = Vec::new();
        measure("one arrival", "1,000,000 ns", &mut |engine, i| {
            engine.handle(Time(base + 2000 + i64::from(i)), Event::Submitted(job(next + i)));
            settle(engine, &mut started);
        });
        measure("one completion", "", &mut |engine, i| {
            let (job, generation) = running[i as usize * 7];
            let now = Time(base + 4000 + i64::from(i));
            engine.handle(
                now,
                Event::Exited {
                    job,
                    generation,
                    outcome: Outcome::Completed,
                },
            );
            settle(engine, &mut started);
        });
    }
    Ok(figures)
}

fn engine_node() -> Event {
    let spec = ClusterSpec::uniform(1, 8)
        .nodes
        .values()
        .next()
        .expect("one node was asked for")
        .clone();
    Event::NodeUp {
        node: dovetail_model::NodeId(0),
        spec,
    }
}

/// Carries out all commands at once.
fn settle(engine: &mut Engine, running: &mut Vec<(JobId, dovetail_model::Generation)>) {
    while let Some(command) = engine.poll() {
        let now = engine.now();
        match command {
            Command::Launch { job, generation, .. } => {
                engine.handle(
                    now,
                    Event::Started {
                        job,
                        generation,
                        rate: Rate::FULL,
                    },
                );
                running.push((job, generation));
            }
            Command::Stop { job, generation, .. } => {
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

/// A million jobs on 100,000 GPUs with consolidated placement.
fn million() -> Result<Figure, Failure> {
    let gpus = 100_000;
    let spec = GenerateSpec {
        jobs: 1_000_000,
        load: Some(0.95),
        cluster_gpus: Some(gpus),
        ..GenerateSpec::default()
    };
    let workload = generate(&spec).or_work()?;
    let mut config = SimConfig::new(ClusterSpec::uniform(gpus / 8, 8));
    config.segments = 0;
    let (built, needs) = build("fifo-backfill", &Overrides::default()).or_work()?;
    let before = cpu_seconds();
    let record = simulate(&workload, built, needs, &config).or_work()?;
    let seconds = cpu_seconds() - before;
    Ok(Figure {
        what: format!(
            "1,000,000 jobs on 100,000 GPUs, fifo-backfill ({} MiB at most)",
            peak_mib()
        ),
        seconds,
        figure: record.summary.events as f64 / seconds,
        unit: "events/s",
        goal: "60 s, 4096 MiB",
    })
}

/// Peak memory of this process, where the system tells.
fn peak_mib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib: Option<u64> = peak.and_then(|p| p.trim().trim_end_matches(" kB").trim().parse().ok());
    kib.map_or_else(|| "?".to_owned(), |kib| (kib / 1024).to_string())
}
