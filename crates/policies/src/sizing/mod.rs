//! How wide a job runs, and how much CPU and memory it gets.

mod elastic;
mod greedy;
pub mod opt;
mod optimus;
mod proportional;
mod rigid;
mod share;
mod tune;

use dovetail_engine::Sizing;

pub use elastic::Elastic;
pub use greedy::Greedy;
pub use opt::Opt;
pub use optimus::Optimus;
pub use proportional::Proportional;
pub use rigid::Rigid;
pub use tune::Tune;

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Sizing>] = &[
    rigid::ENTRY,
    elastic::ENTRY,
    optimus::ENTRY,
    proportional::ENTRY,
    greedy::ENTRY,
    tune::ENTRY,
    opt::ENTRY,
];
