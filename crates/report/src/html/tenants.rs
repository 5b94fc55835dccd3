//! Results by tenant for each run.

use dovetail_model::run::{RunRecord, TenantSummary};

use super::table::{cell, column_unit, swatch};
use crate::format;
use crate::svg::escape;

/// Maximum number of tenants listed per run: those with the most GPU time.
const MAX_TENANTS: usize = 25;

/// Returns the section; empty if no run has tenants.
pub(crate) fn section(records: &[&RunRecord], names: &[String]) -> String {
    let rows: Vec<(usize, &TenantSummary)> = records
        .iter()
        .enumerate()
        .flat_map(|(i, r)| heaviest(&r.summary.tenants).into_iter().map(move |t| (i, t)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let jct = column_unit(rows.iter().map(|(_, t)| t.avg_jct_s));
    let p99 = column_unit(rows.iter().map(|(_, t)| t.p99_jct_s));
    let wait = column_unit(rows.iter().map(|(_, t)| t.avg_wait_s));
    let heads = [
        ("jobs", ""),
        ("finished", ""),
        ("avg JCT", jct.name),
        ("p99 JCT", p99.name),
        ("avg wait", wait.name),
        ("slowdown", ""),
        ("GPU time", "GPU-hours"),
    ];
    let mut out = String::from(
        "<section>\n<h2>Tenants</h2>\n<div class=\"scroll\"><table class=\"sort\">\n<thead><tr>\
         <th scope=\"col\">tenant<span class=\"arrow\"></span></th>\
         <th scope=\"col\" class=\"text\">policy<span class=\"arrow\"></span></th>",
    );
    for (head, unit) in heads {
        out.push_str(&format!(
            "<th scope=\"col\">{head}<span class=\"arrow\"></span><small>{unit}</small></th>"
        ));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (i, t) in &rows {
        let time = |seconds: f64, unit: &format::TimeUnit| {
            let shown = (t.finished > 0).then(|| format::significant(seconds / unit.seconds));
            cell(
                Some(seconds).filter(|v| v.is_finite()),
                shown.as_deref().unwrap_or("–"),
                false,
            )
        };
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"text\">{}{}</td>",
            escape(&t.tenant),
            swatch(*i),
            escape(&names[*i])
        ));
        out.push_str(&cell(Some(t.jobs as f64), &format::count(t.jobs), false));
        out.push_str(&cell(Some(t.finished as f64), &format::count(t.finished), false));
        out.push_str(&time(t.avg_jct_s, &jct));
        out.push_str(&time(t.p99_jct_s, &p99));
        out.push_str(&time(t.avg_wait_s, &wait));
        let number = |v: f64| cell(Some(v).filter(|v| v.is_finite()), &format::significant(v), false);
        out.push_str(&number(t.avg_slowdown));
        out.push_str(&number(t.gpu_hours));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    let most = records.iter().map(|r| r.summary.tenants.len()).max().unwrap_or(0);
    if most > MAX_TENANTS {
        out.push_str(&format!(
            "<p class=\"note\">The {MAX_TENANTS} tenants with the most GPU time, of {most}; all are in summary.json.</p>"
        ));
    }
    out.push_str("</section>\n");
    out
}

/// Returns the tenants with the most GPU time, ordered by name.
fn heaviest(tenants: &[TenantSummary]) -> Vec<&TenantSummary> {
    let mut all: Vec<&TenantSummary> = tenants.iter().collect();
    all.sort_by(|a, b| {
        b.gpu_hours
            .total_cmp(&a.gpu_hours)
            .then_with(|| a.tenant.cmp(&b.tenant))
    });
    all.truncate(MAX_TENANTS);
    all.sort_by(|a, b| a.tenant.cmp(&b.tenant));
    all
}
