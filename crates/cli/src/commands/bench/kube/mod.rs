//! `dovetail bench kube`: this scheduler, the one of Kubernetes and a binder that decides nothing, each on a control plane
//! of its own that has just been started, one after the other and then again.

mod drain;
mod field;
mod observer;
mod online;
mod rival;
mod takeover;

use std::time::Duration;

use anyhow::anyhow;
use clap::ValueEnum;
use dovetail_report::format::{count, significant};
use serde::Serialize;
use tokio::runtime::Runtime;

use self::drain::Drained;
pub use self::rival::Rival;
use super::live::{self, Row};
use crate::args::BenchArgs;
use crate::failure::{Blame, Failure};
use crate::{progress, show};

/// Everything that was measured.
#[derive(Debug, Default, Serialize)]
struct Measured {
    drains: Vec<Drained>,
    goals: Vec<Row>,
}

/// Measures and shows.
///
/// # Errors
/// When there is no control plane to be had, or a scheduler does not get on.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_work()?;
    let mut result = Measured::default();
    let sizes: &[(usize, usize)] = match args.short {
        true => &[(1_000, 2_000)],
        false => &[(1_000, 2_000), (1_250, 10_000)],
    };
    let rivals: Vec<Rival> = match args.only.as_slice() {
        [] => Rival::value_variants().to_vec(),
        some => some.to_vec(),
    };
    let steps = sizes.len() * args.runs as usize * rivals.len() + 2;
    let bar = progress::bar(steps as u64, "bench kube", args.json);
    for &(nodes, pods) in sizes {
        let mut all: Vec<Drained> = rivals
            .iter()
            .map(|rival| Drained::of(*rival, nodes, pods))
            .collect();
        for _ in 0..args.runs {
            for drained in &mut all {
                bar.set_message(format!("{pods} pods, {}", drained.rival));
                drained
                    .runs
                    .push(drain::once(&runtime, drained.rival, nodes, pods)?);
                bar.inc(1);
            }
        }
        result.goals.extend(drain_goals(&all));
        result.drains.extend(all);
    }
    if args.only.is_empty() {
        bar.set_message("50 pods a second");
        result.goals.push(online_goal(&runtime)?);
        bar.inc(1);
    }
    if !args.short && args.only.is_empty() {
        bar.set_message("cold start and fail-over");
        result.goals.extend(takeover::rows(&runtime, args.runs)?);
    }
    bar.finish_and_clear();
    print(args, &result)
}

/// Pods that come one by one.
fn online_goal(runtime: &Runtime) -> Result<Row, Failure> {
    let (theirs, ours) = (
        online::once(runtime, Rival::KubeScheduler)?,
        online::once(runtime, Rival::DovetailEvents)?,
    );
    let what = format!(
        "50 pods/s: seen to bound, p99 (median {:.1}; kube-scheduler: median {:.1}, p99 {:.1})",
        ours.median, theirs.median, theirs.p99
    );
    Ok(Row::new(what, ours.p99, "ms", 25.0, false))
}

/// What is asked of the rates, from the medians over all runs.
fn drain_goals(all: &[Drained]) -> Vec<Row> {
    let of = |rival: Rival| all.iter().find(|d| d.rival == rival);
    let mut rows = Vec::new();
    let bound: fn(&Drained) -> f64 = Drained::rate;
    let told: fn(&Drained) -> f64 = Drained::told_rate;
    let mut ratio = |what: &str, rate: fn(&Drained) -> f64, ours: Rival, theirs: Rival, goal: f64| {
        if let (Some(ours), Some(theirs)) = (of(ours), of(theirs)) {
            let what = format!("{} pods: {what}", count(ours.pods as u64));
            rows.push(Row::new(what, rate(ours) / rate(theirs), "times", goal, true));
        }
    };
    ratio(
        "rate beside the bare binder, no events",
        bound,
        Rival::Dovetail,
        Rival::Binder,
        0.85,
    );
    ratio(
        "rate beside the bare binder, an event per pod, until all are written",
        told,
        Rival::DovetailEvents,
        Rival::BinderEvents,
        0.85,
    );
    ratio(
        "rate beside kube-scheduler, an event per pod",
        bound,
        Rival::DovetailEvents,
        Rival::KubeScheduler,
        3.0,
    );
    // The same rate: runs of one and the same scheduler differ by as much.
    ratio(
        "rate of gangs of 50 beside single pods",
        bound,
        Rival::Gangs,
        Rival::Dovetail,
        0.9,
    );
    if let (Some(ours), Some(theirs)) = (of(Rival::DovetailEvents), of(Rival::KubeScheduler)) {
        let what = format!("{} pods: CPU of the scheduler per pod", count(ours.pods as u64));
        let goal = theirs.cpu_ms().0 / 10.0;
        rows.push(Row::new(what, ours.cpu_ms().0, "ms", goal, false));
    }
    rows
}

fn print(args: &BenchArgs, result: &Measured) -> Result<(), Failure> {
    if args.json {
        return show::print(serde_json::to_string_pretty(result).or_work()?);
    }
    let headings = [
        "who",
        "pods",
        "nodes",
        "events",
        "pods/s, each run",
        "median",
        "with events",
        "first after",
        "CPU ms/pod: scheduler",
        "API server",
        "etcd",
    ];
    let mut table = show::table(&headings);
    for d in &result.drains {
        let each: Vec<String> = d.runs.iter().map(|run| format!("{:.0}", run.rate())).collect();
        let (scheduler, server, store) = d.cpu_ms();
        table.add_row([
            d.rival.name().to_owned(),
            count(d.pods as u64),
            count(d.nodes as u64),
            d.rival.events().to_owned(),
            each.join(" "),
            format!("{:.0}", d.rate()),
            if d.rival.tells() {
                format!("{:.0}", d.told_rate())
            } else {
                "-".to_owned()
            },
            format!("{:.2} s", d.first_s()),
            if d.rival.is_binder() {
                "-".to_owned()
            } else {
                significant(scheduler)
            },
            significant(server),
            significant(store),
        ]);
    }
    show::align_numbers(&mut table);
    show::print(table)?;
    live::print(args, &result.goals)
}

/// Longer than anything that is measured here takes.
const PATIENCE: Duration = Duration::from_secs(600);

fn stuck(what: &str) -> Failure {
    Failure::Work(anyhow!("{what}: nothing more happens"))
}

/// The middle one.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}
