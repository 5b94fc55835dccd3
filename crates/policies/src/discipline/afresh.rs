//! The walk of Muri's simulator: at every decision the cluster is emptied and filled again in order, passing over what
//! does not fit, wherever the placement puts it. Jobs move for free, and ties keep the order of the decision before.

use std::collections::BTreeMap;

use dovetail_engine::{Claim, Discipline, Knowledge, Part, Round};
use dovetail_model::JobId;
use serde_json::Value;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "afresh",
    what: "as in Muri's simulator: empty the cluster and fill it again in order, at every decision",
    source: "Muri (SIGCOMM'22), simulator",
    key: "first fit with skip on an empty cluster; ties keep the order of the decision before",
    knowledge: Knowledge::None,
    knobs: &[
        Knob {
            name: "widest",
            default: "false",
            what: "true: what was chosen is placed widest first, and ties of the next decision go by that order",
        },
        Knob {
            name: "sift",
            default: "false",
            what: "true: groups that would find no place in order are dropped before the widest are placed",
        },
    ],
    build: |knobs| {
        Ok(Box::new(Afresh {
            widest: knobs.get("widest", "true or false")?,
            sift: knobs.get("sift", "true or false")?,
            line: Vec::new(),
            name: knobs.name(),
        }))
    },
};

/// Filling an emptied cluster.
#[derive(Debug, Clone)]
pub struct Afresh {
    widest: bool,
    sift: bool,
    /// Everyone in line, in the order of the last decision.
    line: Vec<JobId>,
    name: String,
}

impl Part for Afresh {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn save(&self) -> Value {
        super::save_jobs(&self.line)
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        self.line = super::load_jobs(saved).ok_or_else(|| format!("{}: not a list of jobs", self.name))?;
        Ok(())
    }
}

impl Discipline for Afresh {
    fn walk(&mut self, round: &mut Round<'_>) {
        self.sort(round);
        round.clear();
        let mut claims = round.claims(&self.line);
        if self.sift {
            let here = round.checkpoint();
            claims.retain(|claim| fits(claim, round));
            round.rollback(here);
        }
        if self.widest {
            let places: BTreeMap<JobId, usize> = self.line.iter().copied().zip(0..).collect();
            let first = |claim: &Claim| claim.members.iter().map(|m| places[m]).min();
            claims.sort_by_key(|claim| (std::cmp::Reverse(claim.gpus), first(claim)));
            self.line
                .sort_by_key(|id| std::cmp::Reverse(round.job(*id).spec.gpus));
        }
        for claim in &claims {
            fits(claim, round);
        }
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

/// Puts the claim where there is a place for it, and tells whether there was one.
fn fits(claim: &Claim, round: &mut Round<'_>) -> bool {
    round.cluster().free_gpus(None) >= claim.gpus && round.put(claim).is_ok()
}

impl Afresh {
    /// Brings the line up to date: who is gone leaves, who is new comes last, then by key; ties stay as they were.
    fn sort(&mut self, round: &Round<'_>) {
        let ranks: BTreeMap<JobId, (i32, i128)> = round
            .everyone()
            .into_iter()
            .map(|r| (r.job, (r.band, r.value)))
            .collect();
        super::keep_in_step(&mut self.line, ranks.keys().copied());
        self.line.sort_by_key(|id| ranks[id]);
    }
}
