//! Who shares GPUs.

mod muri;
mod muri_sim;
mod pair;
mod sharing_knobs;
mod shelves;

use dovetail_engine::{Claim, Grouping, Job, Knowledge, Part};
use dovetail_model::{Terms, Time};

pub use muri::Muri;
pub use muri_sim::MuriSim;
pub use pair::Pair;

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Grouping>] = &[ALONE, muri::ENTRY, pair::ENTRY, muri_sim::ENTRY];

const ALONE: Entry<dyn Grouping> = Entry {
    name: "none",
    what: "every job has its GPUs to itself",
    source: "rule",
    key: "one job, one claim",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Alone)),
};

/// No sharing.
#[derive(Debug, Clone)]
pub struct Alone;

impl Part for Alone {
    fn name(&self) -> String {
        "none".to_owned()
    }
}

impl Grouping for Alone {
    fn group(&mut self, line: &[(&Job, u32)], _gpus: u32, _now: Time) -> Vec<Claim> {
        alone(line)
    }

    fn terms(&self) -> Terms {
        Terms::ALONE
    }
}

/// Every job a claim of its own.
fn alone(line: &[(&Job, u32)]) -> Vec<Claim> {
    let claim = |(job, gpus): &(&Job, u32)| Claim {
        members: vec![job.spec.id],
        gpus: *gpus,
    };
    line.iter().map(claim).collect()
}
