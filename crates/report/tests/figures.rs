//! Figures and pages are well-formed for every input, deterministic, and do not refer to the network.

mod common;

use common::{assert_well_formed, tiny, wild};
use dovetail_model::run::RunRecord;
use dovetail_report::{
    AxisKind, BarSeries, Figure, LineChart, Series, compare_bars, gantt, grouped_bars, html,
    html_of_experiment, html_with, jct_cdf, lines, queue_length, utilization, wait_cdf,
};
use proptest::prelude::*;

fn all_figures(records: &[&RunRecord]) -> Vec<Figure> {
    let mut figures = vec![
        jct_cdf(records),
        wait_cdf(records),
        utilization(records),
        queue_length(records),
        compare_bars(records),
    ];
    figures.extend(records.iter().map(|record| gantt(record)));
    figures
}

#[test]
fn a_small_figure_is_drawn_as_expected() {
    let bars = [
        BarSeries::published("published", [Some(2.0)]),
        BarSeries::ours("ours", [Some(1.0)]),
    ];
    let figure = grouped_bars("Speed-up <1>", "times", &["fifo & co"], &bars);
    insta::assert_snapshot!(figure.inline(), @r#"
    <svg class="dv" viewBox="0 0 540 293" role="img" aria-label="Speed-up &lt;1&gt;. Dashed outline: published. Filled: ours."><rect class="f0 s0 hollow" x="8" y="3" width="14" height="12"/>
    <text x="28" y="13">published</text>
    <rect class="f1" x="113.1" y="3" width="14" height="12"/>
    <text x="133.1" y="13">ours</text>
    <text class="m" x="17.8" y="36">times</text>
    <path class="g" d="M17.8 265L540 265"/>
    <text class="m" text-anchor="end" x="10.8" y="269">0</text>
    <path class="g" d="M17.8 163.1L540 163.1"/>
    <text class="m" text-anchor="end" x="10.8" y="167.1">1</text>
    <path class="g" d="M17.8 61.3L540 61.3"/>
    <text class="m" text-anchor="end" x="10.8" y="65.3">2</text>
    <text text-anchor="middle" x="278.9" y="284">fifo &amp; co</text>
    <rect class="f0 s0 hollow" x="235.7" y="61.3" width="40.5" height="203.7"/>
    <text class="sm" text-anchor="middle" x="255.9" y="57.3">2.00</text>
    <rect class="f1" x="281.7" y="163.1" width="40.5" height="101.9"/>
    <text class="sm" text-anchor="middle" x="301.9" y="159.1">1.00</text>
    <path class="a" d="M17.8 265L540 265"/>
    </svg>
    "#);
}

#[test]
fn figures_and_pages_without_runs_are_valid() {
    for figure in all_figures(&[]) {
        assert_well_formed(&figure.svg());
    }
    assert_well_formed(&html(&[], "Nothing"));
}

#[test]
fn a_page_is_self_contained() {
    let page = html(&[tiny(), tiny()], "Two <runs> & more");
    assert_well_formed(&page);
    for reference in ["http://", "https://", "src=", "@import", "url(", "<link"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("Two &lt;runs&gt; &amp; more"));
    assert!(page.contains("fifo #2"));
}

#[test]
fn the_best_of_a_column_is_marked() {
    let mut better = tiny();
    better.summary.policy = "srtf".into();
    better.summary.avg_jct_s = 420.0;
    let page = html(&[tiny(), better], "Two runs");
    assert!(page.contains("<td class=\"best\" data-v=\"420\">7.00</td>"));
    assert!(page.contains("<td data-v=\"450\">7.50</td>"));
    assert!(
        page.contains(
            "<b>srtf</b> has the lowest average job completion time: 7.00 min, 1.05× the lower bound"
        )
    );
}

#[test]
fn a_page_of_many_jobs_stays_small() {
    let mut record = tiny();
    let (row, segment) = (record.rows[1].clone(), record.segments[1].clone());
    record.rows = (0..20_000u32)
        .map(|i| {
            let mut row = row.clone();
            row.job.0 = i;
            row.finish = row
                .finish
                .map(|t| t + dovetail_model::Time(i64::from(i.wrapping_mul(2_654_435_769)) * 10_000));
            row
        })
        .collect();
    record.segments = (0..40_000i64)
        .map(|i| {
            let mut segment = segment.clone();
            segment.job.0 = (i / 2) as u32;
            segment.slots = vec![(i % 4) as u32];
            segment.node.0 = (i % 31) as u32;
            segment.start = dovetail_model::Time::from_secs(i / 124 * 997 + i % 7);
            segment.end = segment.start + dovetail_model::Time::from_secs(900);
            segment
        })
        .collect();
    record.timeline = (0..5000)
        .map(|i| {
            let mut point = record.timeline[0];
            point.start = dovetail_model::Time::from_secs(i * 60);
            point.end = dovetail_model::Time::from_secs(i * 60 + 60);
            point.busy_gpus = f64::from((i % 100) as u32);
            point
        })
        .collect();
    let page = html(&vec![record; 8], "Large");
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
    assert_well_formed(&page);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn extreme_runs_give_well_formed_pages_and_the_same_bytes_again(
        records in prop::collection::vec(wild(), 1..4),
        title in ".*",
    ) {
        let page = html(&records, &title);
        assert_well_formed(&page);
        prop_assert_eq!(&page, &html(&records, &title));
        for figure in all_figures(&records.iter().collect::<Vec<_>>()) {
            assert_well_formed(&figure.svg());
        }
    }

    #[test]
    fn extreme_lines_and_bars_are_well_formed(
        names in prop::collection::vec(".*", 1..5),
        points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..20),
        kind in prop::sample::select(vec![
            AxisKind::Linear, AxisKind::Log, AxisKind::Time, AxisKind::LogTime, AxisKind::Percent,
        ]),
    ) {
        let series: Vec<Series> = names
            .iter()
            .flat_map(|name| {
                let errors = points.iter().map(|(x, y)| (*y, *x));
                [Series::published(name, points.clone()), Series::new(name, points.clone()).with_errors(errors)]
            })
            .collect();
        let chart = LineChart { title: &names[0], x_label: &names[0], x: kind, y: kind, ..LineChart::default() };
        let values = points.iter().map(|(x, _)| Some(*x));
        let bars = [BarSeries::ours(&names[0], values.clone()), BarSeries::published("b", values)];
        let groups: Vec<&str> = names.iter().map(String::as_str).collect();
        let figures =
            [chart.draw(&series), lines("t", "x", "y", &series), grouped_bars(&names[0], "y", &groups, &bars)];
        for figure in &figures {
            assert_well_formed(&figure.svg());
        }
        assert_well_formed(&html_with(&[], &names[0], &figures));
        let statements = [(names[0].clone(), true), (names[0].clone(), false)];
        assert_well_formed(&html_of_experiment(&names[0], &statements, &names, &figures));
    }
}
