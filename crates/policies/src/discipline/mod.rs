//! How the line is walked: what happens when the next job does not fit.

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
use dovetail_model::JobId;
use serde_json::Value;

pub use afresh::Afresh;
pub use antman_muri::AntManMuri;
pub use auction::Auction;
pub use backfill::Backfill;
pub use blox::Blox;
pub use dlas::Dlas;
pub use easy::Easy;
pub use preempt::Preempt;
pub use replan::Replan;
pub use share::Share;
pub use strict::Strict;
pub use synergy::{Synergy, SynergyMode};

use crate::registry::Entry;

/// All of them.
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

/// A list of jobs for a snapshot.
fn save_jobs(jobs: &[JobId]) -> Value {
    jobs.iter().map(|job| Value::from(job.0)).collect()
}

/// What [`save_jobs`] gave; none if it is something else. A part that was never saved had nobody in its list.
fn load_jobs(saved: &Value) -> Option<Vec<JobId>> {
    let number = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok()).map(JobId);
    match saved {
        Value::Null => Some(Vec::new()),
        other => other.as_array()?.iter().map(number).collect(),
    }
}

/// Drops from the list who is no longer there and adds who is new at its end. `present` comes in rising order.
fn keep_in_step(list: &mut Vec<JobId>, present: impl Iterator<Item = JobId>) {
    let present: Vec<JobId> = present.collect();
    list.retain(|job| present.binary_search(job).is_ok());
    let mut known = list.clone();
    known.sort_unstable();
    list.extend(
        present
            .into_iter()
            .filter(|job| known.binary_search(job).is_err()),
    );
}
