//! Runs on Muri's traces: 8 nodes with 8 GPUs, as its simulator counts and as ours does.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_engine::Clock;
use dovetail_model::run::RunRecord;
use dovetail_model::stages::Ordering;
use dovetail_model::{ClusterSpec, Time};
use dovetail_policies::{Overrides, build, presets};
use dovetail_sim::{SimConfig, compat, simulate};
use dovetail_workload::{Format, Workload, read};
use rayon::prelude::*;

use super::bars::{Bar, Numbers};
use crate::args::ReproduceArgs;
use crate::commands::reproduce::data;
use crate::failure::{Blame, Failure};
use crate::progress;

/// What a stopped job pays when it goes on, in our own model.
pub(super) const RESTART_S: i64 = 30;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    trace: &'static str,
    policy: String,
    /// As Muri's simulator counts.
    simulator: bool,
}

impl Run {
    /// Whether it takes more than ten seconds or so: Muri's matching as its simulator does it, and the auctions of
    /// Themis, with thousands of jobs.
    fn is_slow(&self) -> bool {
        let large = ["trace2", "trace2_pr", "trace4", "trace4_pr"].contains(&self.trace);
        let matching = self.policy.starts_with("muri") && !self.policy.contains("matching=false");
        large
            && if self.simulator {
                matching
            } else {
                self.policy == "themis"
            }
    }
}

/// Fills in our numbers, all runs over all cores. Gives back what was left out because it takes minutes.
pub(super) fn measure(
    name: &'static str,
    args: &ReproduceArgs,
    bars: &mut [Bar],
    clock: Clock,
) -> Result<Vec<String>, Failure> {
    let folder = data(args, "muri")?.join("trace-data");
    let mut left_out = Vec::new();
    let mut wanted: Vec<Run> = Vec::new();
    for bar in bars.iter() {
        let settings = bar.setting.iter().chain(&bar.p99_setting);
        let runs = settings.map(|policy| simulator_run(bar, policy));
        for run in runs.chain(exact_run(bar)) {
            if run.is_slow() && !args.full {
                let column = if run.simulator { "simulator" } else { "exact" };
                left_out.push(format!("{} ({column})", bar.name()));
            } else {
                wanted.push(run);
            }
        }
    }
    // What takes longest starts first.
    wanted.sort_by_key(|run| (!run.is_slow(), run.clone()));
    wanted.dedup();
    let progress = progress::bar(wanted.len() as u64, name, args.quiet || args.json);
    let done: BTreeMap<Run, Numbers> = wanted
        .into_par_iter()
        .with_max_len(1)
        .map(|run| {
            let numbers = numbers(&record(&folder, &run, clock)?);
            progress.inc(1);
            Ok((run, numbers))
        })
        .collect::<Result<_, Failure>>()?;
    progress.finish_and_clear();
    for bar in bars {
        let of = |policy: &Option<String>| {
            let run = simulator_run(bar, policy.as_deref()?);
            done.get(&run).copied()
        };
        let (simulator, p99) = (of(&bar.setting), of(&bar.p99_setting));
        bar.simulator = simulator.unwrap_or_default();
        if let Some(p99) = p99 {
            bar.simulator.p99_jct_s = p99.p99_jct_s;
        }
        bar.exact = exact_run(bar)
            .and_then(|run| done.get(&run))
            .copied()
            .unwrap_or_default();
    }
    left_out.dedup();
    Ok(left_out)
}

fn simulator_run(bar: &Bar, policy: &str) -> Run {
    Run {
        trace: bar.trace,
        policy: policy.to_owned(),
        simulator: true,
    }
}

/// The run in our own model, if the policy is there.
fn exact_run(bar: &Bar) -> Option<Run> {
    let policy = match bar.series {
        "worst ordering" => "muri-l:ordering=worst".to_owned(),
        "no matching" => "muri-l:matching=false".to_owned(),
        "at most 2" => "muri-l:size=2".to_owned(),
        "at most 3" => "muri-l:size=3".to_owned(),
        "at most 4" => "muri-l".to_owned(),
        series => series.to_lowercase(),
    };
    let name = policy.split(':').next().unwrap_or_default();
    presets().iter().any(|p| p.name == name).then(|| Run {
        trace: bar.trace,
        policy: policy.clone(),
        simulator: false,
    })
}

fn record(folder: &Path, run: &Run, clock: Clock) -> Result<RunRecord, Failure> {
    let workload = trace(folder, run.trace)?;
    let mut config = SimConfig::new(ClusterSpec::uniform(8, 8));
    config.segments = 0;
    let (policy, needs) = if run.simulator {
        compat::muri(&run.policy, &Overrides::default(), &workload, &mut config).or_work()?
    } else {
        config.clock = clock;
        config.restart_cost = Time::from_secs(RESTART_S);
        if run.policy.contains("ordering=worst") {
            config.interleaving = Ordering::Worst;
        }
        // The preset keeps its jobs in queues; Muri-L as published has least attained service first.
        let order = run
            .policy
            .starts_with("muri-l")
            .then(|| "las:quantum=0".to_owned());
        let parts = Overrides {
            order,
            ..Overrides::default()
        };
        build(&run.policy, &parts).or_work()?
    };
    simulate(&workload, policy, needs, &config).or_work()
}

fn trace(folder: &Path, name: &str) -> Result<Workload, Failure> {
    let plain = folder.join(format!("{name}.csv"));
    let path = if plain.is_file() {
        plain
    } else {
        folder.join(format!("{name}.csv.gz"))
    };
    read(path, Some(Format::Muri)).or_request()
}

/// As Muri has them: the makespan counts from zero, the p99 is the value at place `int(0.99 n)`.
fn numbers(record: &RunRecord) -> Numbers {
    let ends = || {
        record
            .rows
            .iter()
            .filter_map(|row| Some((row.submit, row.finish?)))
    };
    let mut jct: Vec<f64> = ends()
        .map(|(submit, end)| end.since(submit).as_secs_f64())
        .collect();
    jct.sort_by(f64::total_cmp);
    if jct.len() < record.rows.len() || jct.is_empty() {
        return Numbers::default();
    }
    let last = ends().map(|(_, end)| end.as_secs_f64()).fold(0.0, f64::max);
    Numbers {
        avg_jct_s: Some(jct.iter().sum::<f64>() / jct.len() as f64),
        makespan_s: Some(last),
        p99_jct_s: Some(jct[jct.len() * 99 / 100]),
    }
}
