//! `dovetail calc FILE...`: averages from job files.

use std::io::Read;
use std::path::{Path, PathBuf};

use comfy_table::Cell;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::format::{count, grouped};
use dovetail_report::{Completions, parse_completions};
use serde_json::{Value, json};

use crate::args::CalcArgs;

/// A metric: its heading, its key, and how it is computed.
type Figure = (&'static str, &'static str, fn(&Completions) -> f64);

const FIGURES: [Figure; 5] = [
    ("avg JCT", "avg_jct_s", Completions::mean_s),
    ("median", "median_jct_s", Completions::median_s),
    ("p99", "p99_jct_s", Completions::p99_s),
    ("makespan", "makespan_s", |c| c.last_end_s),
    ("from first submit", "relative_makespan_s", Completions::span_s),
];

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
        let all: Vec<Value> = found.iter().map(|(file, c)| as_json(file, c, &first)).collect();
        return console::print(serde_json::to_string_pretty(&all).or_work()?);
    }
    let several = found.len() > 1;
    let mut headings = vec!["seconds", "jobs"];
    for (heading, ..) in FIGURES {
        headings.push(heading);
        headings.extend(several.then_some("×"));
    }
    let mut table = console::table(&headings);
    let short = short_names(&args.files);
    for (file, (_, completions)) in short.iter().zip(&found) {
        let mut row = vec![Cell::new(file), Cell::new(count(completions.jct_s.len() as u64))];
        for (_, _, value) in FIGURES {
            row.push(Cell::new(grouped(value(completions), 1)));
            row.extend(several.then(|| Cell::new(ratio_text(value(completions), value(&first)))));
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

/// Returns the paths without the directories and file name that all of them share.
fn short_names(files: &[PathBuf]) -> Vec<String> {
    let parts: Vec<Vec<_>> = files.iter().map(|f| f.components().collect()).collect();
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let same =
        |at: &dyn Fn(&Vec<_>) -> std::path::Component<'_>| parts.iter().all(|p| at(p) == at(&parts[0]));
    let head = (0..shortest).take_while(|i| same(&|p| p[*i])).count();
    let tail = (0..shortest.saturating_sub(head + 1))
        .take_while(|i| same(&|p| p[p.len() - 1 - i]))
        .count();
    if files.len() < 2 || head >= shortest {
        return files.iter().map(|f| f.display().to_string()).collect();
    }
    let name = |p: &Vec<std::path::Component<'_>>| p[head..p.len() - tail].iter().collect::<PathBuf>();
    parts.iter().map(|p| name(p).display().to_string()).collect()
}

fn ratio_text(value: f64, first: f64) -> String {
    ratio(value, first).map_or_else(|| "–".to_owned(), |r| format!("{r:.3}"))
}

fn ratio(value: f64, first: f64) -> Option<f64> {
    (first > 0.0).then(|| value / first)
}

fn as_json(file: &str, completions: &Completions, first: &Completions) -> Value {
    let mut object = serde_json::Map::new();
    object.insert("file".to_owned(), json!(file));
    object.insert("jobs".to_owned(), json!(completions.jct_s.len()));
    object.insert("unfinished".to_owned(), json!(completions.unfinished));
    let mut ratios = serde_json::Map::new();
    for (_, key, value) in FIGURES {
        object.insert(key.to_owned(), json!(value(completions)));
        let name = key.trim_end_matches("_s").to_owned();
        ratios.insert(name, json!(ratio(value(completions), value(first))));
    }
    object.insert("ratio_to_first".to_owned(), Value::Object(ratios));
    Value::Object(object)
}

/// Reads a file, decompressing it if its first bytes say so.
fn unpacked(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|e| anyhow::anyhow!("cannot read {}: {e}", path.display()))
        .or_request()?;
    let mut text = Vec::new();
    let result = match bytes.as_slice() {
        [0x1f, 0x8b, ..] => flate2::read::MultiGzDecoder::new(bytes.as_slice())
            .read_to_end(&mut text)
            .map(|_| ()),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::decode_all(bytes.as_slice()).map(|all| text = all),
        _ => return Ok(bytes),
    };
    let broken = |e| anyhow::anyhow!("{}: damaged or truncated: {e}", path.display());
    result.map_err(broken).or_request()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_what_distinguishes_files() {
        let short = |files: &[&str]| short_names(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(
            short(&["/a/b/srtf/job.csv", "/a/b/srsf/job.csv"]),
            ["srtf", "srsf"]
        );
        assert_eq!(short(&["out/job.csv", "out/jobs.csv"]), ["job.csv", "jobs.csv"]);
        assert_eq!(short(&["x/job.csv", "x/job.csv"]), ["x/job.csv", "x/job.csv"]);
        assert_eq!(short(&["job.csv", "x/job.csv"]), ["job.csv", "x/job.csv"]);
        assert_eq!(short(&["x/job.csv"]), ["x/job.csv"]);
    }
}
