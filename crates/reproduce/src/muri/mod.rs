//! Muri's experiments (SIGCOMM'22) on 8 nodes with 8 GPUs: the published number, ours with the time model of its
//! simulator, and ours with our own time model.
//!
//! Figure 9 has the policies that know run times, relative to Muri-S; figure 10 those that do not, relative to Muri-L.
//! The authors draw both with one script. Tables 3 and 4 are the same split on the test bed.

mod bars;
mod output;
mod runs;
mod statements;

use dovetail_engine::Clock;
use dovetail_model::Time;
use serde_json::json;

use self::bars::{Comparison, Metric, published};
use self::statements::{equals_published, gain_grows, is_slower, is_slower_on_average};
use crate::{Options, Report, ReproduceError, Statement};

/// Interval between decisions on the test bed, in seconds.
const INTERVAL_S: i64 = 360;

/// Figure 9: policies that know run times.
pub(crate) fn figure_9(options: &Options) -> Result<Report, ReproduceError> {
    let pairs = &[("SRTF", "Muri-S"), ("SRSF", "Muri-S")];
    experiment("muri-fig9", options, pairs, |comparison| {
        is_slower_by_all_metrics(comparison, &["SRTF", "SRSF"])
    })
}

/// Figure 10: policies that do not know run times.
pub(crate) fn figure_10(options: &Options) -> Result<Report, ReproduceError> {
    let pairs = &[("Tiresias", "Muri-L"), ("AntMan", "Muri-L"), ("Themis", "Muri-L")];
    experiment("muri-fig10", options, pairs, |comparison| {
        is_slower_by_all_metrics(comparison, &["Tiresias", "AntMan"])
    })
}

/// Figure 11: Muri-L without its ordering and matching.
pub(crate) fn figure_11(options: &Options) -> Result<Report, ReproduceError> {
    let pairs = &[("worst ordering", "Muri-L"), ("no matching", "Muri-L")];
    experiment("muri-fig11", options, pairs, |comparison| {
        vec![
            is_slower_on_average(comparison, "worst ordering"),
            is_slower_on_average(comparison, "no matching"),
        ]
    })
}

/// Figure 12: the number of jobs on the same GPUs.
pub(crate) fn figure_12(options: &Options) -> Result<Report, ReproduceError> {
    let pairs = &[
        ("AntMan", "at most 4"),
        ("at most 2", "at most 4"),
        ("at most 3", "at most 4"),
    ];
    experiment("muri-fig12", options, pairs, |comparison| {
        vec![
            is_slower(comparison, &["AntMan"], Metric::AvgJct),
            is_slower(comparison, &["at most 2", "at most 3"], Metric::AvgJct),
        ]
    })
}

/// Figure 13: the number of kinds of bottleneck.
pub(crate) fn figure_13(options: &Options) -> Result<Report, ReproduceError> {
    let pairs = &[("SRTF", "Muri-S"), ("Tiresias", "Muri-L")];
    experiment("muri-fig13", options, pairs, |comparison| {
        vec![gain_grows(comparison, "SRTF"), gain_grows(comparison, "Tiresias")]
    })
}

/// Tables 3 and 4: the test bed.
pub(crate) fn table_3(options: &Options) -> Result<Report, ReproduceError> {
    let pairs = &[
        ("SRTF", "Muri-S"),
        ("SRSF", "Muri-S"),
        ("Tiresias", "Muri-L"),
        ("Themis", "Muri-L"),
    ];
    experiment("muri-table3", options, pairs, |comparison| {
        is_slower_by_all_metrics(comparison, &["SRTF", "SRSF", "Tiresias"])
    })
}

/// A published run on the test bed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TestbedRun {
    /// The policy, as the paper calls it.
    pub policy: &'static str,
    /// Average completion time, makespan and 99th percentile of completion times, in seconds.
    pub metrics_s: [f64; 3],
}

/// Returns the runs of tables 3 and 4.
pub fn testbed_runs() -> Vec<TestbedRun> {
    let run = |bar: bars::Bar| {
        let published = bar.published;
        Some(TestbedRun {
            policy: bar.series,
            metrics_s: [published.avg_jct_s?, published.makespan_s?, published.p99_jct_s?],
        })
    };
    published("table3").into_iter().filter_map(run).collect()
}

fn is_slower_by_all_metrics(comparison: &Comparison, series: &[&str]) -> Vec<Statement> {
    Metric::ALL
        .map(|metric| is_slower(comparison, series, metric))
        .into()
}

/// Runs all bars of an experiment and compares them with the published ones.
fn experiment(
    name: &'static str,
    options: &Options,
    pairs: &'static [(&'static str, &'static str)],
    statements: fn(&Comparison) -> Vec<Statement>,
) -> Result<Report, ReproduceError> {
    let mut bars = published(name.trim_start_matches("muri-"));
    let is_test_bed = name == "muri-table3";
    let clock = if is_test_bed {
        Clock::rounds(Time::from_secs(INTERVAL_S))
    } else {
        Clock::Events
    };
    let left_out = runs::measure(name, options, &mut bars, clock)?;
    let comparison = Comparison { bars, pairs };
    let mut all_statements = Vec::new();
    if !is_test_bed {
        all_statements.push(equals_published(&comparison));
    }
    all_statements.extend(statements(&comparison));
    Ok(Report {
        table: output::table(&comparison),
        statements: all_statements,
        notes: output::notes(&comparison, &left_out, is_test_bed),
        figures: output::figures(&comparison),
        data: json!({ "bars": comparison.bars, "left_out": left_out, "restart_cost_s": runs::RESTART_S }),
    })
}
