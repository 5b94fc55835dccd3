//! Which jobs share GPUs.

mod free_by_node;
mod muri;
mod muri_sim;
mod pair;
mod sharing_knobs;

use dovetail_engine::{Claim, Feature, Grouping, Job, Part};
use dovetail_model::{SharingTerms, Time};

pub use muri_sim::MuriSim;

use crate::registry::Entry;

/// All groupings.
pub const ALL: &[Entry<dyn Grouping>] = &[ALONE, muri::ENTRY, pair::ENTRY, muri_sim::ENTRY];

const ALONE: Entry<dyn Grouping> = Entry {
    name: "none",
    what: "no job shares its GPUs",
    source: "rule",
    key: "one job, one claim",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Alone)),
};

/// No sharing.
#[derive(Debug, Clone)]
struct Alone;

impl Part for Alone {
    fn name(&self) -> String {
        "none".to_owned()
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::ExclusiveGpus, Feature::WholeGroups]
    }
}

impl Grouping for Alone {
    fn group(&mut self, queue: &[(&Job, u32)], _gpus: u32, _now: Time) -> Vec<Claim> {
        alone(queue)
    }

    fn terms(&self) -> SharingTerms {
        SharingTerms::EXCLUSIVE
    }
}

/// Makes a claim of its own for every job.
fn alone(queue: &[(&Job, u32)]) -> Vec<Claim> {
    let claim = |(job, gpus): &(&Job, u32)| Claim {
        members: vec![job.spec.id],
        gpus: *gpus,
    };
    queue.iter().map(claim).collect()
}
