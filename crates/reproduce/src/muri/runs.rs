//! Runs on Muri's traces on 8 nodes with 8 GPUs, with the time model of its simulator and with ours.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_engine::Clock;
use dovetail_model::run::RunRecord;
use dovetail_model::stages::Ordering;
use dovetail_model::{ClusterSpec, Time};
use dovetail_policies::{Overrides, build, presets};
use dovetail_sim::{SimConfig, compat, simulate};
use dovetail_workload::Format;
use rayon::prelude::*;

use super::bars::{Bar, Metrics};
use crate::data::{data_folder, read_trace};
use crate::{Options, ReproduceError};

/// Restart cost in our own time model, in seconds.
pub(super) const RESTART_S: i64 = 30;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    trace: &'static str,
    policy: String,
    /// Whether it uses the time model of Muri's simulator.
    is_simulator: bool,
}

impl Run {
    /// Returns the run of a policy with the time model of Muri's simulator.
    fn simulator(bar: &Bar, policy: &str) -> Self {
        Self {
            trace: bar.trace,
            policy: policy.to_owned(),
            is_simulator: true,
        }
    }

    /// Returns the run with our own time model, if we have the policy.
    fn exact(bar: &Bar) -> Option<Self> {
        let policy = match bar.series {
            "worst ordering" => "muri-l:ordering=worst".to_owned(),
            "no matching" => "muri-l:matching=false".to_owned(),
            "at most 2" => "muri-l:size=2".to_owned(),
            "at most 3" => "muri-l:size=3".to_owned(),
            "at most 4" => "muri-l".to_owned(),
            series => series.to_lowercase(),
        };
        let name = policy.split(':').next().unwrap_or_default();
        let is_known = presets().iter().any(|preset| preset.name == name);
        is_known.then_some(Self {
            trace: bar.trace,
            policy,
            is_simulator: false,
        })
    }

    /// Returns whether it takes more than about ten seconds: on traces with thousands of jobs, Muri's matching in its
    /// simulator's way, and the auctions of Themis.
    fn is_slow(&self) -> bool {
        let is_large = ["trace2", "trace2_pr", "trace4", "trace4_pr"].contains(&self.trace);
        let has_matching = self.policy.starts_with("muri") && !self.policy.contains("matching=false");
        let is_expensive = if self.is_simulator {
            has_matching
        } else {
            self.policy == "themis"
        };
        is_large && is_expensive
    }

    fn run(&self, folder: &Path, clock: Clock) -> Result<RunRecord, ReproduceError> {
        let workload = read_trace(folder, self.trace, Format::Muri)?;
        let mut config = SimConfig::new(ClusterSpec::uniform(8, 8));
        config.segments = 0;
        let (policy, needs) = if self.is_simulator {
            compat::muri(&self.policy, &Overrides::default(), &workload, &mut config)?
        } else {
            config.clock = clock;
            config.restart_cost = Time::from_secs(RESTART_S);
            if self.policy.contains("ordering=worst") {
                config.interleaving = Ordering::Worst;
            }
            // The preset uses discrete queues; Muri-L as published orders by least attained service.
            let order = self
                .policy
                .starts_with("muri-l")
                .then(|| "las:quantum=0".to_owned());
            let overrides = Overrides {
                order,
                ..Overrides::default()
            };
            build(&self.policy, &overrides)?
        };
        Ok(simulate(&workload, policy, needs, &config)?)
    }
}

/// Fills in our numbers, with all runs on all cores. Returns the runs that were left out because they take minutes.
pub(super) fn measure(
    name: &'static str,
    options: &Options,
    bars: &mut [Bar],
    clock: Clock,
) -> Result<Vec<String>, ReproduceError> {
    let folder = data_folder(options, "muri")?.join("trace-data");
    let (runs, left_out) = choose_runs(bars, options.full);
    let progress = options.progress_bar(runs.len(), name);
    let results: BTreeMap<Run, Metrics> = runs
        .into_par_iter()
        .with_max_len(1)
        .map(|run| {
            let metrics = metrics(&run.run(&folder, clock)?);
            progress.inc(1);
            Ok((run, metrics))
        })
        .collect::<Result<_, ReproduceError>>()?;
    progress.finish_and_clear();
    for bar in bars {
        let simulator = |policy: &Option<String>| {
            let run = Run::simulator(bar, policy.as_deref()?);
            results.get(&run).copied()
        };
        let (main, p99) = (simulator(&bar.setting), simulator(&bar.p99_setting));
        bar.simulator = main.unwrap_or_default();
        if let Some(p99) = p99 {
            bar.simulator.p99_jct_s = p99.p99_jct_s;
        }
        let exact = Run::exact(bar).and_then(|run| results.get(&run));
        bar.exact = exact.copied().unwrap_or_default();
    }
    Ok(left_out)
}

/// Returns the runs of all bars, the slowest first, and the names of those that are left out.
fn choose_runs(bars: &[Bar], full: bool) -> (Vec<Run>, Vec<String>) {
    let mut runs: Vec<Run> = Vec::new();
    let mut left_out = Vec::new();
    for bar in bars {
        let settings = bar.setting.iter().chain(&bar.p99_setting);
        let simulator = settings.map(|policy| Run::simulator(bar, policy));
        for run in simulator.chain(Run::exact(bar)) {
            if run.is_slow() && !full {
                let column = if run.is_simulator { "simulator" } else { "exact" };
                left_out.push(format!("{} ({column})", bar.name()));
            } else {
                runs.push(run);
            }
        }
    }
    runs.sort_by_key(|run| (!run.is_slow(), run.clone()));
    runs.dedup();
    left_out.dedup();
    (runs, left_out)
}

/// Computes the metrics in Muri's way: the makespan counts from time zero, and the p99 is the value at index
/// `int(0.99 n)`.
fn metrics(record: &RunRecord) -> Metrics {
    let finished = || {
        record
            .rows
            .iter()
            .filter_map(|row| Some((row.submit, row.finish?)))
    };
    let mut jct: Vec<f64> = finished()
        .map(|(submit, finish)| finish.since(submit).as_secs_f64())
        .collect();
    jct.sort_by(f64::total_cmp);
    if jct.len() < record.rows.len() || jct.is_empty() {
        return Metrics::default();
    }
    let makespan = finished()
        .map(|(_, finish)| finish.as_secs_f64())
        .fold(0.0, f64::max);
    Metrics {
        avg_jct_s: Some(jct.iter().sum::<f64>() / jct.len() as f64),
        makespan_s: Some(makespan),
        p99_jct_s: Some(jct[jct.len() * 99 / 100]),
    }
}
