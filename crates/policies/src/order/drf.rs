//! Dominant resource fairness: the tenant whose largest share of any resource is least is next. Key: the dominant share
//! its tenant has without the job.
//!
//! Progressive filling is played through before every decision: the tenant with the least dominant share is next with the
//! first of its jobs that has not had its turn, in the order they came. A job that asks for more GPUs than the filling has
//! left by then gets none and counts for nobody; neither does one that admission holds. The share with which each job is
//! reached is its place in line.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use dovetail_engine::job::Stage;
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
        let mut owners: BTreeMap<u32, Owner<'_>> = BTreeMap::new();
        for job in jobs.filter(|job| job.stage != Stage::Held) {
            let owner = match self.by_user {
                true => job.spec.user.0,
                false => job.spec.tenant.0,
            };
            owners.entry(owner).or_default().jobs.push_back(job);
        }
        self.shares.clear();
        self.fill(owners.into_values().collect(), super::totals(cluster));
    }
}

impl Drf {
    /// Plays the filling through and writes down with which share each job is reached.
    fn fill(&mut self, mut owners: Vec<Owner<'_>>, has: [u64; 3]) {
        let mut left = has[0];
        let turn = |i: usize, owner: &Owner<'_>| {
            let next = owner.jobs.front()?;
            Some(Reverse((owner.share(has), next.spec.id, i)))
        };
        let mut turns: BinaryHeap<_> = owners
            .iter()
            .enumerate()
            .filter_map(|(i, o)| turn(i, o))
            .collect();
        while let Some(Reverse((share, _, i))) = turns.pop() {
            let owner = &mut owners[i];
            let Some(job) = owner.jobs.pop_front() else {
                continue;
            };
            self.shares.insert(job.spec.id, share);
            if u64::from(job.spec.gpus) <= left {
                left -= u64::from(job.spec.gpus);
                owner.take(job);
            }
            turns.extend(turn(i, owner));
        }
    }
}

/// A tenant or user in the filling.
#[derive(Default)]
struct Owner<'a> {
    /// What its jobs have so far.
    used: [u64; 3],
    /// Those that have not had their turn, in the order they came.
    jobs: VecDeque<&'a Job>,
}

impl Owner<'_> {
    /// The largest part of any resource, in millionths.
    fn share(&self, has: [u64; 3]) -> i128 {
        let parts = self.used.iter().zip(has);
        let part = |(used, has): (&u64, u64)| i128::from(*used) * 1_000_000 / i128::from(has).max(1);
        parts.map(part).max().unwrap_or(0)
    }

    fn take(&mut self, job: &Job) {
        for (used, asked) in self.used.iter_mut().zip(super::demand(job)) {
            *used += asked;
        }
    }
}
