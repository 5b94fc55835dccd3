//! Reads Muri's CSV. Times are in milliseconds; a job is a number of iterations and the milliseconds of each.
//!
//! The `duration` column is kept as text but is not the run time: if it differs from iterations times their length,
//! there is a note. The stages of an iteration (`resource_time_*`) and the batch size are kept as text too. Muri's
//! priority 0 is guaranteed and 1 opportunistic; here larger is more urgent, so the sign is inverted.

use dovetail_model::Work;

use super::Input;
use super::builder::{Builder, Clock};
use super::table::Table;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let mut table = Table::with_header(input)?;
    let required = ["num_gpu", "submit_time", "iterations", "iteration_time"];
    let [gpus, submit, iterations, each] = table.require(Format::Muri.name(), required)?;
    let [id, model, priority, duration] =
        ["job_id", "model_name", "priority", "duration"].map(|c| table.column(c));
    let kept: Vec<usize> = (0..table.header().len())
        .filter(|i| {
            let name = &table.header()[*i];
            name == "batch_size" || name == "duration" || name.starts_with("resource_time")
        })
        .collect();
    for column in &kept {
        builder.extra_column(&table.header()[*column]);
    }

    let mut different = 0u64;
    while let Some(row) = table.next_row()? {
        let count = row.cell(iterations);
        let millis = count
            .number()?
            .times(row.cell(each).number()?)
            .ok_or_else(|| count.bad("fewer iterations"))?;
        let work = count.work_of(millis.thousandth())?;
        let submit = row.cell(submit).millis()?;
        let Some((gpus, work)) = builder.sized(row.cell(gpus).gpus()?, work) else {
            continue;
        };
        let label = row.optional(id).map_or(JobLabel::Number(builder.rows()), |c| {
            JobLabel::from_text(c.text.trim())
        });
        let mut job = TraceJob::new(label, submit, work, gpus);
        job.iterations = Some(count.number()?.rounded().clamp(1, u64::MAX.into()) as u64);
        job.model = builder.model(row.text(model).trim());
        if let Some(cell) = row.optional(priority) {
            job.priority = -(cell.whole(0, 1000)? as i32);
        }
        if let Some(cell) = row.optional(duration) {
            different += u64::from(differs(work, cell.number()?.thousandth().work()));
        }
        if !kept.is_empty() {
            job.extra = Some(kept.iter().map(|c| row.cell(*c).text.into()).collect());
        }
        builder.push(job);
    }
    if different > 0 {
        builder.note(format!(
            "the duration column is not used; in {different} jobs it differs by more than 1 % from iterations times iteration_time"
        ));
    }
    builder.finish(Clock::Relative)
}

/// Whether two run times differ by more than a hundredth and more than a second.
fn differs(work: Work, duration: Option<Work>) -> bool {
    let Some(duration) = duration else { return true };
    let difference = work.0.abs_diff(duration.0);
    difference > duration.0 / 100 && difference > 1_000_000
}
