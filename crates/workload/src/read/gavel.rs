//! Reads Gavel's tab-separated traces: job type, command, steps, GPUs and arrival, in 7 or 10 columns; Shockwave's 12 columns
//! add the run time. There is no header.
//!
//! Without a run time, it is the steps divided by the type's speed on as many V100s ([`super::gavel_steps`]).

use dovetail_model::Work;

use super::Input;
use super::builder::{Builder, Clock};
use super::cell::Cell;
use super::gavel_steps::{job_types, steps_per_second};
use super::table::{Row, Table};
use crate::decimal::{Decimal, MAX_SECONDS};
use crate::error::TraceError;
use crate::job::{JobLabel, TraceJob, Workload};

/// Positions of the values of a job, by the number of columns.
struct Columns {
    steps: usize,
    gpus: usize,
    arrival: usize,
    duration: Option<usize>,
}

impl Columns {
    fn of(row: &Row<'_>) -> Result<Self, TraceError> {
        match row.len() {
            7 => Ok(Self {
                steps: 4,
                gpus: 6,
                arrival: 5,
                duration: None,
            }),
            10 => Ok(Self {
                steps: 5,
                gpus: 6,
                arrival: 9,
                duration: None,
            }),
            12 => Ok(Self {
                steps: 5,
                gpus: 6,
                arrival: 11,
                duration: Some(10),
            }),
            _ => Err(row.wrong_length("7 or 10 separated by tabs (Gavel), or 12 (Shockwave)")),
        }
    }
}

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let mut table = Table::without_header(input, b'\t', &[]);
    let mut extrapolated = 0u64;
    while let Some(row) = table.next_row_of_any_length()? {
        let columns = Columns::of(&row)?;
        let cell = |column, field| Cell {
            field,
            ..row.cell(column)
        };
        let steps = cell(columns.steps, "total_steps");
        let gpus = cell(columns.gpus, "scale_factor").gpus()?;
        let submit = cell(columns.arrival, "arrival_time").seconds()?;
        let job_type = cell(0, "job_type");
        let work = match columns.duration {
            Some(duration) => cell(duration, "duration").work()?,
            None => {
                let (work, measured) = work_of_steps(steps, job_type, gpus.unwrap_or(1))?;
                extrapolated += u64::from(!measured);
                work
            }
        };
        let Some((gpus, work)) = builder.sized(gpus, work) else {
            continue;
        };
        let mut job = TraceJob::new(JobLabel::Number(builder.rows()), submit, work, gpus);
        job.model = builder.model(job_type.text.trim());
        job.iterations = steps
            .number()?
            .whole()
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| *n > 0);
        builder.push(job);
    }
    if extrapolated > 0 {
        builder.note(format!(
            "{extrapolated} jobs request more GPUs than their type was measured on; their speed is extrapolated in proportion"
        ));
    }
    builder.finish(Clock::Relative)
}

fn work_of_steps(steps: Cell<'_>, job_type: Cell<'_>, gpus: u32) -> Result<(Option<Work>, bool), TraceError> {
    let (speed, measured) = steps_per_second(job_type.text.trim(), gpus).ok_or_else(|| {
        let near = dovetail_model::suggest::nearest(job_type.text, job_types());
        let near = if near.is_empty() {
            job_types().step_by(5).collect()
        } else {
            near
        };
        job_type.bad(format!(
            "a job type whose speed is known, such as {}",
            near.join(", ")
        ))
    })?;
    let count = steps.number()?;
    if !count.is_positive() {
        return Ok((None, measured));
    }
    let seconds = Decimal::to_f64(count) / speed;
    if seconds > MAX_SECONDS as f64 {
        return Err(steps.bad(format!("a run time of at most {MAX_SECONDS} seconds")));
    }
    Ok((Some(Work::from_secs_f64(seconds)).filter(|w| w.0 > 0), measured))
}
