//! `dovetail calc FILE...`: averages from job files.

use std::path::Path;

use comfy_table::Cell;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::files::{COMPLETION_METRICS, short_names};
use dovetail_report::format::{count, grouped};
use dovetail_report::{Completions, parse_completions};
use serde_json::Value;

use crate::args::CalcArgs;

/// Reads the files and shows their metrics, with ratios to the first.
///
/// # Errors
/// Names the file, line and column of the error.
pub fn run(args: &CalcArgs) -> Result<(), Failure> {
    let mut found: Vec<(String, Completions)> = Vec::new();
    for path in &args.files {
        let completions = parse_completions(path, &unpacked(path)?).or_request()?;
        found.push((path.display().to_string(), completions));
    }
    let first = found[0].1.clone();
    if args.json {
        let all: Vec<Value> = found.iter().map(|(file, c)| c.to_json(file, &first)).collect();
        return console::print(serde_json::to_string_pretty(&all).or_work()?);
    }
    let several = found.len() > 1;
    let mut headings = vec!["seconds", "jobs"];
    for metric in COMPLETION_METRICS {
        headings.push(metric.heading);
        headings.extend(several.then_some("×"));
    }
    let mut table = console::table(&headings);
    let short = short_names(&args.files);
    for (file, (_, completions)) in short.iter().zip(&found) {
        let mut row = vec![Cell::new(file), Cell::new(count(completions.jct_s.len() as u64))];
        for metric in COMPLETION_METRICS {
            row.push(Cell::new(grouped((metric.value)(completions), 1)));
            row.extend(several.then(|| Cell::new(ratio_text(metric.ratio(completions, &first)))));
        }
        table.add_row(row);
    }
    console::align_numbers(&mut table);
    console::print(table)?;
    for (file, completions) in found.iter().filter(|(_, c)| c.unfinished > 0) {
        console::print(format!(
            "{file}: {} more did not finish and are not counted",
            count(completions.unfinished)
        ))?;
    }
    Ok(())
}

fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.3}"))
}

/// Reads a file, decompressing it if its first bytes say so.
fn unpacked(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|e| anyhow::anyhow!("cannot read {}: {e}", path.display()))
        .or_request()?;
    let broken = |e| anyhow::anyhow!("{}: damaged or truncated: {e}", path.display());
    dovetail_workload::compression::decompress(bytes)
        .map_err(broken)
        .or_request()
}
