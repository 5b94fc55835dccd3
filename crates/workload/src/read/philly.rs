//! Microsoft's Philly log: a JSON array of jobs, each with the attempts to run it.
//!
//! The run time of a job is the sum of its attempts that have a start and a later end; its GPUs are those of the last
//! attempt that had any. A job that never ran, or never had a GPU, is skipped. The array is read element by element.

use std::fmt;

use dovetail_model::Time;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

use super::builder::{Builder, Clock};
use super::cell::{Cell, MAX_GPUS};
use super::{Input, broken, json_place};
use crate::error::{Place, TraceError};
use crate::job::{JobLabel, TraceJob, Workload};

const EXPECTED: &str = "an array of jobs with jobid, vc, user, submitted_time and attempts[] of start_time, end_time, detail[] of gpus[]";

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let Input {
        file,
        compressed,
        reader,
        ..
    } = input;
    let mut failure = None;
    let mut json = serde_json::Deserializer::from_reader(reader);
    let jobs = Jobs {
        file: &file,
        builder: &mut builder,
        failure: &mut failure,
    };
    let result = jobs.deserialize(&mut json).and_then(|()| json.end());
    match (failure, result) {
        (Some(failure), _) => Err(failure),
        (None, Err(e)) if e.is_io() => Err(broken(&file, compressed, e.into())),
        (None, Err(e)) => {
            let place = json_place(&e);
            Err(TraceError::Json {
                file,
                place,
                reason: e.to_string(),
                expected: EXPECTED,
            })
        }
        (None, Ok(())) => builder.finish(Clock::Dates),
    }
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    jobid: Text,
    #[serde(default)]
    vc: Text,
    #[serde(default)]
    user: Text,
    submitted_time: Text,
    attempts: Vec<Attempt>,
}

#[derive(Deserialize)]
struct Attempt {
    #[serde(default)]
    start_time: Text,
    #[serde(default)]
    end_time: Text,
    #[serde(default)]
    detail: Vec<Machine>,
}

#[derive(Deserialize)]
struct Machine {
    #[serde(default)]
    gpus: Vec<IgnoredAny>,
}

/// A string; empty for `null` and the word `None`, which mean unknown in the log.
#[derive(Deserialize, Default)]
#[serde(from = "Option<String>")]
struct Text(String);

impl From<Option<String>> for Text {
    fn from(text: Option<String>) -> Self {
        Self(text.filter(|t| t != "None").unwrap_or_default())
    }
}

/// Reads the array, one job at a time, into the builder.
struct Jobs<'b> {
    file: &'b str,
    builder: &'b mut Builder,
    failure: &'b mut Option<TraceError>,
}

impl<'de> DeserializeSeed<'de> for Jobs<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Jobs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut jobs: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(job) = jobs
            .next_element::<Job>()
            .map_err(|e| A::Error::custom(format!("job {index}: {e}")))?
        {
            if let Err(failure) = add_job(self.builder, self.file, index, &job) {
                *self.failure = Some(failure);
                return Err(A::Error::custom("stopped"));
            }
            index += 1;
        }
        Ok(())
    }
}

fn add_job(builder: &mut Builder, file: &str, index: u64, job: &Job) -> Result<(), TraceError> {
    let cell = |field, text| Cell {
        file,
        place: Place::Element(index),
        field,
        text,
    };
    let submit = cell("submitted_time", job.submitted_time.0.as_str()).date()?;
    let mut seconds = Time::ZERO;
    for attempt in &job.attempts {
        let start = optional_date(cell("start_time", &attempt.start_time.0))?;
        let end = optional_date(cell("end_time", &attempt.end_time.0))?;
        if let (Some(start), Some(end)) = (start, end) {
            seconds = seconds.saturating_add(end.since(start));
        }
    }
    let asked = job
        .attempts
        .iter()
        .rev()
        .map(|a| a.detail.iter().map(|m| m.gpus.len() as u64).sum::<u64>());
    let Some(gpus) = asked.into_iter().find(|g| *g > 0) else {
        builder.skip("never had a GPU");
        return Ok(());
    };
    if seconds.0 <= 0 {
        builder.skip("no attempt with a start and a later end");
        return Ok(());
    }
    if gpus > MAX_GPUS {
        return Err(cell("gpus", &gpus.to_string()).bad(format!("at most {MAX_GPUS} GPUs")));
    }
    let work = dovetail_model::Work(seconds.0 as u64);
    let label = match job.jobid.0.as_str() {
        "" => JobLabel::Number(index),
        id => JobLabel::from_text(id),
    };
    let mut trace_job = TraceJob::new(label, submit, work, gpus as u32);
    trace_job.tenant = builder.tenant(&job.vc.0);
    trace_job.user = builder.user(&job.user.0);
    builder.push(trace_job);
    Ok(())
}

/// Parses a date; `None` if it is unknown.
fn optional_date(cell: Cell<'_>) -> Result<Option<Time>, TraceError> {
    if cell.text.is_empty() {
        Ok(None)
    } else {
        cell.date().map(Some)
    }
}
