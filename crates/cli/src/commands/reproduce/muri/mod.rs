//! Muri's experiments (SIGCOMM'22) on 8 nodes with 8 GPUs: the published number, ours counted as its simulator counts,
//! and ours with our own model of time.
//!
//! Figure 9 has the policies that know run times, over Muri-S; figure 10 those that do not, over Muri-L. The authors
//! draw both with one script. Tables 3 and 4 are the same split on the test bed.

mod bars;
mod runs;
mod show;

use dovetail_engine::Clock;
use dovetail_model::Time;
use serde_json::json;

use self::bars::{Figures, Metric, Source, published};
use super::{Claim, Outcome};
use crate::args::ReproduceArgs;
use crate::failure::Failure;

/// How far a number may be off where the published setting is known.
const TOLERANCE: f64 = 1e-3;
/// The interval of the test bed.
const INTERVAL_S: i64 = 360;

pub(super) fn figure_9(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let over = &[("SRTF", "Muri-S"), ("SRSF", "Muri-S")];
    experiment("muri-fig9", args, over, |figures| {
        let longer = |metric| slower(figures, &["SRTF", "SRSF"], metric);
        Metric::ALL.map(longer).into_iter().collect()
    })
}

pub(super) fn figure_10(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let over = &[("Tiresias", "Muri-L"), ("AntMan", "Muri-L"), ("Themis", "Muri-L")];
    experiment("muri-fig10", args, over, |figures| {
        let longer = |metric| slower(figures, &["Tiresias", "AntMan"], metric);
        Metric::ALL.map(longer).into_iter().collect()
    })
}

pub(super) fn figure_11(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let over = &[("worst ordering", "Muri-L"), ("no matching", "Muri-L")];
    experiment("muri-fig11", args, over, |figures| {
        vec![
            worse_on_average(figures, "worst ordering"),
            worse_on_average(figures, "no matching"),
        ]
    })
}

pub(super) fn figure_12(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let over = &[
        ("AntMan", "at most 4"),
        ("at most 2", "at most 4"),
        ("at most 3", "at most 4"),
    ];
    experiment("muri-fig12", args, over, |figures| {
        vec![
            slower(figures, &["AntMan"], Metric::AvgJct),
            slower(figures, &["at most 2", "at most 3"], Metric::AvgJct),
        ]
    })
}

pub(super) fn figure_13(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let over = &[("SRTF", "Muri-S"), ("Tiresias", "Muri-L")];
    experiment("muri-fig13", args, over, |figures| {
        vec![grows(figures, "SRTF"), grows(figures, "Tiresias")]
    })
}

pub(super) fn table_3(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let over = &[
        ("SRTF", "Muri-S"),
        ("SRSF", "Muri-S"),
        ("Tiresias", "Muri-L"),
        ("Themis", "Muri-L"),
    ];
    experiment("muri-table3", args, over, |figures| {
        let longer = |metric| slower(figures, &["SRTF", "SRSF", "Tiresias"], metric);
        Metric::ALL.map(longer).into_iter().collect()
    })
}

/// Runs all bars of an experiment and lays them beside the published ones.
fn experiment(
    name: &'static str,
    args: &ReproduceArgs,
    over: &'static [(&'static str, &'static str)],
    statements: fn(&Figures) -> Vec<Claim>,
) -> Result<Outcome, Failure> {
    let mut bars = published(name.trim_start_matches("muri-"));
    let on_test_bed = name == "muri-table3";
    let clock = if on_test_bed {
        Clock::rounds(Time::from_secs(INTERVAL_S))
    } else {
        Clock::Events
    };
    let left_out = runs::measure(name, args, &mut bars, clock)?;
    let figures = Figures { bars, over };
    let mut claims = Vec::new();
    if !on_test_bed {
        claims.push(as_published(&figures));
    }
    claims.extend(statements(&figures));
    Ok(Outcome {
        table: show::table(&figures),
        claims,
        notes: show::notes(&figures, &left_out, on_test_bed),
        figures: show::draw(&figures),
        data: json!({ "bars": figures.bars, "left_out": left_out, "restart_cost_s": runs::RESTART_S }),
    })
}

/// Where it is known how Muri's simulator was run, our run of it gives the published numbers.
fn as_published(figures: &Figures) -> Claim {
    let (mut numbers, mut worst, mut off) = (0, 0.0_f64, Vec::new());
    for bar in figures.bars.iter().filter(|b| b.setting_is_known) {
        for metric in Metric::ALL {
            let of = |source| bar.of(source, metric);
            let (Some(theirs), Some(ours)) = (of(Source::Published), of(Source::Simulator)) else {
                continue;
            };
            let differs = (ours / theirs - 1.0).abs();
            numbers += 1;
            worst = worst.max(differs);
            if differs > TOLERANCE {
                off.push(format!("{} of {}", metric.name(), bar.name()));
            }
        }
    }
    let which = if off.is_empty() {
        String::new()
    } else {
        format!("; not: {}", off.join(", "))
    };
    let met = numbers - off.len();
    let text = format!(
        "as Muri's simulator: {met} of {numbers} published numbers are met within 0.1 % (worst: {:.5} %){which}",
        worst * 100.0
    );
    Claim::new(text, off.is_empty() && numbers > 0)
}

/// On every trace these policies are behind the one they are compared with, in both of our columns. A makespan may be
/// equal: it is where the last job came late.
fn slower(figures: &Figures, series: &[&str], metric: Metric) -> Claim {
    let enough = |ratio: &f64| match metric {
        Metric::Makespan => *ratio > 1.0 - TOLERANCE,
        Metric::AvgJct | Metric::P99Jct => *ratio > 1.0,
    };
    let of = |source| figures.ratios(series, source, metric);
    let (published, simulator, exact) = (of(Source::Published), of(Source::Simulator), of(Source::Exact));
    let holds = !exact.is_empty() && simulator.iter().chain(&exact).all(enough);
    let text = format!(
        "published: {} of {} is {} times that of {}; as Muri's simulator {}, exact {}",
        metric.name(),
        series.join(" and "),
        range(&published),
        bases(figures, series).join(" and "),
        range(&simulator) + &share(&simulator, &published),
        range(&exact) + &share(&exact, &published),
    );
    Claim::new(text, holds)
}

/// The mean over all traces is above one, in both of our columns.
fn worse_on_average(figures: &Figures, series: &str) -> Claim {
    let of = |source| figures.ratios(&[series], source, Metric::AvgJct);
    let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
    let (published, simulator, exact) = (of(Source::Published), of(Source::Simulator), of(Source::Exact));
    let text = format!(
        "published: with {series} the average JCT is {:.2} times that of Muri-L, in the mean over the traces; as Muri's \
         simulator {:.2}{}, exact {:.2}",
        mean(&published),
        mean(&simulator),
        share(&simulator, &published),
        mean(&exact),
    );
    Claim::new(text, mean(&simulator) > 1.0 && mean(&exact) > 1.0)
}

/// What sharing gains grows with the number of kinds of bottleneck, in both of our columns.
fn grows(figures: &Figures, series: &str) -> Claim {
    let of = |source| figures.ratios(&[series], source, Metric::AvgJct);
    let (simulator, exact) = (of(Source::Simulator), of(Source::Exact));
    let rising = |ratios: &[f64]| ratios.len() > 1 && ratios.is_sorted();
    let list = |ratios: &[f64]| {
        let texts: Vec<String> = ratios.iter().map(|r| format!("{r:.2}")).collect();
        texts.join(", ")
    };
    let text = format!(
        "published: the gain over {series} grows with the kinds of bottleneck: {}; as Muri's simulator {}, exact {}",
        list(&of(Source::Published)),
        list(&simulator),
        list(&exact),
    );
    Claim::new(text, rising(&simulator) && rising(&exact))
}

fn bases(figures: &Figures, series: &[&str]) -> Vec<&'static str> {
    let mut bases: Vec<&'static str> = figures
        .over
        .iter()
        .filter(|(s, _)| series.contains(s))
        .map(|(_, base)| *base)
        .collect();
    bases.dedup();
    bases
}

/// How many of the published ratios we have, where it is not all.
fn share(ours: &[f64], published: &[f64]) -> String {
    if ours.is_empty() || ours.len() == published.len() {
        return String::new();
    }
    format!(" ({} of {})", ours.len(), published.len())
}

fn range(ratios: &[f64]) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match ratios.len() {
        0 => "not run".to_owned(),
        1 => format!("{low:.2}"),
        _ => format!("{low:.2} to {high:.2}"),
    }
}
