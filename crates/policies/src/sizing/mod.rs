//! How wide a job runs.

mod elastic;
mod optimus;
mod rigid;

use dovetail_engine::Sizing;

pub use elastic::Elastic;
pub use optimus::Optimus;
pub use rigid::Rigid;

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Sizing>] = &[rigid::ENTRY, elastic::ENTRY, optimus::ENTRY];
