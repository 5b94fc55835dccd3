//! The table, the figures and the notes.

use comfy_table::Table;
use dovetail_console as console;
use dovetail_report::format::count;
use dovetail_report::{BarSeries, Figure, grouped_bars};

use super::INTERVAL_S;
use super::bars::{Bar, Comparison, Metric, Source, trace_label};
use super::runs::RESTART_S;
use super::statements::{coverage, range};

/// Returns a row for each policy on each trace: average JCT in seconds, then each number divided by that of Muri.
pub(super) fn table(comparison: &Comparison) -> Table {
    let mut headings = vec!["trace, policy", "avg JCT, s", "simulator", "exact"];
    let metrics = published_metrics(comparison);
    for metric in &metrics {
        let heading = match metric {
            Metric::AvgJct => "JCT ÷ Muri",
            Metric::Makespan => "makespan ÷",
            Metric::P99Jct => "p99 ÷",
        };
        headings.extend([heading, "sim.", "exact"]);
    }
    let mut table = console::table(&headings);
    for bar in &comparison.bars {
        let mut row = vec![format!("{} {}", trace_label(bar.trace), bar.series)];
        row.extend(Source::ALL.map(|source| seconds(bar.get(source, Metric::AvgJct))));
        for metric in &metrics {
            row.extend(Source::ALL.map(|source| {
                let ratio = comparison.ratio(bar.trace, bar.series, source, *metric);
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
            }));
        }
        table.add_row(row);
    }
    console::align_numbers(&mut table);
    table
}

/// Returns the metrics that numbers were published of.
fn published_metrics(comparison: &Comparison) -> Vec<Metric> {
    let is_published = |metric: &Metric| {
        comparison
            .bars
            .iter()
            .any(|bar| bar.get(Source::Published, *metric).is_some())
    };
    Metric::ALL.into_iter().filter(is_published).collect()
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |s| count(s.round() as u64))
}

/// Draws, for each metric, each policy over all traces; if there is one trace, all policies.
pub(super) fn figures(comparison: &Comparison) -> Vec<Figure> {
    let traces = comparison.traces();
    let mut figures = Vec::new();
    for metric in published_metrics(comparison) {
        if let [trace] = traces[..] {
            figures.push(policies_figure(comparison, metric, trace));
            continue;
        }
        for (series, base) in comparison.pairs {
            figures.push(traces_figure(comparison, metric, series, base));
        }
    }
    figures
}

/// Draws all policies on one trace.
fn policies_figure(comparison: &Comparison, metric: Metric, trace: &str) -> Figure {
    let pairs = comparison.pairs.iter();
    let groups: Vec<String> = pairs
        .clone()
        .map(|(series, base)| format!("{series} ÷ {base}"))
        .collect();
    let cells: Vec<(&str, &str)> = pairs.map(|(series, _)| (trace, *series)).collect();
    let mut figure = ratio_figure(comparison, metric, "Policies over Muri", &groups, &cells);
    figure.name = figure_name(metric, "policies");
    figure
}

/// Draws one policy on all traces.
fn traces_figure(comparison: &Comparison, metric: Metric, series: &str, base: &str) -> Figure {
    let traces = comparison.traces();
    let groups: Vec<String> = traces.iter().map(|trace| trace_label(trace)).collect();
    let cells: Vec<(&str, &str)> = traces.iter().map(|trace| (*trace, series)).collect();
    let title = capitalised(&format!("{series} over {base}"));
    let mut figure = ratio_figure(comparison, metric, &title, &groups, &cells);
    figure.name = figure_name(metric, series);
    figure.caption.push_str(&missing_bars(comparison, series));
    figure
}

fn figure_name(metric: Metric, name: &str) -> String {
    format!("{}-{name}", metric.name())
        .to_lowercase()
        .replace(' ', "-")
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars.as_str().chars()).collect()
}

/// Explains missing bars, for the caption.
fn missing_bars(comparison: &Comparison, series: &str) -> String {
    let mut text = String::new();
    if comparison
        .bars
        .iter()
        .any(|bar| bar.series == series && bar.setting.is_none())
    {
        text.push_str(" It is not in --compat muri.");
    }
    let traces = comparison.traces().len();
    let is_incomplete = |source: &Source| {
        let bars = comparison.ratios(&[series], *source, Metric::AvgJct).len();
        (1..traces).contains(&bars)
    };
    if [Source::Simulator, Source::Exact].iter().any(is_incomplete) {
        text.push_str(" Where a bar is missing, the run takes minutes and was left out.");
    }
    text
}

fn ratio_figure(
    comparison: &Comparison,
    metric: Metric,
    title: &str,
    groups: &[String],
    cells: &[(&str, &str)],
) -> Figure {
    let ratios = |source| {
        cells
            .iter()
            .map(move |(trace, series)| comparison.ratio(trace, series, source, metric))
    };
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    grouped_bars(
        &format!("{title}: {}", metric.name()),
        &format!("times the {} of Muri", metric.name()),
        &groups,
        &[
            BarSeries::published("published", ratios(Source::Published)),
            BarSeries::ours("as Muri's simulator", ratios(Source::Simulator)),
            BarSeries::ours("exact", ratios(Source::Exact)),
        ],
    )
}

/// Returns how the columns were computed, what was left out, and what is not checked.
pub(super) fn notes(comparison: &Comparison, left_out: &[String], is_test_bed: bool) -> Vec<String> {
    let mut notes = vec![if is_test_bed {
        format!(
            "published: Muri's test bed; exact: our model in rounds of {INTERVAL_S} s with a restart cost of {RESTART_S} s"
        )
    } else {
        format!(
            "exact: our model, with decisions at every event and a restart cost of {RESTART_S} s; muri-l with order \
             las:quantum=0, as published"
        )
    }];
    if !left_out.is_empty() {
        notes.push(format!(
            "left out because they take minutes (run them with --full): {}",
            left_out.join(", ")
        ));
    }
    let is_unknown = |bar: &&Bar| !bar.setting_is_known && !is_test_bed;
    for bar in comparison.bars.iter().filter(is_unknown) {
        if let Some(setting) = &bar.setting {
            notes.push(format!(
                "not checked: {}: no known setting of Muri's simulator gives {} s; {setting} gives {} s",
                bar.name(),
                seconds(bar.published.avg_jct_s),
                seconds(bar.simulator.avg_jct_s),
            ));
        }
    }
    notes.extend(themis_note(comparison));
    notes
}

fn themis_note(comparison: &Comparison) -> Option<String> {
    comparison.bars.iter().find(|bar| bar.series == "Themis")?;
    let ratios = |source| comparison.ratios(&["Themis"], source, Metric::AvgJct);
    let (published, exact) = (ratios(Source::Published), ratios(Source::Exact));
    Some(format!(
        "not checked: Themis, published {} times the average JCT of Muri-L, exact {}{}: --compat muri does not include it, \
         because there it depends on a solver; ours follows the paper of Themis",
        range(&published),
        range(&exact),
        coverage(&exact, &published),
    ))
}
