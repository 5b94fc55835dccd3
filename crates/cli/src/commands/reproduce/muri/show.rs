//! The table, the figures and the remarks below them.

use dovetail_report::format::count;
use dovetail_report::{BarSeries, Figure, grouped_bars};

use super::bars::{Figures, Metric, Source, short};
use super::runs::RESTART_S;
use super::{INTERVAL_S, range, share};
use crate::show;

/// One row for each policy on each trace: average JCT in seconds, then each number over that of Muri.
pub(super) fn table(figures: &Figures) -> comfy_table::Table {
    let mut headings = vec!["trace, policy", "avg JCT, s", "simulator", "exact"];
    let metrics = measured(figures);
    for metric in &metrics {
        let heading = match metric {
            Metric::AvgJct => "JCT ÷ Muri",
            Metric::Makespan => "makespan ÷",
            Metric::P99Jct => "p99 ÷",
        };
        headings.extend([heading, "sim.", "exact"]);
    }
    let mut table = show::table(&headings);
    for bar in &figures.bars {
        let mut row = vec![format!("{} {}", short(bar.trace), bar.series)];
        row.extend(Source::ALL.map(|s| seconds(bar.of(s, Metric::AvgJct))));
        for metric in &metrics {
            let of = |source| figures.ratio(bar.trace, bar.series, source, *metric);
            row.extend(Source::ALL.map(|s| of(s).map_or_else(String::new, |r| format!("{r:.2}"))));
        }
        table.add_row(row);
    }
    show::align_numbers(&mut table);
    table
}

/// What somebody published a number of.
fn measured(figures: &Figures) -> Vec<Metric> {
    let has = |metric: &Metric| {
        figures
            .bars
            .iter()
            .any(|b| b.of(Source::Published, *metric).is_some())
    };
    Metric::ALL.into_iter().filter(has).collect()
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |s| count(s.round() as u64))
}

/// For each number a figure of each policy over all traces; of all policies where there is but one trace.
pub(super) fn draw(figures: &Figures) -> Vec<Figure> {
    let traces = figures.traces();
    let mut drawn = Vec::new();
    for metric in measured(figures) {
        if let [trace] = traces[..] {
            let groups: Vec<String> = figures
                .over
                .iter()
                .map(|(s, base)| format!("{s} ÷ {base}"))
                .collect();
            let cells: Vec<(&str, &str)> = figures.over.iter().map(|(series, _)| (trace, *series)).collect();
            drawn.push(ratios(
                figures,
                metric,
                "Policies over Muri",
                "policies",
                &groups,
                &cells,
            ));
            continue;
        }
        for (series, base) in figures.over {
            let groups: Vec<String> = traces.iter().map(|t| short(t)).collect();
            let cells: Vec<(&str, &str)> = traces.iter().map(|t| (*t, *series)).collect();
            let title = capitalised(&format!("{series} over {base}"));
            let mut figure = ratios(figures, metric, &title, series, &groups, &cells);
            figure.caption.push_str(&left(figures, series));
            drawn.push(figure);
        }
    }
    drawn
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars.as_str().chars()).collect()
}

/// Says why a bar is not there.
fn left(figures: &Figures, series: &str) -> String {
    let (all, there) = (figures.traces().len(), |source| {
        figures.ratios(&[series], source, Metric::AvgJct).len()
    });
    let mut text = String::new();
    if figures
        .bars
        .iter()
        .any(|b| b.series == series && b.setting.is_none())
    {
        text.push_str(" It is not in --compat muri.");
    }
    if [Source::Simulator, Source::Exact]
        .iter()
        .any(|s| (1..all).contains(&there(*s)))
    {
        text.push_str(" Where a bar is missing, that run takes minutes and was left out.");
    }
    text
}

fn ratios(
    figures: &Figures,
    metric: Metric,
    title: &str,
    name: &str,
    groups: &[String],
    cells: &[(&str, &str)],
) -> Figure {
    let of = |source| {
        cells
            .iter()
            .map(move |(trace, series)| figures.ratio(trace, series, source, metric))
    };
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let mut figure = grouped_bars(
        &format!("{title}: {}", metric.name()),
        &format!("times the {} of Muri", metric.name()),
        &groups,
        &[
            BarSeries::published("published", of(Source::Published)),
            BarSeries::ours("as Muri's simulator", of(Source::Simulator)),
            BarSeries::ours("exact", of(Source::Exact)),
        ],
    );
    figure.name = format!("{}-{}", metric.name(), name)
        .to_lowercase()
        .replace(' ', "-");
    figure
}

/// What was left out, what is not known, how the columns were made.
pub(super) fn notes(figures: &Figures, left_out: &[String], on_test_bed: bool) -> Vec<String> {
    let mut notes = vec![if on_test_bed {
        format!(
            "published: Muri's test bed; exact: our model in rounds of {INTERVAL_S} s with a restart cost of {RESTART_S} s"
        )
    } else {
        format!(
            "exact: our model, decisions at every event, a restart cost of {RESTART_S} s; muri-l with order las:quantum=0, as published"
        )
    }];
    if !left_out.is_empty() {
        notes.push(format!(
            "left out, because they take minutes (run them with --full): {}",
            left_out.join(", ")
        ));
    }
    for bar in figures
        .bars
        .iter()
        .filter(|b| !b.setting_is_known && !on_test_bed)
    {
        if let Some(setting) = &bar.setting {
            notes.push(format!(
                "not checked: {}: no setting of Muri's simulator is known to give {} s; {setting} gives {} s",
                bar.name(),
                seconds(bar.published.avg_jct_s),
                seconds(bar.simulator.avg_jct_s),
            ));
        }
    }
    if figures.bars.iter().any(|b| b.series == "Themis") {
        let of = |source| figures.ratios(&["Themis"], source, Metric::AvgJct);
        let (published, exact) = (of(Source::Published), of(Source::Exact));
        notes.push(format!(
            "not checked: Themis, published {} times the average JCT of Muri-L, exact {}{}: --compat muri does not have \
             it, because it depends on a solver there; ours follows the paper of Themis",
            range(&published),
            range(&exact),
            share(&exact, &published),
        ));
    }
    notes
}
