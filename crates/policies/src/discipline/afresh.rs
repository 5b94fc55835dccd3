//! The discipline of Muri's simulator: at every decision the cluster is emptied and filled again in order, passing over
//! jobs that do not fit. Jobs move at no cost, and ties keep the order of the previous decision.

use std::collections::BTreeMap;

use dovetail_engine::{Claim, Discipline, Feature, LoadError, Part, Round};
use dovetail_model::JobKey;
use serde_json::Value;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "afresh",
    what: "as in Muri's simulator: empty the cluster and fill it again in order, at every decision",
    source: "Muri (SIGCOMM'22), simulator",
    key: "first fit with skip on an empty cluster; ties keep the order of the previous decision",
    companions: &[],
    knobs: &[
        Knob {
            name: "widest",
            default: "false",
            what: "true: the chosen groups are placed widest first, which also breaks ties of the next decision",
        },
        Knob {
            name: "sift",
            default: "false",
            what: "true: groups that do not fit in order are dropped before the widest are placed",
        },
    ],
    build: |knobs| {
        Ok(Box::new(Afresh {
            widest: knobs.get("widest", "true or false")?,
            sift: knobs.get("sift", "true or false")?,
            queue: Vec::new(),
            name: knobs.name(),
        }))
    },
};

/// Fills an emptied cluster.
#[derive(Debug, Clone)]
struct Afresh {
    widest: bool,
    sift: bool,
    /// All jobs, in the order of the last decision.
    queue: Vec<JobKey>,
    name: String,
}

impl Part for Afresh {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::JointPlanning]
    }

    fn save(&self) -> Value {
        super::save_jobs(&self.queue)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.queue =
            super::load_jobs(saved).ok_or_else(|| LoadError::new(&*self.name, "expected a list of jobs"))?;
        Ok(())
    }
}

impl Discipline for Afresh {
    fn walk(&mut self, round: &mut Round<'_>) {
        self.sort(round);
        round.planner().release_all();
        let mut claims = round.planner().group(&self.queue);
        if self.sift {
            let here = round.checkpoint();
            claims.retain(|claim| try_place(claim, round));
            round.rollback(here);
        }
        if self.widest {
            let places: BTreeMap<JobKey, usize> = self.queue.iter().copied().zip(0..).collect();
            let first = |claim: &Claim| claim.members.iter().map(|m| places[m]).min();
            claims.sort_by_key(|claim| (std::cmp::Reverse(claim.gpus), first(claim)));
            self.queue
                .sort_by_key(|id| std::cmp::Reverse(round.job(*id).spec.gpus));
        }
        for claim in &claims {
            try_place(claim, round);
        }
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

/// Places the claim if there is room for it. Returns whether there was.
fn try_place(claim: &Claim, round: &mut Round<'_>) -> bool {
    round.cluster().free_gpus(None) >= claim.gpus && round.planner().place_claim(claim).is_ok()
}

impl Afresh {
    /// Removes jobs that have ended, appends new ones, and sorts by key; ties keep their order.
    fn sort(&mut self, round: &Round<'_>) {
        let ranks: BTreeMap<JobKey, (i32, i128)> = round
            .all_jobs()
            .into_iter()
            .map(|r| (r.job, (r.band, r.value)))
            .collect();
        super::update_list(&mut self.queue, ranks.keys().copied());
        self.queue.sort_by_key(|id| ranks[id]);
    }
}
