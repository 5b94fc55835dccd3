//! Reads Synergy's replay files: id, model, arrival in seconds, iterations and GPUs, without a header. Also its per-job
//! results, which have a header and the time of an iteration.
//!
//! A replay file does not have the time of an iteration: that is a property of the model at its fair share of CPU and
//! memory. The ideal demands of the results are kept as text, since a job also runs with less, but slower.

use super::Input;
use super::builder::{Builder, Clock};
use super::table::Table;
use crate::decimal::Decimal;
use crate::error::TraceError;
use crate::format::Format;
use crate::job::{JobLabel, TraceJob, Workload};

/// Seconds of one iteration at the fair share of 3 CPUs and 62.5 GB per GPU, from Synergy's profiles.
/// The time does not depend on the number of GPUs.
pub(crate) const MODELS: [(&str, &str); 12] = [
    ("alexnet", "0.6"),
    ("bert", "0.011"),
    ("deepspeech", "0.757"),
    ("gnmt", "0.12"),
    ("lstm", "0.011"),
    ("m5", "0.6"),
    ("mobilenet", "0.71"),
    ("res18", "0.64"),
    ("res50", "0.78"),
    ("shufflenet", "0.615"),
    ("transformer", "0.67"),
    ("vae", "0.011"),
];

const COLUMNS: [&str; 5] = ["job_id", "model", "arrival_s", "total_iters", "gpu_demand"];
const KEPT: [&str; 3] = ["speedup_ideal", "cpu_demand", "mem_demand_gb"];

/// Returns the seconds of one iteration of a model known to Synergy.
pub(crate) fn iteration_time(model: &str) -> Option<Decimal> {
    let (_, seconds) = MODELS.iter().find(|(name, _)| *name == model)?;
    Decimal::parse(seconds)
}

pub(super) fn read(input: Input<'_>, head: &[u8]) -> Result<Workload, TraceError> {
    let mut builder = Builder::new(&input);
    // The third field of a replay file is a time, that of a header a name.
    let third = head
        .split(|b| *b == b'\n')
        .next()
        .and_then(|line| line.split(|b| *b == b',').nth(2));
    let headed = third
        .and_then(|f| std::str::from_utf8(f).ok())
        .is_some_and(|f| Decimal::parse(f).is_none());
    let mut table = if headed {
        Table::with_header(input)?
    } else {
        Table::without_header(input, b',', &COLUMNS)
    };
    let [id, model, submit, iterations, gpus] = table.require(Format::Synergy.name(), COLUMNS)?;
    let each = table.column("iter_time_s");
    let kept: Vec<usize> = KEPT.iter().filter_map(|name| table.column(name)).collect();
    for column in &kept {
        builder.extra_column(&table.header()[*column]);
    }
    while let Some(row) = table.next_row()? {
        let (count, name) = (row.cell(iterations), row.cell(model).text.trim());
        let seconds = match row.optional(each) {
            Some(cell) => cell.number()?,
            None => iteration_time(name).ok_or_else(|| row.cell(model).bad(known_models()))?,
        };
        let seconds = count
            .number()?
            .times(seconds)
            .ok_or_else(|| count.bad("fewer iterations"))?;
        let (submit, work) = (row.cell(submit).seconds()?, count.work_of(seconds)?);
        let Some((gpus, work)) = builder.sized(row.cell(gpus).gpus()?, work) else {
            continue;
        };
        let mut job = TraceJob::new(JobLabel::from_text(row.cell(id).text.trim()), submit, work, gpus);
        job.model = builder.model(name);
        job.iterations = Some(count.number()?.rounded().clamp(1, u64::MAX.into()) as u64);
        if !kept.is_empty() {
            job.extra = Some(kept.iter().map(|c| row.cell(*c).text.into()).collect());
        }
        builder.push(job);
    }
    builder.finish(Clock::Relative)
}

fn known_models() -> String {
    format!(
        "a model with a known iteration time: {}",
        MODELS.map(|(name, _)| name).join(", ")
    )
}
