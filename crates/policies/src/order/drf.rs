//! Dominant resource fairness: the tenant whose largest share of any resource is least is next. Key: the dominant share
//! its tenant has without the job.
//!
//! Progressive filling gives the next job to the tenant with the least dominant share, and adds what that job asks for.
//! Jobs of a tenant go in order of submission, so the share with which each is reached is that of its tenant's jobs
//! before it, all together: one sort by that share is the whole filling.

use std::collections::BTreeMap;

use dovetail_engine::{Cluster, Crowd, Job, Knowledge, Line, Order, Part};
use dovetail_model::{JobId, Time};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "drf",
    what: "dominant resource fairness: the tenant with the least share of what it uses most is next",
    source: "DRF (NSDI'11), progressive filling",
    key: "dominant share of the tenant's jobs before this one: the largest part of all GPUs, CPU or memory",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "by",
        default: "tenant",
        what: "whose share counts: that of the tenant or of the user",
    }],
    build: |knobs| {
        let by_user = match knobs.text("by") {
            "tenant" => false,
            "user" => true,
            _ => return Err(knobs.bad("by", "tenant or user")),
        };
        Ok(Box::new(Drf {
            by_user,
            shares: BTreeMap::new(),
            name: knobs.name(),
        }))
    },
};

/// Least dominant share first.
#[derive(Debug, Clone)]
pub struct Drf {
    by_user: bool,
    /// The dominant share each job is reached with, in millionths; made before every decision.
    shares: BTreeMap<JobId, i128>,
    name: String,
}

impl Part for Drf {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Order for Drf {
    fn line(&self, job: &Job, _now: Time) -> Line {
        match self.shares.get(&job.spec.id) {
            Some(share) => Line::fixed(*share),
            None => Line::fixed(i128::from(job.spec.submit.0)).in_band(1),
        }
    }

    fn line_among(&self, job: &Job, _crowd: &Crowd, now: Time) -> Line {
        self.line(job, now)
    }

    fn looks_at_crowd(&self) -> bool {
        true
    }

    fn see(&mut self, jobs: &mut dyn Iterator<Item = &Job>, cluster: &Cluster, _now: Time) {
        let has = super::totals(cluster);
        let mut used: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
        self.shares.clear();
        for job in jobs {
            let owner = if self.by_user {
                job.spec.user.0
            } else {
                job.spec.tenant.0
            };
            let used = used.entry(owner).or_default();
            let share = |(used, has): (&u64, &u64)| i128::from(*used) * 1_000_000 / i128::from(*has).max(1);
            let dominant = used.iter().zip(&has).map(share).max().unwrap_or(0);
            self.shares.insert(job.spec.id, dominant);
            for (used, asked) in used.iter_mut().zip(super::demand(job)) {
                *used += asked;
            }
        }
    }
}
