//! Reads traces of Microsoft ITP clusters as published with ElasticFlow: id, submission, duration and GPUs, times in seconds.

use super::Input;
use super::builder::{Builder, Clock};
use super::table::Table;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let mut table = Table::with_header(input)?;
    let [submit, duration, gpus] =
        table.require(Format::Itp.name(), ["submission_time", "duration", "num_gpu"])?;
    let [id, model] = ["job_id", "model_name"].map(|c| table.column(c));
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
        builder.push(job);
    }
    builder.finish(Clock::Relative)
}
