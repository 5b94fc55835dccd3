//! Reads a workload of Blox. A job is a number of iterations, possibly fractional, and the seconds of each.

use super::Input;
use super::builder::{Builder, Clock};
use super::table::Table;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let mut table = Table::with_header(input)?;
    let required = ["arrival_s", "total_iterations", "iteration_time_s", "gpus"];
    let [submit, iterations, each, gpus] = table.require(Format::Blox.name(), required)?;
    let id = table.column("order").or_else(|| table.column("job_id"));
    while let Some(row) = table.next_row()? {
        let count = row.cell(iterations);
        let total = count.number()?;
        let seconds = total
            .times(row.cell(each).number()?)
            .ok_or_else(|| count.bad("fewer iterations"))?;
        let work = count.work_of(seconds)?;
        let submit = row.cell(submit).seconds()?;
        let Some((gpus, work)) = builder.sized(row.cell(gpus).gpus()?, work) else {
            continue;
        };
        let label = row.optional(id).map_or(JobLabel::Number(builder.rows()), |c| {
            JobLabel::from_text(c.text.trim())
        });
        let mut job = TraceJob::new(label, submit, work, gpus);
        job.iterations = Some(total.rounded().clamp(1, u64::MAX.into()) as u64);
        builder.push(job);
    }
    builder.finish(Clock::Relative)
}
