//! Reads the Philly trace as reduced for Pollux: submission dates, durations, GPUs, and the virtual cluster as tenant.

use super::Input;
use super::builder::{Builder, Clock};
use super::table::Table;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let file = input.file.clone();
    let mut table = Table::with_header(input)?;
    if table.column("application").is_some() && table.column("duration").is_none() {
        let problem = "this is a Pollux or Sia workload (name, time, application, num_replicas, batch_size), which has no \
                    run times; expected a column duration with seconds at full speed on num_gpus GPUs";
        return Err(TraceError::Unsupported {
            file,
            problem: problem.to_owned(),
        });
    }
    let [submit, duration, gpus] =
        table.require(Format::Pollux.name(), ["timestamp", "duration", "num_gpus"])?;
    let [tenant, id] = ["cluster", "job_id"].map(|c| table.column(c));
    while let Some(row) = table.next_row()? {
        let (submit, work) = (row.cell(submit).date()?, row.cell(duration).work()?);
        let Some((gpus, work)) = builder.sized(row.cell(gpus).gpus()?, work) else {
            continue;
        };
        let label = row.optional(id).map_or(JobLabel::Number(builder.rows()), |c| {
            JobLabel::from_text(c.text.trim())
        });
        let mut job = TraceJob::new(label, submit, work, gpus);
        job.tenant = builder.tenant(row.text(tenant).trim());
        builder.push(job);
    }
    builder.finish(Clock::Dates)
}
