//! Statements of Muri's paper, and whether they hold in our runs.

use super::bars::{Comparison, Metric, Source};
use crate::Statement;
use crate::report::exceptions;

/// Largest relative difference where the published setting is known.
const TOLERANCE: f64 = 1e-3;

/// States that our run of Muri's simulator gives the published numbers wherever its setting is known.
pub(super) fn equals_published(comparison: &Comparison) -> Statement {
    let (mut numbers, mut worst, mut differing) = (0, 0.0_f64, Vec::new());
    for bar in comparison.bars.iter().filter(|bar| bar.setting_is_known) {
        for metric in Metric::ALL {
            let (Some(published), Some(ours)) = (
                bar.get(Source::Published, metric),
                bar.get(Source::Simulator, metric),
            ) else {
                continue;
            };
            let difference = (ours / published - 1.0).abs();
            numbers += 1;
            worst = worst.max(difference);
            if difference > TOLERANCE {
                differing.push(format!("{} of {}", metric.name(), bar.name()));
            }
        }
    }
    let text = format!(
        "as Muri's simulator: {} of {numbers} published numbers are reproduced within 0.1 % (worst: {:.5} %){}",
        numbers - differing.len(),
        worst * 100.0,
        exceptions(&differing),
    );
    Statement::new(text, differing.is_empty() && numbers > 0)
}

/// States that these policies are behind the ones they are compared with on every trace, with both time models. A
/// makespan may be equal, where the last job was submitted late.
pub(super) fn is_slower(comparison: &Comparison, series: &[&str], metric: Metric) -> Statement {
    let is_behind = |ratio: &f64| match metric {
        Metric::Makespan => *ratio > 1.0 - TOLERANCE,
        Metric::AvgJct | Metric::P99Jct => *ratio > 1.0,
    };
    let [published, simulator, exact] = Source::ALL.map(|source| comparison.ratios(series, source, metric));
    let holds = !exact.is_empty() && simulator.iter().chain(&exact).all(is_behind);
    let text = format!(
        "published: {} of {} is {} times that of {}; as Muri's simulator {}, exact {}",
        metric.name(),
        series.join(" and "),
        range(&published),
        comparison.bases(series).join(" and "),
        range(&simulator) + &coverage(&simulator, &published),
        range(&exact) + &coverage(&exact, &published),
    );
    Statement::new(text, holds)
}

/// States that a variant of Muri-L is slower on average over all traces, with both time models.
pub(super) fn is_slower_on_average(comparison: &Comparison, series: &str) -> Statement {
    let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
    let [published, simulator, exact] =
        Source::ALL.map(|source| comparison.ratios(&[series], source, Metric::AvgJct));
    let text = format!(
        "published: with {series} the average JCT is {:.2} times that of Muri-L, mean over the traces; as Muri's simulator \
         {:.2}{}, exact {:.2}",
        mean(&published),
        mean(&simulator),
        coverage(&simulator, &published),
        mean(&exact),
    );
    Statement::new(text, mean(&simulator) > 1.0 && mean(&exact) > 1.0)
}

/// States that the gain from sharing grows with the number of kinds of bottleneck, with both time models.
pub(super) fn gain_grows(comparison: &Comparison, series: &str) -> Statement {
    let [published, simulator, exact] =
        Source::ALL.map(|source| comparison.ratios(&[series], source, Metric::AvgJct));
    let is_rising = |ratios: &[f64]| ratios.len() > 1 && ratios.is_sorted();
    let list = |ratios: &[f64]| {
        let texts: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        texts.join(", ")
    };
    let text = format!(
        "published: the gain over {series} grows with the kinds of bottleneck: {}; as Muri's simulator {}, exact {}",
        list(&published),
        list(&simulator),
        list(&exact),
    );
    Statement::new(text, is_rising(&simulator) && is_rising(&exact))
}

/// Returns how many of the published ratios we have, unless we have none or all of them.
pub(super) fn coverage(ours: &[f64], published: &[f64]) -> String {
    if ours.is_empty() || ours.len() == published.len() {
        return String::new();
    }
    format!(" ({} of {})", ours.len(), published.len())
}

/// Returns the lowest and the highest ratio.
pub(super) fn range(ratios: &[f64]) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match ratios.len() {
        0 => "not run".to_owned(),
        1 => format!("{low:.2}"),
        _ => format!("{low:.2} to {high:.2}"),
    }
}
