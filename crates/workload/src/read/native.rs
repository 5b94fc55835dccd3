//! Reads the native format: CSV with a header, or JSON lines with the same keys.
//!
//! Required are `submit_s`, `duration_s` (alone, at full speed, on the requested GPUs) and `gpus`. Times are seconds and
//! may be fractional; `deadline_s` is on the same clock as `submit_s`. All other columns may be missing or empty, and
//! unknown columns are kept as text. Unlike in foreign traces, a job that cannot run is an error.

use std::borrow::Cow;
use std::fmt;
use std::io::BufRead;
use std::num::NonZeroU64;
use std::sync::Arc;

use dovetail_model::{Scaling, SpeedTable};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Input;
use super::builder::{Builder, Clock};
use super::cell::{Cell, MAX_GPUS};
use super::table::Table;
use crate::decimal::Decimal;
use crate::error::{MissingColumn, Place, TraceError};
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

/// Required columns.
pub(crate) const REQUIRED: [&str; 3] = ["submit_s", "duration_s", "gpus"];

/// Known columns, the required ones first. `name` and `iteration_s` are kept as text as well.
pub(crate) const KNOWN: [&str; 22] = [
    "submit_s",
    "duration_s",
    "gpus",
    "job_id",
    "tenant",
    "user",
    "priority",
    "model",
    "gpu_type",
    "iterations",
    "cpus_per_gpu",
    "memory_gb_per_gpu",
    "min_gpus",
    "max_gpus",
    "deadline_s",
    "checkpoint_s",
    "gpu_milli",
    "parallel_share",
    "iteration_s",
    "gpu_memory_mib",
    "scaling",
    "expected_s",
];

/// Columns kept as text that are part of the format and need no note.
const KEPT_QUIETLY: [&str; 2] = ["name", "iteration_s"];

/// The values of one job, by position in [`KNOWN`].
type Values<'a> = [Option<Cow<'a, str>>; KNOWN.len()];

pub(super) fn read(input: Input<'_>, head: &[u8]) -> Result<Workload, TraceError> {
    let json = head
        .iter()
        .find(|b| !b.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(b))
        == Some(&b'{');
    let mut builder = Builder::new(&input);
    if json {
        read_jsonl(input, &mut builder)?
    } else {
        read_csv(input, &mut builder)?
    }
    let unknown = builder
        .extra_columns()
        .iter()
        .filter(|c| !KEPT_QUIETLY.contains(&c.as_str()));
    let unknown: Vec<String> = unknown.cloned().collect();
    if !unknown.is_empty() {
        builder.note(format!("kept unknown columns: {}", unknown.join(", ")));
    }
    builder.finish(Clock::Exact)
}

fn read_csv(input: Input<'_>, builder: &mut Builder) -> Result<(), TraceError> {
    let mut table = Table::with_header(input)?;
    table.require(Format::Native.name(), REQUIRED)?;
    let known = KNOWN.map(|name| table.column(name));
    let kept: Vec<usize> = (0..table.header().len())
        .filter(|i| !known.contains(&Some(*i)) || KEPT_QUIETLY.contains(&table.header()[*i].as_str()))
        .collect();
    for column in &kept {
        builder.extra_column(&table.header()[*column]);
    }
    while let Some(row) = table.next_row()? {
        let values: Values<'_> = known.map(|c| row.optional(c).map(|cell| Cow::Borrowed(cell.text)));
        let first = row.cell(0);
        let mut job = job(builder, first.file, first.place, &values)?;
        if !kept.is_empty() {
            job.extra = Some(kept.iter().map(|c| row.cell(*c).text.into()).collect());
        }
        builder.push(job);
    }
    Ok(())
}

fn read_jsonl(mut input: Input<'_>, builder: &mut Builder) -> Result<(), TraceError> {
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if input
            .reader
            .read_until(b'\n', &mut bytes)
            .map_err(|e| super::broken(&input.file, input.compressed, e))?
            == 0
        {
            break;
        }
        let place = Place::Line(line);
        let text = std::str::from_utf8(&bytes).map_err(|_| TraceError::NotUtf8 {
            file: input.file.clone(),
            place,
        })?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if !text.is_empty() {
            let job = json_job(builder, &input.file, place, text)?;
            builder.push(job);
        }
    }
    Ok(())
}

fn json_job(builder: &mut Builder, file: &str, place: Place, text: &str) -> Result<TraceJob, TraceError> {
    let fail = |e: serde_json::Error| TraceError::Json {
        file: file.to_owned(),
        place,
        reason: in_one_line(&e),
        expected: "one object per line, such as {\"submit_s\": 0, \"duration_s\": 60, \"gpus\": 1}",
    };
    let Entries(entries) = serde_json::from_str(text).map_err(fail)?;
    let mut values: Values<'_> = Default::default();
    let mut extra: Vec<Box<str>> = Vec::new();
    for (i, (key, raw)) in entries.iter().enumerate() {
        if entries[..i].iter().any(|(earlier, _)| earlier == key) {
            return Err(TraceError::DuplicateColumn {
                file: file.to_owned(),
                place,
                column: key.to_string(),
            });
        }
        let raw = raw.get();
        let value = match raw.as_bytes().first() {
            Some(b'"') => Cow::Owned(serde_json::from_str::<String>(raw).map_err(fail)?),
            _ if raw == "null" => continue,
            _ => Cow::Borrowed(raw),
        };
        let known = KNOWN.iter().position(|name| name == key);
        if known.is_none() || KEPT_QUIETLY.contains(&key.as_ref()) {
            let column = builder.extra_column(key);
            extra.resize(extra.len().max(column + 1), Box::default());
            extra[column] = value.as_ref().into();
        }
        if let Some(known) = known.filter(|_| !value.trim().is_empty()) {
            values[known] = Some(value);
        }
    }
    let is_present = |name: &&str| entries.iter().any(|(key, _)| key == name);
    if let Some(missing) = REQUIRED.iter().find(|name| !is_present(name)) {
        return Err(TraceError::MissingColumn(Box::new(MissingColumn {
            file: file.to_owned(),
            place,
            format: Format::NativeJsonl.name(),
            missing: (*missing).to_owned(),
            found: entries.iter().map(|(key, _)| key.to_string()).collect(),
            required: REQUIRED.map(str::to_owned).to_vec(),
        })));
    }
    let mut job = job(builder, file, place, &values)?;
    job.extra = (!extra.is_empty()).then(|| extra.into_boxed_slice());
    Ok(job)
}

/// Returns the message of a JSON error in a text of one line, without the line number.
fn in_one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// Returns a job from the values of a row, without its kept columns.
fn job(builder: &mut Builder, file: &str, place: Place, values: &Values<'_>) -> Result<TraceJob, TraceError> {
    let cell = |i: usize| Cell {
        file,
        place,
        field: KNOWN[i],
        text: values[i].as_deref().unwrap_or_default(),
    };
    let optional = |i: usize| values[i].is_some().then(|| cell(i));
    let text = |i: usize| values[i].as_deref().unwrap_or_default();

    let label = match text(3) {
        "" => JobLabel::Number(builder.rows()),
        id => JobLabel::from_text(id),
    };
    let work = cell(1)
        .work()?
        .ok_or_else(|| cell(1).bad("a run time of more than 0 seconds"))?;
    let gpus = cell(2).whole(1, MAX_GPUS)? as u32;
    let mut job = TraceJob::new(label, cell(0).seconds()?, work, gpus);
    job.tenant = builder.tenant(text(4));
    job.user = builder.user(text(5));
    job.model = builder.model(text(7));
    job.gpu_type = builder.gpu_type(text(8));
    if let Some(cell) = optional(6) {
        let whole = Decimal::parse(cell.text)
            .and_then(Decimal::whole)
            .and_then(|n| i32::try_from(n).ok());
        job.priority = whole.ok_or_else(|| cell.bad("a whole number; larger is more urgent"))?;
    }
    if let Some(cell) = optional(10) {
        job.cpu_milli_per_gpu = cell.scaled(3, u32::MAX.into(), "a number of CPUs of at least 0")? as u32;
    }
    if let Some(cell) = optional(11) {
        job.memory_mib_per_gpu = cell.gib_as_mib()?;
    }
    job.min_gpus = optional(12).map_or(Ok(u64::from(gpus)), |c| c.whole(1, gpus.into()))? as u32;
    job.max_gpus = optional(13).map_or(Ok(u64::from(gpus)), |c| c.whole(gpus.into(), MAX_GPUS))? as u32;
    job.deadline = optional(14).map(|c| c.seconds()).transpose()?;
    if let Some(cell) = optional(15) {
        let every = cell.seconds()?;
        job.checkpoint = Some(every)
            .filter(|t| t.0 > 0)
            .ok_or_else(|| cell.bad("more than 0 seconds"))
            .map(Some)?;
    }
    if let Some(cell) = optional(16) {
        job.gpu_milli = cell.whole(1, 1000)? as u32;
    }
    if let Some(cell) = optional(17) {
        let parallel_ppm = cell.scaled(6, 1_000_000, "a share from 0 to 1")? as u32;
        job.scaling = Scaling::Amdahl { parallel_ppm };
    }
    if let Some(cell) = optional(19) {
        job.gpu_memory_mib = cell.whole(0, 1 << 40)?;
    }
    if let Some(cell) = optional(21) {
        let stated = u64::try_from(cell.seconds()?.0).ok().and_then(NonZeroU64::new);
        job.expected_us = Some(stated.ok_or_else(|| cell.bad("more than 0 seconds"))?);
    }
    if let Some(cell) = optional(20) {
        job.scaling = Scaling::Measured(speeds(&cell)?);
    }
    job.iterations = iterations(&job, optional(9), optional(18))?;
    Ok(job)
}

/// Reads measured speeds such as `1:1 2:1.9 4:3.4`.
fn speeds(cell: &Cell<'_>) -> Result<Arc<SpeedTable>, TraceError> {
    let expected = "GPUs and speeds such as 1:1 2:1.9 4:3.4";
    let mut points = Vec::new();
    for point in cell.text.split_whitespace() {
        let read = || {
            let (gpus, speed) = point.split_once(':')?;
            let speed = Decimal::parse(speed)?.to_f64() * 1e6;
            Some((gpus.parse().ok()?, speed.round() as u64))
        };
        points.push(read().ok_or_else(|| cell.bad(expected))?);
    }
    let table = SpeedTable::new(points).map_err(|e| cell.bad(format!("{expected}: {e}")))?;
    Ok(Arc::new(table))
}

/// Returns the iterations as given, or computed from the run time and the time of each.
fn iterations(
    job: &TraceJob,
    count: Option<Cell<'_>>,
    each: Option<Cell<'_>>,
) -> Result<Option<u64>, TraceError> {
    if let Some(each) = each {
        let seconds = each.number()?;
        if !seconds.is_positive() {
            return Err(each.bad("more than 0 seconds"));
        }
        if count.is_none() {
            return Ok(Some(
                (job.work.as_secs_f64() / seconds.to_f64()).round().max(1.0) as u64
            ));
        }
    }
    count.map(|c| c.whole(1, u64::MAX)).transpose()
}

/// The entries of a JSON object in their order, with values as text.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    entries.push((key, value));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// A key, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
