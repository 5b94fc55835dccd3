//! `dovetail report DIR...`: one page of earlier runs.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::run::RunRecord;

use crate::args::ReportArgs;

/// Reads the runs and writes the page.
///
/// # Errors
/// If a directory does not contain a run.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let mut records: Vec<RunRecord> = Vec::new();
    for dir in &args.dirs {
        records.extend(dovetail_report::read_runs(dir).or_request()?);
    }
    let title = args.title.clone().unwrap_or_else(|| match records.as_slice() {
        [one] => format!("{} on {}", one.summary.policy, one.summary.trace),
        many => format!("{} runs compared", many.len()),
    });
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| args.dirs[0].join("report.html"));
    let page = dovetail_report::html(&records, &title);
    dovetail_report::files::write_file(&out, page.as_bytes()).or_work()?;
    console::print(out.display())
}
