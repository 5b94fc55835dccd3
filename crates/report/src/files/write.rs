//! Writes records to directories.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dovetail_model::run::RunRecord;
use serde_json::Value;

use super::csv_out::table;
use super::jobs::jobs_csv;
use super::summary::summary_json;
use super::tables::{nodes_csv, segments_csv, timeline_csv};
use crate::error::ReportError;
use crate::figures::{compare_bars, gantt, jct_cdf, labels, queue_length, utilization, wait_cdf};
use crate::html::html;
use crate::svg::Figure;

/// Writes one run into `dir`, which is created if missing, and returns the files.
pub fn write_run(dir: &Path, record: &RunRecord) -> Result<Vec<PathBuf>, ReportError> {
    let mut written = write_data(dir, record)?;
    let title = format!(
        "{} on {}",
        named(&record.summary.policy, "run"),
        named(&record.summary.trace, "a workload")
    );
    written.push(write_file(
        &dir.join("report.html"),
        html(std::slice::from_ref(record), &title).as_bytes(),
    )?);
    let mut figures = shared_figures(&[record]);
    figures.push(gantt(record));
    written.extend(write_figures(dir, &figures)?);
    Ok(written)
}

/// Returns the names of the directories that [`write_comparison`] uses for these runs, in their order.
pub fn run_directories(records: &[RunRecord]) -> Vec<String> {
    directory_names(&labels(&records.iter().collect::<Vec<_>>()))
}

/// Writes several runs: a directory with the data of each, and one table, page and set of figures over all.
pub fn write_comparison(dir: &Path, records: &[RunRecord]) -> Result<Vec<PathBuf>, ReportError> {
    let all: Vec<&RunRecord> = records.iter().collect();
    let names = run_directories(records);
    let mut written = vec![];
    for (record, name) in records.iter().zip(&names) {
        written.extend(write_data(&dir.join(name), record)?);
        written.push(write_file(
            &dir.join(name).join("gantt.svg"),
            gantt(record).svg().as_bytes(),
        )?);
    }
    written.push(write_file(
        &dir.join("comparison.csv"),
        &comparison_csv(records, &names),
    )?);
    let traces: BTreeSet<&str> = records
        .iter()
        .map(|r| r.summary.trace.as_str())
        .filter(|t| !t.is_empty())
        .collect();
    let title = match traces.first() {
        Some(trace) if traces.len() == 1 => format!("{} runs of {trace}", records.len()),
        _ => format!("{} runs compared", records.len()),
    };
    written.push(write_file(
        &dir.join("report.html"),
        html(records, &title).as_bytes(),
    )?);
    let mut figures = shared_figures(&all);
    figures.push(compare_bars(&all));
    written.extend(write_figures(dir, &figures)?);
    Ok(written)
}

/// Writes a file under a temporary name and renames it; missing parent directories are created.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<PathBuf, ReportError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(ReportError::io("create the directory", dir))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}.tmp", std::process::id()));
    fs::write(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(|source| {
            // Report the first error; the temporary file is removed if possible.
            let _ = fs::remove_file(&temporary);
            ReportError::Io {
                action: "write",
                path: path.to_owned(),
                source,
            }
        })?;
    Ok(path.to_owned())
}

fn write_data(dir: &Path, record: &RunRecord) -> Result<Vec<PathBuf>, ReportError> {
    let files = [
        ("summary.json", summary_json(&record.summary)),
        ("jobs.csv", jobs_csv(record)),
        ("timeline.csv", timeline_csv(&record.timeline)),
        ("segments.csv", segments_csv(&record.segments)),
        ("nodes.csv", nodes_csv(&record.node_slots)),
    ];
    files
        .into_iter()
        .map(|(name, bytes)| write_file(&dir.join(name), &bytes))
        .collect()
}

fn shared_figures(records: &[&RunRecord]) -> Vec<Figure> {
    vec![
        jct_cdf(records),
        wait_cdf(records),
        utilization(records),
        queue_length(records),
    ]
}

fn write_figures(dir: &Path, figures: &[Figure]) -> Result<Vec<PathBuf>, ReportError> {
    let path = |figure: &Figure| dir.join("figures").join(format!("{}.svg", figure.name));
    figures
        .iter()
        .map(|figure| write_file(&path(figure), figure.svg().as_bytes()))
        .collect()
}

fn named<'a>(name: &'a str, otherwise: &'a str) -> &'a str {
    if name.is_empty() { otherwise } else { name }
}

/// The columns of `comparison.csv` after the directory: the plain values of a summary.
const COMPARISON: [&str; 38] = [
    "policy",
    "knowledge",
    "trace",
    "cluster.nodes",
    "cluster.gpus",
    "seed",
    "jobs",
    "finished",
    "rejected",
    "avg_jct_s",
    "median_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "lower_bound_avg_jct_s",
    "makespan_s",
    "avg_wait_s",
    "median_wait_s",
    "p95_wait_s",
    "p99_wait_s",
    "avg_first_start_s",
    "avg_slowdown",
    "median_slowdown",
    "p95_slowdown",
    "p99_slowdown",
    "preemptions",
    "gpu_utilization",
    "fragmentation",
    "avg_queue_length",
    "max_queue_length",
    "blocking_index",
    "worst_ftf",
    "unfair_share",
    "jain_index",
    "events",
    "rounds",
    "wall_ms",
    "avg_ftf",
    "p95_ftf",
];

/// Returns one row per run: its directory, then its figures.
fn comparison_csv(records: &[RunRecord], names: &[String]) -> Vec<u8> {
    let header: Vec<&str> = std::iter::once("directory").chain(COMPARISON).collect();
    let rows = records.iter().zip(names).map(|(record, name)| {
        let values = serde_json::to_value(&record.summary).unwrap_or_default();
        let cell = |key: &str| match values.pointer(&format!("/{}", key.replace('.', "/"))) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        std::iter::once(name.clone())
            .chain(COMPARISON.map(cell))
            .collect::<Vec<_>>()
    });
    table(&header, rows)
}

/// Returns unique names that every file system accepts.
fn directory_names(labels: &[String]) -> Vec<String> {
    let mut taken = BTreeSet::from(["figures".to_owned()]);
    let safe = |label: &String| {
        let keep = |c: char| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        };
        let name: String = label.chars().map(keep).take(60).collect();
        let parts: Vec<&str> = name.split('_').filter(|part| !part.is_empty()).collect();
        let name = parts.join("_");
        let name = if name.is_empty() { "run".to_owned() } else { name };
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        let free = std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !taken.contains(name))
            .unwrap_or(name);
        taken.insert(free.clone());
        free
    };
    labels.iter().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_has_every_plain_value_of_a_summary() {
        let values = serde_json::to_value(dovetail_model::run::Summary::default()).unwrap();
        for key in values
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "cluster" && *key != "tenants")
        {
            assert!(COMPARISON.contains(&key.as_str()), "{key}");
        }
    }

    #[test]
    fn directory_names_are_safe_and_differ() {
        let labels = ["fifo", "FIFO", "../../etc", "las, seed 2", "", "ünï", "figures"].map(str::to_owned);
        assert_eq!(
            directory_names(&labels),
            ["fifo", "fifo_2", "etc", "las_seed_2", "run", "n", "figures_2"]
        );
    }
}
