//! The page of one or several runs: self-contained, light and dark, readable without scripts.

mod header;
mod metrics;
mod table;
mod tenants;

use dovetail_model::run::RunRecord;

use crate::figures::{compare_bars, gantt_within, jct_cdf, labels, queue_length, utilization, wait_cdf};
use crate::svg::{Figure, escape, page_style};

/// Maximum number of runs whose GPU timeline is drawn.
const MAX_GANTTS: usize = 8;
/// Maximum number of rectangles in all GPU timelines of a page; they are most of its size.
const GANTT_BUDGET: usize = 7000;

/// Returns the report of these runs.
pub fn html(records: &[RunRecord], title: &str) -> String {
    html_with(records, title, &[])
}

/// Returns the report with additional figures before its own, such as published numbers next to ours.
pub fn html_with(records: &[RunRecord], title: &str, figures: &[Figure]) -> String {
    let all: Vec<&RunRecord> = records.iter().collect();
    let names = labels(&all);
    let mut page = Page::default();
    page.push(&header::header(&all, &names, title));
    page.figures("Reproduction", figures);
    if !all.is_empty() {
        let heading = if all.len() == 1 { "Result" } else { "Comparison" };
        page.section(heading, &table::comparison(&all, &names));
        page.push("<div class=\"split\">\n");
        page.figures("Jobs", &job_figures(&all));
        page.figures("Cluster", &[utilization(&all), queue_length(&all)]);
        page.push("</div>\n");
        page.section("GPU timelines", &gantts(&all, &names));
        page.push(&tenants::section(&all, &names));
    }
    page.section("Definitions", &metrics::definitions());
    page.finish(title)
}

/// Returns the page of an experiment: each statement with whether it holds, remarks, figures.
pub fn html_of_experiment(
    title: &str,
    statements: &[(String, bool)],
    remarks: &[String],
    figures: &[Figure],
) -> String {
    let mut page = Page::default();
    page.push(&header::title_only(title));
    let list: String = statements
        .iter()
        .map(|(text, holds)| (if *holds { "✓" } else { "✗" }, text))
        .chain(remarks.iter().map(|text| ("·", text)))
        .map(|(mark, text)| format!("<p>{mark} {}</p>\n", escape(text)))
        .collect();
    if !list.is_empty() {
        page.section("Published results and ours", &list);
    }
    page.figures("Figures", figures);
    page.finish(title)
}

fn job_figures(records: &[&RunRecord]) -> Vec<Figure> {
    let mut figures = vec![jct_cdf(records), wait_cdf(records)];
    if records.len() > 1 {
        figures.insert(0, compare_bars(records));
    }
    figures
}

fn gantts(records: &[&RunRecord], names: &[String]) -> String {
    let shown = records.len().min(MAX_GANTTS);
    let most = (GANTT_BUDGET / shown.max(1)).min(2500);
    let mut out = String::new();
    for (i, (record, name)) in records.iter().zip(names).take(shown).enumerate() {
        let open = if i == 0 { " open" } else { "" };
        let figure = gantt_within(record, most);
        out.push_str(&format!(
            "<details{open}><summary>{}</summary><figure class=\"wide\"><div class=\"scroll\">{}</div>\
             <figcaption>{}</figcaption></figure></details>\n",
            escape(name),
            figure.inline(),
            escape(&figure.caption)
        ));
    }
    if shown < records.len() {
        out.push_str(&format!(
            "<p class=\"note\">The first {shown} of {} runs are drawn.</p>",
            records.len()
        ));
    }
    out
}

/// Builds the page.
#[derive(Default)]
struct Page {
    body: String,
    figures: usize,
}

impl Page {
    fn push(&mut self, html: &str) {
        self.body.push_str(html);
    }

    fn section(&mut self, heading: &str, inner: &str) {
        self.push(&format!(
            "<section>\n<h2>{}</h2>\n{inner}\n</section>\n",
            escape(heading)
        ));
    }

    fn figures(&mut self, heading: &str, figures: &[Figure]) {
        if figures.is_empty() {
            return;
        }
        let mut inner = String::from("<div class=\"figures\">\n");
        for figure in figures {
            self.figures += 1;
            inner.push_str(&format!(
                "<figure><h3>{}</h3>{}<figcaption><b>Figure {}.</b> {}</figcaption></figure>\n",
                escape(&figure.title),
                figure.inline(),
                self.figures,
                escape(&figure.caption)
            ));
        }
        inner.push_str("</div>");
        self.section(heading, &inner);
    }

    fn finish(self, title: &str) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{}</title>\n\
             <style>\n{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n<script>\n{}</script>\n</body>\n</html>\n",
            escape(title),
            page_style(),
            include_str!("page.css"),
            self.body,
            include_str!("page.js"),
        )
    }
}
