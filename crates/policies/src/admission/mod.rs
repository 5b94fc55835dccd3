//! Which jobs are admitted to the queue.

mod accept_all;
mod caps;
mod feasible;
mod load;

use dovetail_engine::Admission;

use crate::registry::Entry;

/// All admissions.
pub const ALL: &[Entry<dyn Admission>] = &[feasible::ENTRY, accept_all::ENTRY, load::ENTRY, caps::ENTRY];
