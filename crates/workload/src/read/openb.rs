//! Reads Alibaba's openb 2023 pod lists. A pod is a job: created, perhaps scheduled, deleted.
//!
//! The run time is from scheduling to deletion, or from creation if the pod was never scheduled. CPU and memory are
//! divided among the pod's GPUs. A pod that accepts several GPU types accepts any here; the list is kept in `gpu_spec`.

use super::Input;
use super::builder::{Builder, Clock};
use super::cell::Cell;
use super::table::Table;
use crate::decimal::Decimal;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

pub(super) fn read(input: Input<'_>) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    let mut table = Table::with_header(input)?;
    let required = ["name", "num_gpu", "gpu_milli", "creation_time", "deletion_time"];
    let [name, gpus, gpu_milli, created, deleted] = table.require(Format::Openb.name(), required)?;
    let optional = ["scheduled_time", "cpu_milli", "memory_mib", "gpu_spec", "qos"];
    let [scheduled, cpu, memory, spec, qos] = optional.map(|c| table.column(c));
    builder.extra_column("gpu_spec");
    builder.extra_column("qos");

    let (mut never_scheduled, mut several_types) = (0u64, 0u64);
    while let Some(row) = table.next_row()? {
        let (submit, end) = (row.cell(created).seconds()?, row.cell(deleted).seconds()?);
        let start = row.optional(scheduled).map(|c| c.seconds()).transpose()?;
        let work = (end > start.unwrap_or(submit)).then(|| end.since(start.unwrap_or(submit)));
        let work = work.map(|w| dovetail_model::Work(w.0 as u64));
        let Some((gpus, work)) = builder.sized(row.cell(gpus).gpus()?, work) else {
            continue;
        };
        never_scheduled += u64::from(start.is_none());

        let mut job = TraceJob::new(
            JobLabel::from_text(row.cell(name).text.trim()),
            submit,
            work,
            gpus,
        );
        if gpus == 1 {
            job.gpu_milli = row.cell(gpu_milli).whole(1, 1000)? as u32;
        }
        job.cpu_milli_per_gpu = share(row.optional(cpu), gpus, u32::MAX.into())? as u32;
        job.memory_mib_per_gpu = share(row.optional(memory), gpus, 1 << 40)?;
        let types = row.text(spec).trim();
        if types.contains('|') {
            several_types += 1;
        } else {
            job.gpu_type = builder.gpu_type(types);
        }
        job.extra = Some([types, row.text(qos).trim()].map(Box::from).into());
        builder.push(job);
    }
    if never_scheduled > 0 {
        builder.note(format!(
            "{never_scheduled} pods were never scheduled; they run from creation to deletion"
        ));
    }
    if several_types > 0 {
        builder.note(format!(
            "{several_types} pods accept several GPU types; here they accept any (see column gpu_spec)"
        ));
    }
    builder.finish(Clock::Relative)
}

/// Returns the amount per GPU, rounded up; zero if the amount is missing.
fn share(cell: Option<Cell<'_>>, gpus: u32, most: u64) -> Result<u64, TraceError> {
    let Some(cell) = cell else { return Ok(0) };
    let amount = Decimal::parse(cell.text)
        .filter(|a| !a.is_negative())
        .map(Decimal::rounded);
    let amount = amount.and_then(|a| u64::try_from(a).ok()).filter(|a| *a <= most);
    amount
        .map(|a| a.div_ceil(gpus.into()))
        .ok_or_else(|| cell.bad(format!("a number from 0 to {most}")))
}
