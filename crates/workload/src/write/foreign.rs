//! Writes the formats of other systems, with the columns that their readers require.

use std::io::Write;

use dovetail_model::{Time, Work};

use super::WriteError;
use super::loss::{jobs_text, losses};
use crate::date::date_text;
use crate::decimal::seconds_text;
use crate::format::Format;
use crate::job::{TraceJob, Workload};
use crate::read::synergy_iteration_time;

/// The date of time zero in written traces.
const FIRST_DATE: Time = Time::from_secs(946_684_800);
/// The model written for jobs whose model is unknown to Synergy: short iterations that a lack of CPU does not slow down.
const SYNERGY_STAND_IN: &str = "lstm";

pub(super) fn write(
    workload: &Workload,
    format: Format,
    out: &mut impl Write,
) -> Result<Vec<String>, WriteError> {
    let mut csv = csv::Writer::from_writer(out);
    let lost = match format {
        Format::Muri => muri(workload, &mut csv)?,
        Format::Synergy => synergy(workload, &mut csv)?,
        Format::Blox => blox(workload, &mut csv)?,
        Format::Pollux => pollux(workload, &mut csv)?,
        Format::Tiresias => tiresias(workload, &mut csv)?,
        Format::Helios => plain(
            workload,
            &mut csv,
            ["job_id", "arrival_s", "service_sec", "gpu_count"],
        )?,
        _ => plain(
            workload,
            &mut csv,
            ["job_id", "submission_time", "duration", "num_gpu"],
        )?,
    };
    csv.flush()?;
    Ok(lost)
}

type Csv<W> = csv::Writer<W>;
type Losses = Result<Vec<String>, WriteError>;

/// Four columns: id, submission, run time, GPUs.
fn plain<W: Write>(workload: &Workload, csv: &mut Csv<W>, header: [&str; 4]) -> Losses {
    csv.write_record(header)?;
    for job in &workload.jobs {
        csv.write_record([
            job.label.to_string(),
            seconds(job.submit),
            run_time(job.work),
            job.gpus.to_string(),
        ])?;
    }
    Ok(losses(workload, &[]))
}

fn tiresias<W: Write>(workload: &Workload, csv: &mut Csv<W>) -> Losses {
    csv.write_record([
        "job_id",
        "num_gpu",
        "submit_time",
        "iterations",
        "model_name",
        "duration",
        "interval",
    ])?;
    for (job, interval) in with_intervals(workload) {
        csv.write_record([
            job.label.to_string(),
            job.gpus.to_string(),
            seconds(job.submit),
            job.iterations.map_or(String::new(), |n| n.to_string()),
            model(workload, job).to_owned(),
            run_time(job.work),
            seconds(interval),
        ])?;
    }
    Ok(losses(workload, &["iterations", "model"]))
}

fn blox<W: Write>(workload: &Workload, csv: &mut Csv<W>) -> Losses {
    csv.write_record([
        "order",
        "arrival_s",
        "total_iterations",
        "iteration_time_s",
        "gpus",
    ])?;
    for job in &workload.jobs {
        let (iterations, each) = match whole_iterations(job) {
            Some(n) => (n.to_string(), part_of(job.work, n, 6)),
            None => (run_time(job.work), "1".to_owned()),
        };
        csv.write_record([
            job.label.to_string(),
            seconds(job.submit),
            iterations,
            each,
            job.gpus.to_string(),
        ])?;
    }
    Ok(losses(workload, &["iterations"]))
}

/// Muri requires whole iterations: if they are unknown, of a second each if that is exact, else a single one.
fn muri<W: Write>(workload: &Workload, csv: &mut Csv<W>) -> Losses {
    let mut header = vec![
        "job_id",
        "num_gpu",
        "submit_time",
        "iterations",
        "model_name",
        "batch_size",
        "duration",
    ];
    header.extend(["interval", "iteration_time"]);
    let stages: Vec<usize> = (0..workload.extra_columns.len())
        .filter(|i| workload.extra_columns[*i].starts_with("resource_time"))
        .collect();
    header.extend(stages.iter().map(|i| workload.extra_columns[*i].as_str()));
    header.push("priority");
    csv.write_record(&header)?;
    let batch_size = workload.extra_column("batch_size");
    for (job, interval) in with_intervals(workload) {
        let whole_seconds = job
            .work
            .0
            .is_multiple_of(1_000_000)
            .then_some(job.work.0 / 1_000_000);
        let iterations = whole_iterations(job).or(whole_seconds).unwrap_or(1);
        let mut row = vec![
            job.label.to_string(),
            job.gpus.to_string(),
            millis(job.submit.0),
            iterations.to_string(),
            model(workload, job).to_owned(),
            batch_size
                .and_then(|c| job.extra_text(c))
                .unwrap_or("1")
                .to_owned(),
            millis(i64::try_from(job.work.0).unwrap_or(i64::MAX)),
            millis(interval.0),
            part_of(job.work, iterations, 3),
        ];
        row.extend(
            stages
                .iter()
                .map(|i| job.extra_text(*i).unwrap_or("0").to_owned()),
        );
        row.push((-i64::from(job.priority)).clamp(0, 1).to_string());
        csv.write_record(&row)?;
    }
    let mut kept = vec!["iterations", "model", "priority", "batch_size"];
    kept.extend(stages.iter().map(|i| workload.extra_columns[*i].as_str()));
    let mut lost = losses(workload, &kept);
    let other = workload
        .jobs
        .iter()
        .filter(|j| !(-1..=0).contains(&j.priority))
        .count();
    if other > 0 {
        lost.push(format!(
            "priority of {} (Muri has only 0 and -1)",
            jobs_text(other)
        ));
    }
    Ok(lost)
}

/// Synergy's replay file: whole iterations of a known model.
fn synergy<W: Write>(workload: &Workload, csv: &mut Csv<W>) -> Losses {
    let (mut unknown, mut rounded) = (0, 0);
    for job in &workload.jobs {
        let name = model(workload, job);
        let known = synergy_iteration_time(name).map(|each| (name, each));
        unknown += usize::from(known.is_none());
        let stand_in = || synergy_iteration_time(SYNERGY_STAND_IN).map(|each| (SYNERGY_STAND_IN, each));
        let Some((name, each)) = known.or_else(stand_in) else {
            continue;
        };
        let each_us = each.scaled_to(6, false).max(1) as u64;
        let iterations = ((job.work.0 + each_us / 2) / each_us).max(1);
        rounded += usize::from(iterations * each_us != job.work.0);
        let (id, gpus) = (job.label.to_string(), job.gpus.to_string());
        csv.write_record([
            id,
            name.to_owned(),
            seconds(job.submit),
            iterations.to_string(),
            gpus,
        ])?;
    }
    let mut lost = losses(workload, &["model", "iterations"]);
    if unknown > 0 {
        lost.push(format!(
            "model of {} (unknown to Synergy; written as {SYNERGY_STAND_IN})",
            jobs_text(unknown)
        ));
    }
    if rounded > 0 {
        lost.push(format!(
            "less than one iteration of the run time of {}",
            jobs_text(rounded)
        ));
    }
    Ok(lost)
}

fn pollux<W: Write>(workload: &Workload, csv: &mut Csv<W>) -> Losses {
    csv.write_record(["timestamp", "duration", "num_gpus", "gpu_time", "cluster"])?;
    for job in &workload.jobs {
        let gpu_time = Work(job.work.0.saturating_mul(job.gpus.into()));
        let tenant = workload.names.tenants.get(job.tenant).map_or("", String::as_str);
        csv.write_record([
            date_text(FIRST_DATE.saturating_add(job.submit)),
            run_time(job.work),
            job.gpus.to_string(),
            run_time(gpu_time),
            tenant.to_owned(),
        ])?;
    }
    let mut lost = losses(workload, &["tenant"]);
    lost.push("job ids".to_owned());
    if workload.jobs.first().is_some_and(|j| j.submit != Time::ZERO) {
        lost.push("the time before the first job (dates begin with it)".to_owned());
    }
    Ok(lost)
}

fn with_intervals(workload: &Workload) -> impl Iterator<Item = (&TraceJob, Time)> {
    let mut last = workload.jobs.first().map_or(Time::ZERO, |j| j.submit);
    workload.jobs.iter().map(move |job| {
        let interval = job.submit.since(last);
        last = job.submit;
        (job, interval)
    })
}

fn model<'w>(workload: &'w Workload, job: &TraceJob) -> &'w str {
    job.model
        .and_then(|m| workload.names.models.get(m))
        .map_or("", String::as_str)
}

fn seconds(time: Time) -> String {
    seconds_text(time.0)
}

fn run_time(work: Work) -> String {
    seconds_text(i64::try_from(work.0).unwrap_or(i64::MAX))
}

fn millis(micros: i64) -> String {
    seconds_text(micros.saturating_mul(1000))
}

/// Returns the iterations if they are known and each is long enough to be represented.
fn whole_iterations(job: &TraceJob) -> Option<u64> {
    job.iterations
        .filter(|n| (1..=100_000_000_000).contains(n) && *n <= job.work.0.saturating_mul(1000))
}

/// Returns `work / parts` in units of `10^digits` microseconds, with enough digits that the product with `parts`, rounded up
/// to a microsecond, equals `work`.
fn part_of(work: Work, parts: u64, digits: u32) -> String {
    let unit = u128::from(parts.max(1)) * 10u128.pow(digits);
    let whole = u128::from(work.0) / unit;
    let room = 18 - whole.checked_ilog10().map_or(0, |log| log + 1);
    let rest = (u128::from(work.0) % unit) * 10u128.pow(room.min(18)) / unit;
    let text = format!("{whole}.{rest:0width$}", width = room as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
