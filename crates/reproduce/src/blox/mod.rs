//! Blox's simulated experiments on 32 nodes with 4 GPUs each, with its rounds and its quirks.
//!
//! The paper shows its numbers in figures only. What it states in words is printed below each table, with whether it
//! holds. As in the reference, jobs 3000 to 4000 are tracked, and more jobs arrive until all of those have finished.

mod workloads;

use comfy_table::Table;
use dovetail_console as console;
use dovetail_model::ClusterSpec;
use dovetail_model::run::Summary;
use dovetail_policies::Overrides;
use dovetail_report::format::{count, span};
use dovetail_report::{AxisKind, BarSeries, Figure, LineChart, Series, grouped_bars};
use dovetail_sim::{SimConfig, compat, simulate};
use dovetail_workload::Workload;
use rayon::prelude::*;
use serde_json::json;

use crate::{Options, Report, ReproduceError, Statement};
use workloads::{bursty, steady};

/// Jobs that the averages are computed over.
const TRACKED: (u32, u32) = (3000, 4000);
/// Policies of figure 6.
const POLICIES: [&str; 3] = ["fifo", "tiresias", "optimus"];
const FIFO: usize = 0;
const TIRESIAS: usize = 1;
const OPTIMUS: usize = 2;
/// Loads of figure 6, in jobs per hour.
const LOADS: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// One run: a policy with an admission at a load.
struct RunSetting {
    policy: &'static str,
    admission: &'static str,
    /// Jobs per hour.
    load: u32,
}

/// The runs of figure 6.
struct LoadSweep {
    /// Load by load, each with all policies.
    runs: Vec<Summary>,
}

impl LoadSweep {
    /// Returns the run of a policy at a load, both by index.
    fn run(&self, policy: usize, load: usize) -> &Summary {
        &self.runs[load * POLICIES.len() + policy]
    }

    /// Returns the policy with the lowest value at a load.
    fn best(&self, load: usize, value: fn(&Summary) -> f64) -> usize {
        (0..POLICIES.len())
            .min_by(|a, b| value(self.run(*a, load)).total_cmp(&value(self.run(*b, load))))
            .unwrap_or(0)
    }

    fn table(&self) -> Table {
        let mut table = console::table(&[
            "jobs/h",
            "fifo",
            "tiresias",
            "optimus",
            "first GPU: fifo",
            "tiresias",
            "optimus",
        ]);
        for (load, jobs_per_hour) in LOADS.iter().enumerate() {
            let policies = || (0..POLICIES.len()).map(|policy| self.run(policy, load));
            let jct = policies().map(|run| span(run.avg_jct_s));
            let first_gpu = policies().map(|run| span(run.avg_first_start_s));
            table.add_row(
                std::iter::once(jobs_per_hour.to_string())
                    .chain(jct)
                    .chain(first_gpu),
            );
        }
        console::align_numbers(&mut table);
        table
    }

    fn statements(&self) -> Vec<Statement> {
        let (low_loads, high_loads) = (0..4, 7..9);
        vec![
            Statement::new(
                "published: Optimus has the lowest JCT at low load",
                low_loads
                    .into_iter()
                    .all(|load| self.best(load, |run| run.avg_jct_s) == OPTIMUS),
            ),
            Statement::new(
                "published: above 7 jobs per hour (the capacity is 7.6) the JCT of Tiresias exceeds that of FIFO",
                high_loads
                    .clone()
                    .all(|load| self.run(TIRESIAS, load).avg_jct_s > self.run(FIFO, load).avg_jct_s),
            ),
            Statement::new(
                "published: at those loads Tiresias has the shortest time to the first GPU",
                high_loads
                    .into_iter()
                    .all(|load| self.best(load, |run| run.avg_first_start_s) == TIRESIAS),
            ),
        ]
    }

    fn chart(&self, name: &str, title: &str, value: fn(&Summary) -> f64) -> Figure {
        let series: Vec<Series> = POLICIES
            .iter()
            .enumerate()
            .map(|(policy, policy_name)| {
                let points = LOADS
                    .iter()
                    .enumerate()
                    .map(|(load, x)| (f64::from(*x), value(self.run(policy, load))));
                Series::new(*policy_name, points)
            })
            .collect();
        LineChart {
            name,
            title,
            caption: "Blox's own rounds, progress, placement and policies; 128 GPUs, jobs 3000 to 4000.",
            x_label: "jobs per hour",
            y_label: title,
            x: AxisKind::Linear,
            y: AxisKind::Time,
        }
        .draw(&series)
    }
}

/// Figure 6: JCT and time to the first GPU by load.
pub(crate) fn figure_6(options: &Options) -> Result<Report, ReproduceError> {
    let settings: Vec<RunSetting> = LOADS
        .iter()
        .flat_map(|load| {
            POLICIES.map(|policy| RunSetting {
                policy,
                admission: "accept-all",
                load: *load,
            })
        })
        .collect();
    let sweep = LoadSweep {
        runs: run_all("blox-fig6", options, &settings, &|load| {
            steady(load, options.seed)
        })?,
    };
    Ok(Report {
        table: sweep.table(),
        statements: sweep.statements(),
        notes: Vec::new(),
        figures: vec![
            sweep.chart("avg-jct", "Average JCT", |run| run.avg_jct_s),
            sweep.chart("responsiveness", "Average time to the first GPU", |run| {
                run.avg_first_start_s
            }),
        ],
        data: to_json(&settings, &sweep.runs),
    })
}

/// Figure 12: LAS with admission control.
pub(crate) fn figure_12(options: &Options) -> Result<Report, ReproduceError> {
    let admissions = ["accept-all", "load:1.0", "load:1.2", "load:1.5"];
    let settings: Vec<RunSetting> = admissions
        .map(|admission| RunSetting {
            policy: "las",
            admission,
            load: 8,
        })
        .into_iter()
        .collect();
    let runs = run_all("blox-fig12", options, &settings, &|load| {
        steady(load, options.seed)
    })?;
    let mut report = admission_report(&settings, &runs, &["las"], &admissions, "LAS at 8 jobs per hour");
    let gain = 1.0 - runs[2].avg_jct_s / runs[0].avg_jct_s;
    let text = format!(
        "published: admission at 1.2 times the cluster lowers the JCT by 15 %; here by {:.0} %",
        gain * 100.0
    );
    report.statements.push(Statement::new(text, gain > 0.0));
    Ok(report)
}

/// Figure 13: admission control under bursts.
pub(crate) fn figure_13(options: &Options) -> Result<Report, ReproduceError> {
    let policies = ["fifo", "srtf", "las"];
    let admissions = ["accept-all", "load:1.2", "load:1.4"];
    let settings: Vec<RunSetting> = policies
        .iter()
        .flat_map(|policy| {
            admissions.map(|admission| RunSetting {
                policy,
                admission,
                load: 9,
            })
        })
        .collect();
    let runs = run_all("blox-fig13", options, &settings, &|load| {
        bursty(load, options.seed)
    })?;
    let title = "Bursts at 9 jobs per hour";
    let mut report = admission_report(&settings, &runs, &policies, &admissions, title);
    let las = &runs[6..9];
    let best = las.iter().map(|run| run.avg_jct_s).fold(f64::INFINITY, f64::min);
    let gain = 1.0 - best / las[0].avg_jct_s;
    let text = format!(
        "published: admission lowers the JCT of LAS under bursts by up to 27.3 %; here by {:.1} %",
        gain * 100.0
    );
    report.statements.push(Statement::new(text, gain > 0.0));
    Ok(report)
}

/// Returns the table and figure of all policies with all admissions.
fn admission_report(
    settings: &[RunSetting],
    runs: &[Summary],
    policies: &[&str],
    admissions: &[&str],
    title: &str,
) -> Report {
    let mut table = console::table(&[
        "policy, admission",
        "avg JCT",
        "median",
        "p99",
        "first GPU",
        "preemptions",
    ]);
    for (setting, run) in settings.iter().zip(runs) {
        table.add_row([
            format!("{}, {}", setting.policy, setting.admission),
            span(run.avg_jct_s),
            span(run.median_jct_s),
            span(run.p99_jct_s),
            span(run.avg_first_start_s),
            count(run.preemptions),
        ]);
    }
    console::align_numbers(&mut table);
    let series: Vec<BarSeries> = policies
        .iter()
        .zip(runs.chunks(admissions.len()))
        .map(|(policy, runs)| BarSeries::ours(*policy, runs.iter().map(|run| Some(run.avg_jct_s / 3600.0))))
        .collect();
    Report {
        table,
        statements: Vec::new(),
        notes: Vec::new(),
        figures: vec![grouped_bars(title, "average JCT, hours", admissions, &series)],
        data: to_json(settings, runs),
    }
}

fn to_json(settings: &[RunSetting], runs: &[Summary]) -> serde_json::Value {
    let rows: Vec<_> = settings
        .iter()
        .zip(runs)
        .map(|(setting, run)| {
            json!({
                "policy": setting.policy, "admission": setting.admission, "jobs_per_hour": setting.load,
                "avg_jct_s": run.avg_jct_s, "p99_jct_s": run.p99_jct_s, "avg_first_start_s": run.avg_first_start_s,
                "preemptions": run.preemptions, "rounds": run.rounds,
            })
        })
        .collect();
    json!({ "runs": rows })
}

/// Runs all settings on all cores, and returns the summaries in the same order.
fn run_all(
    name: &str,
    options: &Options,
    settings: &[RunSetting],
    workload: &(dyn Fn(u32) -> Result<Workload, ReproduceError> + Sync),
) -> Result<Vec<Summary>, ReproduceError> {
    let bar = options.progress_bar(settings.len(), name);
    let runs = settings
        .par_iter()
        .map(|setting| {
            let summary = run(setting, &workload(setting.load)?, options.seed);
            bar.inc(1);
            summary
        })
        .collect();
    bar.finish_and_clear();
    runs
}

fn run(setting: &RunSetting, workload: &Workload, seed: u64) -> Result<Summary, ReproduceError> {
    let mut config = SimConfig::new(ClusterSpec::uniform(32, 4));
    config.track = Some(TRACKED);
    config.stop_after_tracked = true;
    config.segments = 0;
    config.seed = seed;
    let overrides = Overrides {
        admission: Some(setting.admission.to_owned()),
        ..Overrides::default()
    };
    let rate = Some(f64::from(setting.load));
    let (policy, needs) = compat::blox(setting.policy, &overrides, workload, rate, &mut config)?;
    Ok(simulate(workload, policy, needs, &config)?.summary)
}
