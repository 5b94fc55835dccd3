//! The comparison as a table and as data.

use comfy_table::Table;
use dovetail_console as console;
use dovetail_report::format::{counted, grouped};
use dovetail_report::{BarSeries, Figure, grouped_bars};
use dovetail_reproduce::{Report, Statement, TestbedRun, testbed_runs};
use serde_json::{Value, json};

use crate::calibration::{Profiles, start_s};
use crate::live::{Metrics, Outcome};
use crate::plan::Plan;
use crate::policy::{RunPolicy, series};

/// A run of one policy, live and forecast.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) policy: RunPolicy,
    pub(crate) live: Vec<Outcome>,
    pub(crate) forecast: Vec<Outcome>,
}

impl Run {
    fn metrics(&self) -> [Metrics; 2] {
        [Outcome::metrics(&self.live), Outcome::metrics(&self.forecast)]
    }
}

/// All runs, and what they have in common.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    pub(crate) nodes: u32,
    pub(crate) gpus_per_node: u32,
    pub(crate) trainer: String,
    pub(crate) plan: Plan,
    pub(crate) profiles: Profiles,
    pub(crate) runs: Vec<Run>,
}

/// Average completion time over that of Muri: live, forecast, published.
type Ratios = [Option<f64>; 3];

impl Comparison {
    pub(crate) fn report(&self) -> Report {
        let jobs = self.plan.jobs.len();
        let names: Vec<&str> = self.runs.iter().map(|run| run.policy.name.as_str()).collect();
        Report {
            table: self.table(),
            statements: vec![Statement {
                text: format!("{jobs} of {jobs} jobs completed under {}", names.join(", ")),
                holds: self
                    .runs
                    .iter()
                    .all(|run| run.live.len() == jobs && run.forecast.len() == jobs),
            }],
            notes: self.notes(),
            figures: vec![self.figure()],
            data: self.data(),
        }
    }

    fn table(&self) -> Table {
        let mut table = console::table(&[
            "policy",
            "avg JCT, s",
            "forecast",
            "makespan, s",
            "forecast",
            "p99, s",
            "forecast",
            "stops",
            "forecast",
            "JCT ÷ Muri",
            "forecast",
            "published",
        ]);
        for run in &self.runs {
            let [live, forecast] = run.metrics();
            let mut row = vec![run.policy.text.clone()];
            for metric in [
                |m: &Metrics| m.avg_jct_s,
                |m: &Metrics| m.makespan_s,
                |m: &Metrics| m.p99_jct_s,
            ] {
                row.extend([&live, &forecast].map(|m| grouped(metric(m), 1)));
            }
            row.extend([live, forecast].map(|m| m.stops.to_string()));
            row.extend(
                self.ratios(run)
                    .map(|ratio| ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.2}"))),
            );
            table.add_row(row);
        }
        console::align_numbers(&mut table);
        table
    }

    /// Returns the average completion time of a policy divided by that of the Muri it is compared with.
    fn ratios(&self, run: &Run) -> Ratios {
        let Some(base_name) = run.policy.base() else {
            return [None; 3];
        };
        let base = self.runs.iter().find(|other| other.policy.name == base_name);
        let [live, forecast] = run.metrics().map(|m| m.avg_jct_s);
        let [base_live, base_forecast] = match base {
            Some(base) => base.metrics().map(|m| Some(m.avg_jct_s)),
            None => [None; 2],
        };
        let published = testbed_runs();
        let number = |name: Option<&str>| {
            let found = published.iter().find(|run| Some(run.policy) == name);
            found.map(|run| run.metrics_s[0])
        };
        let published = number(run.policy.series()).zip(number(series(base_name)));
        [
            base_live.map(|base| live / base),
            base_forecast.map(|base| forecast / base),
            published.map(|(own, base)| own / base),
        ]
    }

    fn notes(&self) -> Vec<String> {
        let plan = &self.plan;
        let mut notes = vec![
            format!(
                "{} with {} each; trainer: {}",
                counted(self.nodes.into(), "node"),
                counted(self.gpus_per_node.into(), "GPU"),
                self.trainer
            ),
            format!(
                "times of the trace × {:.2e}; {} jobs have fewer GPUs than in the trace, {} have the minimum number of steps",
                plan.scale,
                plan.clipped(),
                plan.lengthened()
            ),
            format!(
                "forecast: the simulator with the step times that the cluster measured for {} models alone, and {:.2} s per start",
                self.profiles.len(),
                start_s(&self.profiles)
            ),
            "published: tables 3 and 4 of Muri, 400 jobs on 64 V100s; for orientation".to_owned(),
        ];
        let is_scaled = |run: &&Run| run.policy.text != run.policy.name && !run.policy.text.contains(',');
        if self.runs.iter().any(|run| is_scaled(&run)) {
            notes.push(
                "service limits of policies are scaled like the run times, but at least ten starts"
                    .to_owned(),
            );
        }
        notes
    }

    fn figure(&self) -> Figure {
        let values = |i: usize| {
            self.runs
                .iter()
                .map(|run| Some(run.metrics()[i].avg_jct_s))
                .collect::<Vec<_>>()
        };
        let names: Vec<&str> = self.runs.iter().map(|run| run.policy.name.as_str()).collect();
        let bars = [
            BarSeries::ours("live", values(0)),
            BarSeries::published("forecast", values(1)),
        ];
        grouped_bars("Average JCT, live and forecast", "seconds", &names, &bars)
    }

    fn data(&self) -> Value {
        let published: Vec<Value> = testbed_runs().iter().map(published).collect();
        let profiles: Vec<Value> = self
            .profiles
            .iter()
            .map(|(kind, profile)| json!({ "kind": kind, "measured": profile }))
            .collect();
        let runs: Vec<Value> = self.runs.iter().map(|run| self.run_data(run)).collect();
        json!({
            "cluster": { "nodes": self.nodes, "gpus_per_node": self.gpus_per_node },
            "trainer": self.trainer,
            "scale": self.plan.scale,
            "jobs": self.plan.jobs,
            "profiles": profiles,
            "start_s": start_s(&self.profiles),
            "runs": runs,
            "published": published,
        })
    }

    fn run_data(&self, run: &Run) -> Value {
        let [live, forecast] = run.metrics();
        let [live_ratio, forecast_ratio, published_ratio] = self.ratios(run);
        json!({
            "policy": run.policy.name,
            "applied": run.policy.text,
            "live": live,
            "forecast": forecast,
            "jct_over_muri": { "live": live_ratio, "forecast": forecast_ratio, "published": published_ratio },
            "jobs": { "live": run.live, "forecast": run.forecast },
        })
    }
}

fn published(run: &TestbedRun) -> Value {
    let [avg_jct_s, makespan_s, p99_jct_s] = run.metrics_s;
    json!({ "policy": run.policy, "avg_jct_s": avg_jct_s, "makespan_s": makespan_s, "p99_jct_s": p99_jct_s })
}
