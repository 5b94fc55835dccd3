//! Reads Tiresias' CSV, with times in seconds, and Chronus', which adds users, deadlines and best-effort jobs.
//!
//! Chronus states a deadline as seconds after submission; of several with decreasing value, the last is the deadline.
//! Best-effort jobs have none and a priority of -1.

use super::Input;
use super::builder::{Builder, Clock};
use super::cell::Cell;
use super::table::Table;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let mut table = Table::with_header(input)?;
    let [gpus, submit, duration] =
        table.require(Format::Tiresias.name(), ["num_gpu", "submit_time", "duration"])?;
    let optional = [
        "job_id",
        "model_name",
        "iterations",
        "user",
        "expect_time_list",
        "best_effort",
    ];
    let [id, model, iterations, user, expected, best_effort] = optional.map(|c| table.column(c));
    while let Some(row) = table.next_row()? {
        let (submit, work) = (row.cell(submit).seconds()?, row.cell(duration).work()?);
        let Some((gpus, work)) = builder.sized(row.cell(gpus).gpus()?, work) else {
            continue;
        };
        let label = row.optional(id).map_or(JobLabel::Number(builder.rows()), |c| {
            JobLabel::from_text(c.text.trim())
        });
        let mut job = TraceJob::new(label, submit, work, gpus);
        job.model = builder.model(row.text(model).trim());
        job.user = builder.user(row.text(user).trim());
        job.iterations = row
            .optional(iterations)
            .map(|c| c.whole(0, u64::MAX))
            .transpose()?
            .filter(|n| *n > 0);
        if row.optional(best_effort).is_some_and(|c| c.text.trim() == "1") {
            job.priority = -1;
        } else if let Some(cell) = row.optional(expected) {
            let last = cell.text.rsplit('-').next().unwrap_or_default();
            job.deadline = Some(submit + Cell { text: last, ..cell }.seconds()?);
        }
        builder.push(job);
    }
    builder.finish(Clock::Relative)
}
