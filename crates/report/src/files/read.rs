//! Reads records from directories.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dovetail_model::run::RunRecord;

use super::csv_in::Table;
use super::jobs::parse_jobs;
use super::summary::parse_summary;
use super::tables::{parse_nodes, parse_segments, parse_timeline};
use crate::error::ReportError;

/// Reads a directory that [`write_run`](crate::write_run) wrote. `summary.json` and `jobs.csv` are required; figures whose
/// files are missing stay empty.
pub fn read_run(dir: &Path) -> Result<RunRecord, ReportError> {
    let path = dir.join("summary.json");
    let summary = parse_summary(&path, &required(&path, "the summary of a run, a JSON object")?)?;
    let path = dir.join("jobs.csv");
    let (rows, job_names, tenant_names) =
        parse_jobs(&path, &required(&path, "one row per job of a run, as CSV")?)?;
    Ok(RunRecord {
        summary,
        rows,
        job_names,
        tenant_names,
        timeline: optional(&dir.join("timeline.csv"), parse_timeline)?,
        segments: optional(&dir.join("segments.csv"), parse_segments)?,
        node_slots: optional(&dir.join("nodes.csv"), parse_nodes)?,
        moments: Vec::new(),
    })
}

/// Reads one run, or all runs of a directory that [`write_comparison`](crate::write_comparison) wrote, in its order.
pub fn read_runs(dir: &Path) -> Result<Vec<RunRecord>, ReportError> {
    let table = dir.join("comparison.csv");
    if dir.join("summary.json").exists() || !table.exists() {
        return Ok(vec![read_run(dir)?]);
    }
    let bytes = fs::read(&table).map_err(ReportError::io("read", &table))?;
    let parsed = Table::parse(&table, &bytes, &["directory"])?;
    let mut records = vec![];
    for row in parsed.rows() {
        let name = row.text("directory")?;
        let inside = Path::new(name).components().collect::<Vec<_>>();
        if !matches!(inside[..], [std::path::Component::Normal(_)]) {
            return Err(row.invalid("directory", name, "the name of a directory next to this file"));
        }
        records.push(read_run(&dir.join(name))?);
    }
    Ok(records)
}

fn required(path: &Path, expected: &'static str) -> Result<Vec<u8>, ReportError> {
    fs::read(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => ReportError::Missing {
            path: path.to_owned(),
            expected,
        },
        _ => ReportError::Io {
            action: "read",
            path: PathBuf::from(path),
            source,
        },
    })
}

fn optional<T: Default>(
    path: &Path,
    parse: fn(&Path, &[u8]) -> Result<T, ReportError>,
) -> Result<T, ReportError> {
    match fs::read(path) {
        Ok(bytes) => parse(path, &bytes),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(T::default()),
        Err(source) => Err(ReportError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        }),
    }
}
