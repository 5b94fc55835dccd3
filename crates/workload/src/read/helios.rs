//! Reads SenseTime's Helios: the original columns (`gpu_num`, `submit_time`, `duration`, `user`, `vc`), or the four to which it
//! and Alibaba's PAI 2020 are often reduced (`job_id`, `arrival_s`, `service_sec`, `gpu_count`).

use super::Input;
use super::builder::{Builder, Clock};
use super::table::Table;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let mut table = Table::with_header(input)?;
    let original = table.column("gpu_num").is_some();
    let required = if original {
        ["submit_time", "duration", "gpu_num"]
    } else {
        ["arrival_s", "service_sec", "gpu_count"]
    };
    let [submit, duration, gpus] = table.require(Format::Helios.name(), required)?;
    let [id, user, tenant] = ["job_id", "user", "vc"].map(|c| table.column(c));
    while let Some(row) = table.next_row()? {
        let submit = if original {
            row.cell(submit).date()?
        } else {
            row.cell(submit).seconds()?
        };
        let work = row.cell(duration).work()?;
        let Some((gpus, work)) = builder.sized(row.cell(gpus).gpus()?, work) else {
            continue;
        };
        let label = row.optional(id).map_or(JobLabel::Number(builder.rows()), |c| {
            JobLabel::from_text(c.text.trim())
        });
        let mut job = TraceJob::new(label, submit, work, gpus);
        job.tenant = builder.tenant(row.text(tenant).trim());
        job.user = builder.user(row.text(user).trim());
        builder.push(job);
    }
    builder.finish(if original { Clock::Dates } else { Clock::Relative })
}
