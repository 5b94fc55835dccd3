//! Quota: so many GPUs are a tenant's own, whichever they are, and what is idle is lent.
//!
//! A job of priority 0 or more is *guaranteed*: it runs within what its tenant is guaranteed. A job of lower priority
//! *borrows*: it runs on whatever is idle, stands behind all guaranteed jobs and gives way to them. Who is thrown out
//! for whom follows the line, but no tenant ever takes from what another is guaranteed.

use std::collections::BTreeMap;

use dovetail_engine::{
    Ask, CheckError, Cluster, Feature, Job, JobClass, LoadError, Part, Placement, Tenancy, TenancyLedger,
    TenantAccounts,
};
use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, JobKey, JobSpec, Reason, TenantId};
use serde_json::Value;

use super::quota_shares::{EXPECTED, QuotaShare};
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Tenancy> = Entry {
    name: "quota",
    what: "each tenant is guaranteed so many GPUs; jobs of negative priority borrow what is idle and give way",
    source: "rule",
    key: "guaranteed jobs within the tenant's count, then borrowers",
    companions: &[],
    knobs: &[Knob {
        name: "TENANT",
        default: "0",
        what: "GPUs guaranteed to the tenant, and after a plus the most it may borrow: vision=8+4; TENANT `default` is \
               every other one; or the name of a YAML file",
    }],
    build: |knobs| Err(knobs.invalid("TENANT", EXPECTED)),
};

/// GPUs the jobs of one tenant hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    guaranteed: u32,
    borrowed: u32,
}

/// Guaranteed counts, and borrowing.
#[derive(Debug, Clone)]
pub struct Quota {
    name: String,
    shares: IdVec<TenantId, QuotaShare>,
    default: QuotaShare,
    held: IdVec<TenantId, Held>,
    /// Guaranteed jobs that only borrow, since their tenant was guaranteed more when they started.
    lent: BTreeMap<JobKey, Lent>,
    /// Until the first decision jobs are carried over from elsewhere.
    carrying: bool,
}

/// What a job holds that its tenant is not guaranteed any more.
#[derive(Debug, Clone, Copy)]
struct Lent {
    tenant: TenantId,
    gpus: u32,
    held: bool,
}

impl Quota {
    /// A quota with the share of each tenant, and that of tenants which are added later.
    pub(super) fn new(name: String, shares: IdVec<TenantId, QuotaShare>, default: QuotaShare) -> Self {
        Self {
            name,
            shares,
            default,
            held: IdVec::default(),
            lent: BTreeMap::new(),
            carrying: true,
        }
    }

    /// What jobs of this tenant and class may hold together, and what they hold.
    fn held_of(&self, job: &JobSpec) -> (u32, u32) {
        let share = self.shares.get(job.tenant).copied().unwrap_or(self.default);
        let held = self.held.get(job.tenant).copied().unwrap_or_default();
        match self.gives_way(job) {
            true => (share.borrowed, held.borrowed),
            false => (share.guaranteed, held.guaranteed),
        }
    }

    /// Whether there is room in the account for so many GPUs more.
    fn room(&self, job: &JobSpec, gpus: u32) -> Result<(), Reason> {
        let (most, held) = self.held_of(job);
        match held.checked_add(gpus).is_some_and(|sum| sum <= most) {
            true => Ok(()),
            false => Err(Reason::TenantQuota {
                tenant: job.tenant,
                borrows: borrows(job),
                asked: gpus,
                held,
                most,
            }),
        }
    }

    /// Whether the job gives way to guaranteed ones.
    fn gives_way(&self, job: &JobSpec) -> bool {
        borrows(job) || self.lent.get(&job.id).is_some_and(|lent| lent.held)
    }

    fn count(&mut self, job: &JobSpec) -> &mut u32 {
        let gives_way = self.gives_way(job);
        let held = self.held.entry(job.tenant);
        match gives_way {
            true => &mut held.borrowed,
            false => &mut held.guaranteed,
        }
    }
}

/// Whether the job only borrows.
fn borrows(job: &JobSpec) -> bool {
    job.priority < 0
}

impl Part for Quota {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn requires(&self) -> &'static [Feature] {
        &[Feature::TenancyLimits, Feature::ExclusiveGpus]
    }

    fn save(&self) -> Value {
        let held = self.lent.iter().filter(|(_, lent)| lent.held);
        let lent: Vec<JobKey> = held.map(|(job, _)| *job).collect();
        serde_json::to_value(lent).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        // Older ones had nothing to save.
        let lent: Option<Vec<JobKey>> =
            serde_json::from_value(saved.clone()).map_err(|e| LoadError::new(&*self.name, e))?;
        let mark = |job| {
            let (tenant, gpus, held) = (TenantId(0), 0, false);
            (job, Lent { tenant, gpus, held })
        };
        self.lent.extend(lent.into_iter().flatten().map(mark));
        Ok(())
    }
}

impl Tenancy for Quota {
    fn has_limits(&self) -> bool {
        true
    }

    fn check_feasible(&mut self, job: &JobSpec) -> Result<(), Reason> {
        let (most, _) = self.held_of(job);
        if job.min_gpus <= most {
            return Ok(());
        }
        Err(Reason::TenantQuota {
            tenant: job.tenant,
            borrows: borrows(job),
            asked: job.min_gpus,
            held: 0,
            most,
        })
    }

    fn place(
        &mut self,
        job: &Job,
        ask: &Ask,
        cluster: &Cluster,
        placement: &mut dyn Placement,
    ) -> Result<Allocation, Reason> {
        self.room(&job.spec, ask.gpus)?;
        let free = cluster.free_gpus(ask.gpu_type);
        if free < ask.gpus {
            return Err(Reason::NotEnoughFreeGpus {
                asked: ask.gpus,
                free,
            });
        }
        placement.place(ask, cluster)
    }

    fn may_use(&mut self, job: &Job, allocation: &Allocation) -> bool {
        self.room(&job.spec, allocation.gpus()).is_ok()
    }

    /// Borrowers give way to all, guaranteed jobs to those of their own tenant. A job whose account is full gets no
    /// further by taking GPUs from other accounts.
    fn may_evict(&self, for_job: &Job, victim: &Job) -> bool {
        let (one, other) = (&for_job.spec, &victim.spec);
        let same_account = one.tenant == other.tenant && self.gives_way(one) == self.gives_way(other);
        same_account || (self.gives_way(other) && self.room(one, one.gpus).is_ok())
    }
}

impl TenantAccounts for Quota {
    fn class(&self, job: &JobSpec) -> JobClass {
        match self.gives_way(job) {
            true => JobClass::Opportunistic,
            false => JobClass::Guaranteed,
        }
    }

    fn shape_key(&self, job: &JobSpec) -> u64 {
        u64::from(job.tenant.0) << 1 | u64::from(borrows(job))
    }

    fn max_gpus(&self, job: &JobSpec) -> u32 {
        self.held_of(job).0
    }
}

impl TenancyLedger for Quota {
    fn allocated(&mut self, job: &JobSpec, allocation: &Allocation) {
        let (tenant, gpus, held) = (job.tenant, allocation.gpus(), true);
        let too_much = self.carrying && !borrows(job) && self.room(job, gpus).is_err();
        // One that was lent before goes back as such, as long as the decision is open.
        if too_much || self.lent.contains_key(&job.id) {
            self.lent.insert(job.id, Lent { tenant, gpus, held });
        }
        *self.count(job) += gpus;
    }

    fn released(&mut self, job: &JobSpec, allocation: &Allocation) {
        *self.count(job) -= allocation.gpus();
        if let Some(lent) = self.lent.get_mut(&job.id) {
            lent.held = false;
        }
    }

    /// Whoever only borrowed since a change is guaranteed again when there is room.
    fn commit(&mut self) -> Vec<JobKey> {
        self.carrying = false;
        if self.lent.is_empty() {
            return Vec::new();
        }
        self.lent.retain(|_, lent| lent.held);
        let mut changed = Vec::new();
        for (job, lent) in &self.lent {
            let share = self.shares.get(lent.tenant).copied().unwrap_or(self.default);
            let held = self.held.entry(lent.tenant);
            if share.guaranteed.saturating_sub(held.guaranteed) >= lent.gpus {
                held.guaranteed += lent.gpus;
                held.borrowed -= lent.gpus;
                changed.push(*job);
            }
        }
        self.lent.retain(|job, _| !changed.contains(job));
        changed
    }

    fn downgraded(&self) -> Vec<JobKey> {
        self.lent.keys().copied().collect()
    }

    fn check(&self, holders: &mut dyn Iterator<Item = &Job>) -> Result<(), CheckError> {
        let mut counted: IdVec<TenantId, Held> = IdVec::default();
        for job in holders {
            let held = counted.entry(job.spec.tenant);
            match self.gives_way(&job.spec) {
                true => held.borrowed += job.width(),
                false => held.guaranteed += job.width(),
            }
        }
        for (tenant, held) in self.held.iter() {
            let found = counted.get(tenant).copied().unwrap_or_default();
            if found != *held {
                return Err(CheckError::Ledger(format!(
                    "tenant {tenant} holds {found:?}, its books say {held:?}"
                )));
            }
            let share = self.shares.get(tenant).copied().unwrap_or(self.default);
            let lent = self.lent.values().filter(|l| l.tenant == tenant).map(|l| l.gpus);
            let lent: u32 = lent.sum();
            if held.guaranteed > share.guaranteed || held.borrowed.saturating_sub(lent) > share.borrowed {
                return Err(CheckError::Ledger(format!(
                    "tenant {tenant} holds {held:?}, it may hold {share:?}"
                )));
            }
        }
        Ok(())
    }
}
