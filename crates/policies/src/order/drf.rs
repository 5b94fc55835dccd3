//! Dominant resource fairness: the next job is one of the tenant whose largest share of any resource is smallest. Key: the
//! dominant share of its tenant without the job.
//!
//! Before every decision the order simulates progressive filling: the tenant with the smallest dominant share takes its
//! next job, in order of submission. A job that asks for more GPUs than the filling has left at that point gets none and
//! adds nothing to its tenant's share, and so does a job that admission holds. A job's key is the share its tenant had when
//! the filling reached it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use dovetail_engine::job::Stage;
use dovetail_engine::{Cluster, ClusterLoad, Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::{JobKey, Time};

use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "drf",
    what: "dominant resource fairness: jobs of the tenant with the smallest share of its most used resource first",
    source: "DRF (NSDI'11), progressive filling",
    key: "dominant share of the tenant's jobs before this one: the largest share of all GPUs, CPU or memory",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[Knob {
        name: "by",
        default: "tenant",
        what: "whose share counts: tenant or user",
    }],
    build: |knobs| {
        let by_user = match knobs.text("by") {
            "tenant" => false,
            "user" => true,
            _ => return Err(knobs.invalid("by", "tenant or user")),
        };
        Ok(Box::new(Drf {
            by_user,
            shares: BTreeMap::new(),
            name: knobs.name(),
        }))
    },
};

/// Smallest dominant share first.
#[derive(Debug, Clone)]
struct Drf {
    by_user: bool,
    /// The dominant share at which the filling reaches each job, in millionths; computed before every decision.
    shares: BTreeMap<JobKey, i128>,
    name: String,
}

impl Part for Drf {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn hints(&self) -> NeedSet {
        Need::CpuCurve.into()
    }
}

impl QueueOrder for Drf {
    fn key(&self, job: &Job, _now: Time) -> QueueKey {
        match self.shares.get(&job.spec.id) {
            Some(share) => QueueKey::fixed(*share),
            None => QueueKey::fixed(i128::from(job.spec.submit.0)).in_band(1),
        }
    }

    fn key_under_load(&self, job: &Job, _load: &ClusterLoad, now: Time) -> QueueKey {
        self.key(job, now)
    }

    fn depends_on_all_jobs(&self) -> bool {
        true
    }

    fn observe(&mut self, jobs: &mut dyn Iterator<Item = &Job>, cluster: &Cluster, _now: Time) {
        let mut owners: BTreeMap<u32, Owner<'_>> = BTreeMap::new();
        let mut jobs: Vec<&Job> = jobs.filter(|job| job.stage != Stage::Held).collect();
        jobs.sort_by_key(|job| (job.spec.place, job.spec.id));
        for job in jobs {
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
    /// Simulates the filling and records the share at which each job is reached.
    fn fill(&mut self, mut owners: Vec<Owner<'_>>, capacity: [u64; 3]) {
        let mut left = capacity[0];
        let turn = |i: usize, owner: &Owner<'_>| {
            let next = owner.jobs.front()?;
            Some(Reverse((
                owner.share(capacity),
                (next.spec.place, next.spec.id),
                i,
            )))
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

/// A tenant or user during the filling.
#[derive(Default)]
struct Owner<'a> {
    /// GPUs, CPU and memory of its jobs so far.
    used: [u64; 3],
    /// Jobs that the filling has not reached, in order of submission.
    jobs: VecDeque<&'a Job>,
}

impl Owner<'_> {
    /// The largest share of any resource, in millionths.
    fn share(&self, capacity: [u64; 3]) -> i128 {
        let parts = self.used.iter().zip(capacity);
        let part =
            |(used, capacity): (&u64, u64)| i128::from(*used) * 1_000_000 / i128::from(capacity).max(1);
        parts.map(part).max().unwrap_or(0)
    }

    fn take(&mut self, job: &Job) {
        for (used, asked) in self.used.iter_mut().zip(super::demand(job)) {
            *used += asked;
        }
    }
}
