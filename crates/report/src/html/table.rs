//! The comparison table: one row per run, one column per metric, the best value of each column marked.

use dovetail_model::run::RunRecord;

use super::metrics::{Better, METRICS, Metric, Show};
use crate::format::{self, TimeUnit};
use crate::stats::quantile;
use crate::svg::{COLOURS, escape};

/// Returns the table of all runs.
pub(crate) fn comparison(records: &[&RunRecord], names: &[String]) -> String {
    let columns: Vec<Column<'_>> = METRICS
        .iter()
        .map(|metric| Column::new(metric, records))
        .filter(Column::is_useful)
        .collect();
    let mut out = String::from(
        "<div class=\"scroll\"><table class=\"sort\">\n<thead><tr><th scope=\"col\">policy<span class=\"arrow\"></span></th>",
    );
    // Policies with and without knowledge of run times are distinguished, where the runs record it.
    let has_knowledge = records.iter().any(|r| !r.summary.knowledge.is_empty());
    if has_knowledge {
        out.push_str("<th scope=\"col\" title=\"knowledge of the policy about remaining run times\">knowledge<span class=\"arrow\"></span></th>");
    }
    out.extend(columns.iter().map(Column::head));
    out.push_str("</tr></thead>\n<tbody>\n");
    for (i, name) in names.iter().enumerate() {
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}{}</th>",
            swatch(i),
            escape(name)
        ));
        if has_knowledge {
            out.push_str(&cell(None, &records[i].summary.knowledge, false));
        }
        out.extend(columns.iter().map(|column| column.cell(i)));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>");
    if records.len() > 1 {
        out.push_str(
            "<p class=\"note\">Bold with a dot: best value of the column. Click a heading to sort.</p>",
        );
    }
    out
}

/// Returns a swatch with the colour of a run in the figures.
pub(crate) fn swatch(i: usize) -> String {
    format!(
        "<span class=\"swatch\" style=\"background:var(--c{})\"></span>",
        i % COLOURS
    )
}

/// Returns a cell that is sorted by its value.
pub(crate) fn cell(value: Option<f64>, shown: &str, best: bool) -> String {
    let class = if best { " class=\"best\"" } else { "" };
    let sort = value.map(|v| v.to_string()).unwrap_or_default();
    format!("<td{class} data-v=\"{sort}\">{}</td>", escape(shown))
}

/// Returns one unit for a whole column, so that its numbers are comparable.
pub(crate) fn column_unit(values: impl Iterator<Item = f64>) -> TimeUnit {
    let mut sorted: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    format::unit_for(quantile(&sorted, 0.5).unwrap_or(0.0))
}

struct Column<'a> {
    metric: &'a Metric,
    values: Vec<Option<f64>>,
    unit: TimeUnit,
    best: Option<f64>,
}

impl<'a> Column<'a> {
    fn new(metric: &'a Metric, records: &[&RunRecord]) -> Self {
        let values: Vec<Option<f64>> = records
            .iter()
            .map(|r| (metric.value)(&r.summary).filter(|v| v.is_finite()))
            .collect();
        let present = || values.iter().copied().flatten();
        let best = match metric.better {
            Better::Lower => present().min_by(f64::total_cmp),
            Better::Higher => present().max_by(f64::total_cmp),
        };
        // A mark on every row would carry no information.
        let best = best.filter(|best| present().any(|v| v != *best));
        Self {
            metric,
            unit: column_unit(present()),
            best,
            values,
        }
    }

    /// Whether the column is shown: that of unfinished jobs only if there are some.
    fn is_useful(&self) -> bool {
        self.metric.head != "unfinished" || self.values.iter().flatten().any(|v| *v > 0.0)
    }

    fn head(&self) -> String {
        let unit = match self.metric.show {
            Show::Time => self.unit.name,
            Show::Percent => "%",
            Show::Times => "×",
            Show::Number | Show::Count => "",
        };
        format!(
            "<th scope=\"col\" title=\"{}\">{}<span class=\"arrow\"></span><small>{unit}</small></th>",
            escape(self.metric.definition),
            escape(self.metric.head)
        )
    }

    fn cell(&self, i: usize) -> String {
        let Some(value) = self.values[i] else {
            return cell(None, "–", false);
        };
        let shown = match self.metric.show {
            Show::Time => format::significant(value / self.unit.seconds),
            Show::Times => format::grouped(value, 2),
            Show::Number => format::significant(value),
            Show::Percent => format::grouped(value * 100.0, 1),
            Show::Count => format::grouped(value, 0),
        };
        cell(Some(value), &shown, self.best == Some(value))
    }
}
