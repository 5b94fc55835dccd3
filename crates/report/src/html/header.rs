//! The top of the page: the runs, and the result in one sentence.

use dovetail_model::run::{RunRecord, Summary};

use crate::format;
use crate::svg::escape;

/// Returns the start of a header, without its end tag.
fn opening(title: &str) -> String {
    format!(
        "<header>\n<p class=\"kicker\">Dovetail report</p>\n<h1>{}</h1>\n\
         <button class=\"theme\" type=\"button\" hidden aria-label=\"Switch between light and dark\">Dark</button>\n",
        escape(title)
    )
}

/// Returns a header with the title only.
pub(crate) fn title_only(title: &str) -> String {
    opening(title) + "</header>\n"
}

/// Returns a header with title, facts and headline.
pub(crate) fn header(records: &[&RunRecord], names: &[String], title: &str) -> String {
    let mut out = opening(title);
    if records.is_empty() {
        out.push_str("<p>No runs to show.</p>\n</header>\n");
        return out;
    }
    out.push_str("<dl class=\"facts\">\n");
    for (term, text) in facts(records) {
        out.push_str(&format!("<div><dt>{term}</dt><dd>{}</dd></div>\n", escape(&text)));
    }
    out.push_str("</dl>\n");
    out.push_str(&match records {
        [one] => tiles(&one.summary),
        _ => format!("<p class=\"lead\">{}</p>\n", headline(records, names)),
    });
    out.push_str("</header>\n");
    out
}

fn facts(records: &[&RunRecord]) -> Vec<(&'static str, String)> {
    let wall_s = records
        .iter()
        .map(|r| r.summary.wall_ms)
        .filter(|ms| ms.is_finite())
        .sum::<f64>()
        / 1e3;
    let events: u64 = records
        .iter()
        .fold(0, |sum, r| sum.saturating_add(r.summary.events));
    let mut facts = vec![
        ("workload", distinct(records, |s| s.trace.clone())),
        ("cluster", distinct(records, cluster)),
        ("jobs", distinct(records, |s| format::count(s.jobs))),
        ("seed", distinct(records, |s| s.seed.to_string())),
    ];
    match records {
        [one] => facts.insert(0, ("policy", one.summary.policy.clone())),
        _ => facts.push(("runs", records.len().to_string())),
    }
    if wall_s > 0.0 {
        facts.push((
            "simulated in",
            format!("{}, {} events", format::span(wall_s), format::count(events)),
        ));
    }
    facts.retain(|(_, text)| !text.is_empty());
    facts
}

fn cluster(summary: &Summary) -> String {
    let size = summary.cluster;
    match size.gpus.checked_div(size.nodes) {
        Some(each) if each.checked_mul(size.nodes) == Some(size.gpus) => {
            format!(
                "{} × {} = {}",
                format::counted(size.nodes.into(), "node"),
                format::counted(each.into(), "GPU"),
                format::count(size.gpus.into())
            )
        }
        _ => format!(
            "{}, {}",
            format::counted(size.nodes.into(), "node"),
            format::counted(size.gpus.into(), "GPU")
        ),
    }
}

/// Returns the value that all runs share, or the first few values.
fn distinct(records: &[&RunRecord], value: impl Fn(&Summary) -> String) -> String {
    let mut values: Vec<String> = vec![];
    for record in records {
        let value = value(&record.summary);
        if !values.contains(&value) && !value.is_empty() {
            values.push(value);
        }
    }
    if values.len() > 4 {
        return format!("{}, … ({} in total)", values[..3].join(", "), values.len());
    }
    values.join(", ")
}

fn headline(records: &[&RunRecord], names: &[String]) -> String {
    let mut order: Vec<usize> = (0..records.len())
        .filter(|i| records[*i].summary.finished > 0 && records[*i].summary.avg_jct_s > 0.0)
        .collect();
    order.sort_by(|a, b| {
        records[*a]
            .summary
            .avg_jct_s
            .total_cmp(&records[*b].summary.avg_jct_s)
    });
    let (Some(&best), Some(&worst)) = (order.first(), order.last()) else {
        return "No job finished in any of these runs.".into();
    };
    let summary = &records[best].summary;
    let mut out = format!(
        "<b>{}</b> has the lowest average job completion time: {}",
        escape(&names[best]),
        format::span(summary.avg_jct_s)
    );
    if summary.lower_bound_avg_jct_s > 0.0 {
        let ratio = summary.avg_jct_s / summary.lower_bound_avg_jct_s;
        out.push_str(&format!(
            ", {}× the lower bound of any schedule of rigid jobs with exclusive GPUs",
            format::grouped(ratio, 2)
        ));
    }
    let other = records[worst].summary.avg_jct_s;
    if best != worst && other / summary.avg_jct_s < 1.005 {
        out.push_str("; all runs are within 0.5 % of it");
    } else if best != worst {
        out.push_str(&format!(
            "; {}, the slowest of {}, takes {} ({}× as long)",
            escape(&names[worst]),
            order.len(),
            format::span(other),
            format::grouped(other / summary.avg_jct_s, 2)
        ));
    }
    out.push('.');
    out
}

fn tiles(summary: &Summary) -> String {
    let bound = summary.lower_bound_avg_jct_s;
    let ratio = if bound > 0.0 {
        format!("{}×", format::grouped(summary.avg_jct_s / bound, 2))
    } else {
        "–".into()
    };
    let finished = match summary.finished == summary.jobs {
        true => format!("all {}", format::count(summary.jobs)),
        false => format!(
            "{} of {}",
            format::count(summary.finished),
            format::count(summary.jobs)
        ),
    };
    let tiles = [
        ("average JCT", format::span(summary.avg_jct_s)),
        ("over the lower bound", ratio),
        ("p99 JCT", format::span(summary.p99_jct_s)),
        ("average wait", format::span(summary.avg_wait_s)),
        ("makespan", format::span(summary.makespan_s)),
        (
            "GPU utilisation",
            format!("{} %", format::grouped(summary.gpu_utilization * 100.0, 1)),
        ),
        ("jobs finished", finished),
    ];
    let tile =
        |(name, value): (&str, String)| format!("<li><span>{name}</span><b>{}</b></li>\n", escape(&value));
    format!(
        "<ul class=\"tiles\">\n{}</ul>\n",
        tiles.into_iter().map(tile).collect::<String>()
    )
}
