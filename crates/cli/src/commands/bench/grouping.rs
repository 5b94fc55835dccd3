//! `dovetail bench grouping`: what sharing GPUs costs, a round and a replay.

use std::path::PathBuf;
use std::time::Instant;

use dovetail_engine::{Clock, Engine};
use dovetail_model::{ClusterSpec, Command, Event, JobId, JobSpec, Rate, Time, Work};
use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::stage_table::{StageProfile, StageTable};
use dovetail_workload::{Format, Workload, read};

use super::{Figure, cpu_seconds};
use crate::failure::{Blame, Failure};

/// Policies of one trace, all of which together are to take less than two seconds.
const POLICIES: [&str; 8] = [
    "srtf", "srsf", "tiresias", "antman", "sjf-bsbf", "themis", "muri-s", "muri-l",
];

/// The figures: a round with many in line, and all policies over Muri's traces.
///
/// # Errors
/// When a trace cannot be read.
pub(super) fn figures(trace: Option<&PathBuf>) -> Result<Vec<Figure>, Failure> {
    let mut figures = vec![
        regroup(1_000, "less than 10 ms")?,
        regroup(10_000, "less than 200 ms")?,
    ];
    let shared =
        std::env::var_os("DOVETAIL_SHARED").map_or_else(|| "../shared".into(), std::path::PathBuf::from);
    let traces: Vec<PathBuf> = match trace {
        Some(path) => vec![path.clone()],
        None => ["trace3", "trace1", "trace4"]
            .map(|t| shared.join(format!("data/muri/trace-data/{t}.csv")))
            .to_vec(),
    };
    for path in traces {
        if !path.is_file() {
            eprintln!("SKIPPED: {} is not there (set DOVETAIL_SHARED)", path.display());
            continue;
        }
        let workload = read(&path, Some(Format::Muri)).or_request()?;
        let name = path.file_stem().map(|n| n.to_string_lossy().into_owned());
        figures.extend(all_policies(&workload, &name.unwrap_or_default())?);
    }
    Ok(figures)
}

/// Every policy over the trace on 8 nodes of 8 GPUs, and the sum.
fn all_policies(workload: &Workload, trace: &str) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let mut sum = 0.0;
    for policy in POLICIES {
        let mut config = SimConfig::new(ClusterSpec::uniform(8, 8));
        config.segments = 0;
        config.restart_cost = Time::from_secs(30);
        let (built, needs) = build(policy, &Overrides::default()).or_work()?;
        let before = cpu_seconds();
        let record = simulate(workload, built, needs, &config).or_work()?;
        let seconds = cpu_seconds() - before;
        sum += seconds;
        figures.push(Figure {
            what: format!("{trace}, {policy}"),
            seconds,
            figure: record.summary.avg_jct_s,
            unit: "s average JCT",
            goal: "",
        });
    }
    figures.push(Figure {
        what: format!("{trace}, all {} policies", POLICIES.len()),
        seconds: sum,
        figure: sum * 1000.0,
        unit: "ms",
        goal: "less than 2 s",
    });
    Ok(figures)
}

/// One arrival with so many jobs in line, all of which can run if four share GPUs: the median of eleven whole decisions,
/// commands included. It is too short for the clock of CPU time, so this is time that went by.
fn regroup(jobs: u32, goal: &'static str) -> Result<Figure, Failure> {
    let profiles = StageTable::default().rows;
    let specs: Vec<JobSpec> = (0..jobs + 11).map(|i| job(i, &profiles)).collect();
    let gpus: u32 = specs.iter().map(|s| s.gpus).sum();
    let (policy, _) = build("muri-s", &Overrides::default()).or_work()?;
    let cluster = ClusterSpec::uniform(gpus.div_ceil(4 * 8) + 1, 8);
    let mut engine = Engine::with_cluster(policy, Clock::Events, &cluster);
    let mut times = Vec::new();
    let mut now = Time::ZERO;
    for (i, spec) in specs.into_iter().enumerate() {
        engine.handle(now, Event::Submitted(spec));
        if i as u32 + 1 < jobs {
            continue;
        }
        let began = Instant::now();
        let mut commands = Vec::new();
        while let Some(command) = engine.poll() {
            commands.push(command);
        }
        times.push(began.elapsed().as_secs_f64());
        answer(&mut engine, now, commands);
        now += Time::from_secs(60);
    }
    // The first decision starts everyone; those after it are for one arrival each.
    let mut times = times.split_off(1);
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    Ok(Figure {
        what: format!("regroup {} jobs after an arrival, muri-s", count(u64::from(jobs))),
        seconds: times.iter().sum(),
        figure: median * 1e6,
        unit: "us",
        goal,
    })
}

/// Carries out what the engine wants, at once.
fn answer(engine: &mut Engine, now: Time, commands: Vec<Command>) {
    let mut open = commands;
    while !open.is_empty() {
        for command in std::mem::take(&mut open) {
            match command {
                Command::Launch { job, generation, .. } => engine.handle(
                    now,
                    Event::Started {
                        job,
                        generation,
                        rate: Rate::FULL,
                    },
                ),
                Command::Stop { job, generation, .. } => engine.handle(
                    now,
                    Event::Stopped {
                        job,
                        generation,
                        done: Work(0),
                    },
                ),
                Command::Resize { .. } | Command::Reject { .. } => {}
            }
        }
        while let Some(command) = engine.poll() {
            open.push(command);
        }
    }
}

/// A job of one of the measured models, one to eight GPUs wide.
fn job(number: u32, profiles: &[StageProfile]) -> JobSpec {
    // A multiplier and a shift: numbers that look drawn, the same every time.
    let drawn = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let narrow: Vec<&StageProfile> = profiles.iter().filter(|p| p.gpus <= 8).collect();
    let profile = narrow[drawn as usize % narrow.len()];
    let mut spec = JobSpec::new(JobId(number), profile.gpus);
    spec.stages = Some(profile.stages);
    spec.expected = Some(Work::from_secs_f64(3600.0 + (drawn % 100_000) as f64));
    spec
}
