//! `dovetail bench kube`: this scheduler, kube-scheduler, and a binder without decisions, each on a control plane of its
//! own that has just been started, in turn and several times.

mod contender;
mod drain;
mod latency;
mod observer;
mod output;
mod takeover;
mod testbed;

use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Runtime;

pub use self::contender::Contender;
use self::drain::DrainRuns;
pub(crate) use self::output::print;
use crate::live::runtime;
use crate::measurement::GoalMeasurement;
use crate::{BenchError, Options};
use dovetail_console as console;
use dovetail_report::format::count;

/// Timeout; longer than every measurement here.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Numbers of nodes and pods to drain.
const SIZES: [(usize, usize); 2] = [(1_000, 2_000), (1_250, 10_000)];

/// Everything that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct KubeMeasurements {
    drains: Vec<DrainRuns>,
    goals: Vec<GoalMeasurement>,
}

/// Measures queues of pods, single pods, and take-overs.
pub(crate) fn measure(options: &Options) -> Result<KubeMeasurements, BenchError> {
    let runtime = runtime()?;
    let mut measurements = KubeMeasurements::default();
    let sizes = if options.short { &SIZES[..1] } else { &SIZES[..] };
    let contenders: Vec<Contender> = match options.only.as_slice() {
        [] => Contender::ALL.to_vec(),
        only => only.to_vec(),
    };
    let steps = sizes.len() * options.runs as usize * contenders.len() + 2;
    let bar = console::progress_bar(steps as u64, "bench kube", options.json);
    for &(nodes, pods) in sizes {
        let mut drains: Vec<DrainRuns> = contenders
            .iter()
            .map(|contender| DrainRuns::new(*contender, nodes, pods))
            .collect();
        for _ in 0..options.runs {
            for drain in &mut drains {
                bar.set_message(format!("{pods} pods, {}", drain.contender));
                drain.run(&runtime)?;
                bar.inc(1);
            }
        }
        measurements.goals.extend(drain_goals(&drains));
        measurements.drains.extend(drains);
    }
    if options.only.is_empty() {
        bar.set_message("50 pods per second");
        measurements.goals.push(latency_goal(&runtime)?);
        bar.inc(1);
    }
    if !options.short && options.only.is_empty() {
        bar.set_message("cold start and fail-over");
        measurements
            .goals
            .extend(takeover::measure(&runtime, options.runs)?);
    }
    bar.finish_and_clear();
    Ok(measurements)
}

/// Measures pods that are created one by one.
fn latency_goal(runtime: &Runtime) -> Result<GoalMeasurement, BenchError> {
    let theirs = latency::measure(runtime, Contender::KubeScheduler)?;
    let ours = latency::measure(runtime, Contender::DovetailEvents)?;
    let name = format!(
        "50 pods/s: created to bound, p99 (median {:.1}; kube-scheduler: median {:.1}, p99 {:.1})",
        ours.median_ms, theirs.median_ms, theirs.p99_ms
    );
    Ok(GoalMeasurement::below(name, ours.p99_ms, "ms", 25.0))
}

/// Compares the medians of all runs with each other.
fn drain_goals(drains: &[DrainRuns]) -> Vec<GoalMeasurement> {
    let find = |contender: Contender| drains.iter().find(|drain| drain.contender == contender);
    let ratio = |name: &str, rate: fn(&DrainRuns) -> f64, ours, theirs, goal: f64| {
        let (ours, theirs) = (find(ours)?, find(theirs)?);
        let name = format!("{} pods: {name}", count(ours.pods as u64));
        let ratio = rate(ours) / rate(theirs);
        Some(GoalMeasurement::at_least(name, ratio, "times", goal))
    };
    let cpu = || {
        let (ours, theirs) = (find(Contender::DovetailEvents)?, find(Contender::KubeScheduler)?);
        let name = format!("{} pods: CPU of the scheduler per pod", count(ours.pods as u64));
        let goal = theirs.cpu_ms().scheduler / 10.0;
        Some(GoalMeasurement::below(name, ours.cpu_ms().scheduler, "ms", goal))
    };
    let goals = [
        ratio(
            "rate relative to the bare binder, no events",
            DrainRuns::bind_rate,
            Contender::Dovetail,
            Contender::Binder,
            0.85,
        ),
        ratio(
            "rate relative to the bare binder, an event per pod, until all are written",
            DrainRuns::event_rate,
            Contender::DovetailEvents,
            Contender::BinderEvents,
            0.85,
        ),
        ratio(
            "rate relative to kube-scheduler, an event per pod",
            DrainRuns::bind_rate,
            Contender::DovetailEvents,
            Contender::KubeScheduler,
            3.0,
        ),
        // Should be equal, but runs of the same scheduler differ by this much.
        ratio(
            "rate of gangs of 50 relative to single pods",
            DrainRuns::bind_rate,
            Contender::Gangs,
            Contender::Dovetail,
            0.9,
        ),
        cpu(),
    ];
    goals.into_iter().flatten().collect()
}

fn timeout(expected: &str) -> BenchError {
    BenchError::Timeout {
        expected: expected.to_owned(),
        seconds: TIMEOUT.as_secs(),
    }
}
