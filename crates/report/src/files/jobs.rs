//! `jobs.csv`: the outcome of each job.

use std::path::Path;

use dovetail_model::JobKey;
use dovetail_model::Time;
use dovetail_model::run::{JobRow, RunRecord};

use super::csv_in::{Row, Table};
use super::csv_out::table;
use crate::error::ReportError;
use crate::format::exact_seconds;

/// The columns, in the order that scripts rely on; new ones are appended.
const COLUMNS: [&str; 14] = [
    "job_id",
    "tenant",
    "gpus",
    "submit_s",
    "first_start_s",
    "finish_s",
    "jct_s",
    "wait_s",
    "preemptions",
    "slowdown",
    "held_s",
    "duration_s",
    "job_position",
    "rho",
];

/// Returns the bytes of `jobs.csv`.
pub(crate) fn jobs_csv(record: &RunRecord) -> Vec<u8> {
    let text = |texts: &[String], i: usize| texts.get(i).cloned();
    let optional = |time: Option<Time>| time.map(exact_seconds).unwrap_or_default();
    let rows = record.rows.iter().enumerate().map(|(i, row)| {
        [
            text(&record.job_names, i).unwrap_or_else(|| row.job.to_string()),
            text(&record.tenant_names, i).unwrap_or_default(),
            row.gpus.to_string(),
            exact_seconds(row.submit),
            optional(row.first_start),
            optional(row.finish),
            optional(jct(row)),
            optional(jct(row).map(|jct| Time(jct.0.saturating_sub(row.held.0).max(0)))),
            row.preemptions.to_string(),
            jct(row).map(|jct| slowdown(jct, row)).unwrap_or_default(),
            exact_seconds(row.held),
            exact_seconds(Time(i64::try_from(row.work.0).unwrap_or(i64::MAX))),
            row.job.to_string(),
            row.rho.map(|rho| rho.to_string()).unwrap_or_default(),
        ]
    });
    table(&COLUMNS, rows)
}

fn jct(row: &JobRow) -> Option<Time> {
    row.finish
        .map(|finish| Time(finish.0.saturating_sub(row.submit.0)))
}

fn slowdown(jct: Time, row: &JobRow) -> String {
    let shown = format!("{:.6}", jct.0 as f64 / (row.work.0 as f64).max(1.0));
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Rows, with the names of jobs and tenants.
pub(crate) type Jobs = (Vec<JobRow>, Vec<String>, Vec<String>);

/// Parses `jobs.csv`. Derived columns are ignored, and columns beyond the contract may be missing.
pub(crate) fn parse_jobs(path: &Path, bytes: &[u8]) -> Result<Jobs, ReportError> {
    let required = [
        "job_id",
        "tenant",
        "gpus",
        "submit_s",
        "first_start_s",
        "finish_s",
        "preemptions",
    ];
    let table = Table::parse(path, bytes, &required)?;
    let mut jobs = Jobs::default();
    for (i, row) in table.rows().enumerate() {
        jobs.0.push(parse_row(&row, i)?);
        jobs.1.push(row.text("job_id")?.to_owned());
        jobs.2.push(row.text("tenant")?.to_owned());
    }
    Ok(jobs)
}

fn parse_row(row: &Row<'_>, index: usize) -> Result<JobRow, ReportError> {
    let position = if row.has("job_position") {
        row.whole("job_position")?
    } else {
        index as u32
    };
    let parsed = JobRow {
        job: JobKey(position),
        gpus: row.whole("gpus")?,
        submit: row.time("submit_s")?,
        first_start: row.optional_time("first_start_s")?,
        finish: row.optional_time("finish_s")?,
        preemptions: row.whole("preemptions")?,
        rho: row.optional_number("rho")?,
        held: Time::ZERO,
        work: dovetail_model::Work(0),
    };
    let held = match (row.has("held_s"), parsed.finish) {
        (true, _) => row.time("held_s")?,
        (false, Some(finish)) if row.has("wait_s") => {
            (finish - parsed.submit).since(row.optional_time("wait_s")?.unwrap_or(Time::ZERO))
        }
        (false, Some(finish)) => finish - parsed.submit,
        (false, None) => Time::ZERO,
    };
    let work = if row.has("duration_s") {
        row.work("duration_s")?
    } else {
        dovetail_model::Work(held.0.max(0) as u64)
    };
    Ok(JobRow { held, work, ..parsed })
}
