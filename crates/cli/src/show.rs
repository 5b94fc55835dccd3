//! Tables and colours: they fit the terminal, and respect `NO_COLOR` and pipes.

use std::io::{IsTerminal, Write};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};
use dovetail_model::run::Summary;
use dovetail_report::format::{count, span};

use crate::failure::{Blame, Failure};

/// Whether colours are welcome on standard output.
pub fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `error:`, red where that is welcome.
pub fn error_label() -> &'static str {
    let plain =
        !std::io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    if plain {
        "error:"
    } else {
        "\u{1b}[1;31merror:\u{1b}[0m"
    }
}

/// An empty table with these headings; columns from the second on are aligned to the right.
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic);
    if colours() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if !std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(
        headings
            .iter()
            .map(|h| Cell::new(h).add_attribute(Attribute::Bold)),
    );
    table
}

/// Columns of the terminal, or of `COLUMNS`; 100 where nobody says.
pub fn width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    said.or_else(|| Table::new().width().map(usize::from))
        .unwrap_or(100)
}

/// Aligns all columns but the first to the right.
pub fn align_numbers(table: &mut Table) {
    for i in 1..table.column_count() {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Prints a line to standard output; a reader that has gone away is not an error of ours.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}").or_work()
}

/// One column of the comparison.
struct Column {
    heading: &'static str,
    value: fn(&Summary) -> f64,
    text: fn(f64) -> String,
    /// Whether less is better, more is better, or neither.
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

/// The comparison of several runs; the best figure of each column stands out.
pub fn comparison(rows: &[(String, Summary)]) -> Table {
    let headings: Vec<&str> = ["policy", "knows"]
        .into_iter()
        .chain(COLUMNS.iter().map(|c| c.heading))
        .collect();
    let mut table = table(&headings);
    let best: Vec<Option<f64>> = COLUMNS.iter().map(|c| best_of(c, rows)).collect();
    for (name, summary) in rows {
        let cells = COLUMNS.iter().zip(&best).map(|(column, best)| {
            let value = (column.value)(summary);
            let cell = Cell::new((column.text)(value));
            let stands_out = rows.len() > 1 && *best == Some(value);
            if stands_out {
                cell.fg(Color::Green).add_attribute(Attribute::Bold)
            } else {
                cell
            }
        });
        table.add_row(
            [Cell::new(name), Cell::new(&summary.knowledge)]
                .into_iter()
                .chain(cells),
        );
    }
    align_numbers(&mut table);
    table
}

fn best_of(column: &Column, rows: &[(String, Summary)]) -> Option<f64> {
    let values = rows
        .iter()
        .map(|(_, s)| (column.value)(s))
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
        let summary = Summary {
            knowledge: "oracle".to_owned(),
            makespan_s: 7.0,
            ..Summary::default()
        };
        let table = comparison(&[("srsf".to_owned(), summary)]);
        let cells = |row: &comfy_table::Row| row.cell_iter().map(Cell::content).collect::<Vec<_>>();
        let headings = cells(table.header().expect("a table has headings"));
        let row = cells(table.row(0).expect("there is one run"));
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
