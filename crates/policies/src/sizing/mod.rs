//! How many GPUs, and how much CPU and memory a job gets.

mod elastic;
mod greedy;
pub mod opt;
mod optimus;
mod proportional;
mod resizing;
mod rigid;
mod share;
mod tune;

use dovetail_engine::Sizing;

use crate::registry::Entry;

/// All sizings.
pub const ALL: &[Entry<dyn Sizing>] = &[
    rigid::ENTRY,
    elastic::ENTRY,
    optimus::ENTRY,
    proportional::ENTRY,
    greedy::ENTRY,
    tune::ENTRY,
    opt::ENTRY,
];
