//! What happens when the next job does not fit: it is passed over, blocks the queue, or preempts others.

mod afresh;
mod antman_muri;
pub mod auction;
mod backfill;
mod blox;
mod dlas;
mod easy;
mod preempt;
mod replan;
mod share;
mod strict;
mod synergy;

use dovetail_engine::Discipline;
use dovetail_model::JobKey;
use serde_json::Value;

pub use synergy::{Synergy, SynergyMode};

use crate::registry::Entry;

/// All disciplines.
pub const ALL: &[Entry<dyn Discipline>] = &[
    strict::ENTRY,
    backfill::ENTRY,
    easy::ENTRY,
    preempt::ENTRY,
    replan::ENTRY,
    share::ENTRY,
    auction::ENTRY,
    blox::ENTRY,
    afresh::ENTRY,
    dlas::ENTRY,
    antman_muri::ENTRY,
];

/// Returns a list of jobs as saved in a snapshot.
fn save_jobs(jobs: &[JobKey]) -> Value {
    jobs.iter().map(|job| Value::from(job.0)).collect()
}

/// Reads what [`save_jobs`] wrote; `None` if the value is something else. `null` is an empty list.
fn load_jobs(saved: &Value) -> Option<Vec<JobKey>> {
    let number = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok()).map(JobKey);
    match saved {
        Value::Null => Some(Vec::new()),
        other => other.as_array()?.iter().map(number).collect(),
    }
}

/// Removes jobs that have ended from the list and appends new ones. `present` is sorted.
fn update_list(list: &mut Vec<JobKey>, present: impl Iterator<Item = JobKey>) {
    let present: Vec<JobKey> = present.collect();
    list.retain(|job| present.binary_search(job).is_ok());
    let mut known = list.clone();
    known.sort_unstable();
    list.extend(
        present
            .into_iter()
            .filter(|job| known.binary_search(job).is_err()),
    );
}
