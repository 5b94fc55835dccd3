//! How the line is walked: what happens when the next job does not fit.

mod backfill;
mod blox;
mod easy;
mod preempt;
mod replan;
mod strict;

use dovetail_engine::Discipline;

pub use backfill::Backfill;
pub use blox::Blox;
pub use easy::Easy;
pub use preempt::Preempt;
pub use replan::Replan;
pub use strict::Strict;

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Discipline>] = &[
    strict::ENTRY,
    backfill::ENTRY,
    easy::ENTRY,
    preempt::ENTRY,
    replan::ENTRY,
    blox::ENTRY,
];
