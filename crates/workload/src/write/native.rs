//! Writes the native formats. An optional column is written only if some job has a value in it.

use std::borrow::Cow;
use std::io::Write;

use dovetail_model::{Scaling, SpeedTable, TenantId, UserId};

use super::WriteError;
use crate::decimal::seconds_text;
use crate::job::{JobLabel, TraceJob, Workload};

/// A value of one column.
enum Value<'a> {
    /// No value: empty in CSV, omitted in JSON.
    None,
    /// A number.
    Number(String),
    /// A text.
    Text(Cow<'a, str>),
}

/// A column and its value for a job.
type Column = (&'static str, for<'a> fn(&'a Workload, &'a TraceJob) -> Value<'a>);

const ALWAYS: usize = 4;

const COLUMNS: [Column; 21] = [
    ("job_id", |_, job| match &job.label {
        JobLabel::Number(number) => Value::Number(number.to_string()),
        JobLabel::Text(text) => Value::Text(Cow::Borrowed(text)),
    }),
    ("submit_s", |_, job| Value::Number(seconds_text(job.submit.0))),
    ("duration_s", |_, job| {
        Value::Number(seconds_text(i64::try_from(job.work.0).unwrap_or(i64::MAX)))
    }),
    ("gpus", |_, job| Value::Number(job.gpus.to_string())),
    ("tenant", |w, job| {
        named(
            (job.tenant != TenantId(0))
                .then(|| w.names.tenants.get(job.tenant))
                .flatten(),
        )
    }),
    ("user", |w, job| {
        named(
            (job.user != UserId(0))
                .then(|| w.names.users.get(job.user))
                .flatten(),
        )
    }),
    ("priority", |_, job| number(job.priority, 0)),
    ("model", |w, job| {
        named(job.model.and_then(|m| w.names.models.get(m)))
    }),
    ("gpu_type", |w, job| {
        named(job.gpu_type.and_then(|t| w.names.gpu_types.get(t)))
    }),
    ("iterations", |_, job| {
        job.iterations
            .map_or(Value::None, |n| Value::Number(n.to_string()))
    }),
    ("cpus_per_gpu", |_, job| match job.cpu_milli_per_gpu {
        0 => Value::None,
        milli => Value::Number(seconds_text(i64::from(milli) * 1000)),
    }),
    ("memory_gb_per_gpu", |_, job| match job.memory_mib_per_gpu {
        0 => Value::None,
        mib => Value::Number(gib_text(mib)),
    }),
    ("gpu_memory_mib", |_, job| number(job.gpu_memory_mib, 0)),
    ("min_gpus", |_, job| number(job.min_gpus, job.gpus)),
    ("max_gpus", |_, job| number(job.max_gpus, job.gpus)),
    ("deadline_s", |_, job| {
        job.deadline
            .map_or(Value::None, |t| Value::Number(seconds_text(t.0)))
    }),
    ("expected_s", |_, job| {
        let micros = job.expected().and_then(|work| i64::try_from(work.0).ok());
        micros.map_or(Value::None, |us| Value::Number(seconds_text(us)))
    }),
    ("checkpoint_s", |_, job| {
        job.checkpoint
            .map_or(Value::None, |t| Value::Number(seconds_text(t.0)))
    }),
    ("gpu_milli", |_, job| number(job.gpu_milli, 1000)),
    ("parallel_share", |_, job| match &job.scaling {
        Scaling::Amdahl { parallel_ppm } => Value::Number(seconds_text(i64::from(*parallel_ppm))),
        Scaling::Linear | Scaling::Measured(_) => Value::None,
    }),
    ("scaling", |_, job| match &job.scaling {
        Scaling::Measured(table) => Value::Text(Cow::Owned(speeds_text(table))),
        Scaling::Linear | Scaling::Amdahl { .. } => Value::None,
    }),
];

/// Writes measured speeds as `1:1 2:1.9 4:3.4`.
fn speeds_text(table: &SpeedTable) -> String {
    let points = table.points().iter();
    let texts = points.map(|(gpus, speed)| {
        format!(
            "{gpus}:{}",
            seconds_text(i64::try_from(*speed).unwrap_or(i64::MAX))
        )
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn named(name: Option<&String>) -> Value<'_> {
    name.map_or(Value::None, |n| Value::Text(Cow::Borrowed(n)))
}

fn number<N: PartialEq + ToString>(value: N, default: N) -> Value<'static> {
    if value == default {
        Value::None
    } else {
        Value::Number(value.to_string())
    }
}

/// Converts MiB to GiB, exactly: a 1024th has ten decimals.
fn gib_text(mib: u64) -> String {
    let text = format!("{}.{:010}", mib / 1024, mib % 1024 * 9_765_625);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn used_columns(workload: &Workload) -> Vec<Column> {
    let has_values = |column: &Column| {
        workload
            .jobs
            .iter()
            .any(|job| !matches!((column.1)(workload, job), Value::None))
    };
    let optional = COLUMNS[ALWAYS..].iter().filter(|column| has_values(column));
    COLUMNS[..ALWAYS].iter().chain(optional).copied().collect()
}

pub(super) fn write_csv(workload: &Workload, out: &mut impl Write) -> Result<Vec<String>, WriteError> {
    let columns = used_columns(workload);
    let mut csv = csv::Writer::from_writer(out);
    let extra = workload.extra_columns.iter().map(String::as_str);
    csv.write_record(columns.iter().map(|(name, _)| *name).chain(extra))?;
    for job in &workload.jobs {
        for (_, value) in &columns {
            match value(workload, job) {
                Value::None => csv.write_field("")?,
                Value::Number(text) => csv.write_field(text)?,
                Value::Text(text) => csv.write_field(text.as_ref())?,
            }
        }
        for column in 0..workload.extra_columns.len() {
            csv.write_field(job.extra_text(column).unwrap_or_default())?;
        }
        csv.write_record(None::<&[u8]>)?;
    }
    csv.flush()?;
    Ok(Vec::new())
}

pub(super) fn write_jsonl(workload: &Workload, out: &mut impl Write) -> Result<Vec<String>, WriteError> {
    let keys: Vec<String> = workload
        .extra_columns
        .iter()
        .map(|name| json_text(name))
        .collect();
    let mut line = String::new();
    for job in &workload.jobs {
        line.clear();
        for (name, value) in &COLUMNS {
            let text = match value(workload, job) {
                Value::None => continue,
                Value::Number(text) => text,
                Value::Text(text) => json_text(&text),
            };
            line.push_str(&format!(
                "{}\"{name}\":{text}",
                if line.is_empty() { "{" } else { "," }
            ));
        }
        for (column, key) in keys.iter().enumerate() {
            if let Some(text) = job.extra_text(column) {
                let value = if is_plain_json(text) {
                    text.to_owned()
                } else {
                    json_text(text)
                };
                line.push_str(&format!(",{key}:{value}"));
            }
        }
        line.push_str("}\n");
        out.write_all(line.as_bytes())?;
    }
    Ok(Vec::new())
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether a text is a JSON number, boolean, list or object that is parsed back as the same text.
fn is_plain_json(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || "-{[tf".contains(c));
    let ends = text.ends_with(|c: char| c.is_ascii_digit() || "}]e".contains(c));
    begins
        && ends
        && !text.contains(['\n', '\r'])
        && serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
}
