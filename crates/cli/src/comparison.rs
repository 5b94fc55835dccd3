//! The table of `dovetail compare`: one row for each policy.

use comfy_table::{Attribute, Cell, Color, Table};
use dovetail_console as console;
use dovetail_experiment::PolicySummary;
use dovetail_model::run::Summary;
use dovetail_report::format::{count, span};

/// One column of the comparison.
struct Column {
    heading: &'static str,
    value: fn(&Summary) -> f64,
    text: fn(f64) -> String,
    /// Which values are better.
    better: Better,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Less,
    More,
}

const COLUMNS: &[Column] = &[
    Column {
        heading: "avg JCT",
        value: |s| s.avg_jct_s,
        text: span,
        better: Better::Less,
    },
    Column {
        heading: "× bound",
        value: over_bound,
        text: factor,
        better: Better::Less,
    },
    Column {
        heading: "median",
        value: |s| s.median_jct_s,
        text: span,
        better: Better::Less,
    },
    Column {
        heading: "p99",
        value: |s| s.p99_jct_s,
        text: span,
        better: Better::Less,
    },
    Column {
        heading: "avg wait",
        value: |s| s.avg_wait_s,
        text: span,
        better: Better::Less,
    },
    Column {
        heading: "slowdown",
        value: |s| s.avg_slowdown,
        text: factor,
        better: Better::Less,
    },
    Column {
        heading: "p95 ρ",
        value: |s| s.p95_ftf,
        text: factor,
        better: Better::Less,
    },
    Column {
        heading: "worst ρ",
        value: |s| s.worst_ftf,
        text: factor,
        better: Better::Less,
    },
    Column {
        heading: "makespan",
        value: |s| s.makespan_s,
        text: span,
        better: Better::Less,
    },
    Column {
        heading: "GPU use",
        value: |s| s.gpu_utilization * 100.0,
        text: percent,
        better: Better::More,
    },
    Column {
        heading: "stops",
        value: |s| s.preemptions as f64,
        text: |x| count(x as u64),
        better: Better::Less,
    },
];

fn over_bound(summary: &Summary) -> f64 {
    if summary.lower_bound_avg_jct_s > 0.0 {
        summary.avg_jct_s / summary.lower_bound_avg_jct_s
    } else {
        f64::NAN
    }
}

fn factor(x: f64) -> String {
    if x.is_finite() {
        format!("{x:.2}")
    } else {
        "–".to_owned()
    }
}

fn percent(x: f64) -> String {
    format!("{x:.1} %")
}

/// Returns a table of several runs; the best value of each column is highlighted.
pub fn comparison_table(rows: &[PolicySummary]) -> Table {
    let headings: Vec<&str> = ["policy", "knows"]
        .into_iter()
        .chain(COLUMNS.iter().map(|c| c.heading))
        .collect();
    let mut table = console::table(&headings);
    let best: Vec<Option<f64>> = COLUMNS.iter().map(|c| best_of(c, rows)).collect();
    for row in rows {
        let summary = &row.mean;
        let cells = COLUMNS.iter().zip(&best).map(|(column, best)| {
            let value = (column.value)(summary);
            let cell = Cell::new((column.text)(value));
            let is_best = rows.len() > 1 && *best == Some(value);
            if is_best {
                cell.fg(Color::Green).add_attribute(Attribute::Bold)
            } else {
                cell
            }
        });
        table.add_row(
            [Cell::new(&row.policy), Cell::new(&summary.knowledge)]
                .into_iter()
                .chain(cells),
        );
    }
    console::align_numbers(&mut table);
    table
}

fn best_of(column: &Column, rows: &[PolicySummary]) -> Option<f64> {
    let values = rows
        .iter()
        .map(|row| (column.value)(&row.mean))
        .filter(|v| v.is_finite());
    match column.better {
        Better::Less => values.min_by(f64::total_cmp),
        Better::More => values.max_by(f64::total_cmp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_its_heading() {
        let summary = PolicySummary {
            policy: "srsf".to_owned(),
            mean: Summary {
                knowledge: "oracle".to_owned(),
                makespan_s: 7.0,
                ..Summary::default()
            },
            avg_jct_half_width_s: None,
        };
        let table = comparison_table(&[summary]);
        let cells = |row: &comfy_table::Row| row.cell_iter().map(Cell::content).collect::<Vec<_>>();
        let headings = cells(table.header().expect("a table has headings"));
        let row = cells(table.row(0).expect("one row per run"));
        assert_eq!(headings.len(), row.len());
        let under = |heading: &str| {
            row[headings
                .iter()
                .position(|h| h == heading)
                .expect("the heading is there")]
            .clone()
        };
        assert_eq!(
            (under("policy"), under("knows")),
            ("srsf".to_owned(), "oracle".to_owned())
        );
        assert_eq!(under("makespan"), span(7.0));
    }
}
