//! Quota: each tenant is guaranteed a number of GPUs, of whichever nodes, and lends them while it does not use them.
//!
//! A job of priority 0 or more is *guaranteed*: it runs within what its tenant is guaranteed. A job of lower priority
//! *borrows*: it runs on whatever is idle, behind all guaranteed jobs, and is preempted for them. The order decides among
//! the guaranteed jobs of a tenant; a tenant never takes GPUs that another is guaranteed, and borrowers of equal priority
//! do not preempt one another.

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
    what: "each tenant is guaranteed a number of GPUs; jobs of negative priority borrow idle ones until they are needed",
    source: "rule",
    key: "guaranteed jobs within the tenant's count, then borrowers",
    companions: &[],
    knobs: &[Knob {
        name: "TENANT",
        default: "0",
        what: "GPUs guaranteed to the tenant, and after a plus the most it may borrow: vision=8+4; TENANT `default` is \
               every tenant not named; or the name of a YAML file",
    }],
    build: |knobs| Err(knobs.invalid("TENANT", EXPECTED)),
};

/// GPUs that the jobs of one tenant hold.
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
    /// Guaranteed jobs that borrow, because their tenants were guaranteed more when they started.
    downgraded: BTreeMap<JobKey, Downgrade>,
    /// Whether no decision was made yet, so that allocated jobs are taken over from another policy or a snapshot.
    adopting: bool,
}

/// What a downgraded job holds, beyond what its tenant is guaranteed.
#[derive(Debug, Clone, Copy)]
struct Downgrade {
    tenant: TenantId,
    gpus: u32,
    /// Whether the job holds the GPUs; false after it lost them in the present decision.
    held: bool,
}

impl Quota {
    /// Returns a quota with the share of each tenant, and the share of tenants that are added later.
    pub(super) fn new(name: String, shares: IdVec<TenantId, QuotaShare>, default: QuotaShare) -> Self {
        Self {
            name,
            shares,
            default,
            held: IdVec::default(),
            downgraded: BTreeMap::new(),
            adopting: true,
        }
    }

    /// Returns the most GPUs that jobs of the same tenant and class may hold together, and the GPUs they hold.
    fn limit_and_held(&self, job: &JobSpec) -> (u32, u32) {
        let share = self.shares.get(job.tenant).copied().unwrap_or(self.default);
        let held = self.held.get(job.tenant).copied().unwrap_or_default();
        match self.is_opportunistic(job) {
            true => (share.borrowed, held.borrowed),
            false => (share.guaranteed, held.guaranteed),
        }
    }

    /// Checks that the account of a job has room for this number of further GPUs.
    fn check_room(&self, job: &JobSpec, gpus: u32) -> Result<(), Reason> {
        let (most, held) = self.limit_and_held(job);
        match held.checked_add(gpus).is_some_and(|sum| sum <= most) {
            true => Ok(()),
            false => Err(Reason::TenantQuota {
                tenant: job.tenant,
                borrows: is_borrower(job),
                asked: gpus,
                held,
                most,
            }),
        }
    }

    /// Whether the job is preempted for guaranteed jobs.
    fn is_opportunistic(&self, job: &JobSpec) -> bool {
        is_borrower(job) || self.downgraded.get(&job.id).is_some_and(|d| d.held)
    }

    /// Returns the counter of the GPUs held by jobs of the same tenant and class.
    fn held_mut(&mut self, job: &JobSpec) -> &mut u32 {
        let is_opportunistic = self.is_opportunistic(job);
        let held = self.held.entry(job.tenant);
        match is_opportunistic {
            true => &mut held.borrowed,
            false => &mut held.guaranteed,
        }
    }
}

/// Whether the job was submitted as a borrower.
fn is_borrower(job: &JobSpec) -> bool {
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
        let held = self.downgraded.iter().filter(|(_, d)| d.held);
        let jobs: Vec<JobKey> = held.map(|(job, _)| *job).collect();
        serde_json::to_value(jobs).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        // Older versions saved nothing.
        let jobs: Option<Vec<JobKey>> =
            serde_json::from_value(saved.clone()).map_err(|e| LoadError::new(&*self.name, e))?;
        let downgrade = |job| {
            let (tenant, gpus, held) = (TenantId(0), 0, false);
            (job, Downgrade { tenant, gpus, held })
        };
        self.downgraded.extend(jobs.into_iter().flatten().map(downgrade));
        Ok(())
    }
}

impl Tenancy for Quota {
    fn has_limits(&self) -> bool {
        true
    }

    fn check_feasible(&mut self, job: &JobSpec) -> Result<(), Reason> {
        let (most, _) = self.limit_and_held(job);
        if job.min_gpus <= most {
            return Ok(());
        }
        Err(Reason::TenantQuota {
            tenant: job.tenant,
            borrows: is_borrower(job),
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
        self.check_room(&job.spec, ask.gpus)?;
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
        // A downgraded job that lost its GPUs in this decision may return to them as a borrower.
        let was_downgraded = self.downgraded.contains_key(&job.spec.id);
        was_downgraded || self.check_room(&job.spec, allocation.gpus()).is_ok()
    }

    /// A guaranteed job evicts borrowers, and guaranteed jobs of its own tenant. Borrowers of equal priority do not evict
    /// one another. Evicting jobs of other accounts does not help a job whose own account is full.
    fn may_evict(&self, for_job: &Job, victim: &Job) -> bool {
        let (job, victim) = (&for_job.spec, &victim.spec);
        let is_allowed = match (is_borrower(job), self.is_opportunistic(victim)) {
            (true, true) => job.priority > victim.priority,
            (true, false) => false,
            (false, true) => true,
            (false, false) => return job.tenant == victim.tenant,
        };
        let is_same_account = is_borrower(job) && job.tenant == victim.tenant;
        is_allowed && (is_same_account || self.check_room(job, job.gpus).is_ok())
    }
}

impl TenantAccounts for Quota {
    fn class(&self, job: &JobSpec) -> JobClass {
        match self.is_opportunistic(job) {
            true => JobClass::Opportunistic,
            false => JobClass::Guaranteed,
        }
    }

    fn shape_key(&self, job: &JobSpec) -> u64 {
        u64::from(job.tenant.0) << 1 | u64::from(is_borrower(job))
    }

    fn max_gpus(&self, job: &JobSpec) -> u32 {
        self.limit_and_held(job).0
    }
}

impl TenancyLedger for Quota {
    fn allocated(&mut self, job: &JobSpec, allocation: &Allocation) {
        let (tenant, gpus, held) = (job.tenant, allocation.gpus(), true);
        let exceeds = self.adopting && !is_borrower(job) && self.check_room(job, gpus).is_err();
        // A downgraded job that starts again in the same decision is still downgraded.
        if exceeds || self.downgraded.contains_key(&job.id) {
            self.downgraded.insert(job.id, Downgrade { tenant, gpus, held });
        }
        *self.held_mut(job) += gpus;
    }

    fn released(&mut self, job: &JobSpec, allocation: &Allocation) {
        *self.held_mut(job) -= allocation.gpus();
        if let Some(downgrade) = self.downgraded.get_mut(&job.id) {
            downgrade.held = false;
        }
    }

    /// Makes downgraded jobs guaranteed again where their tenants have room for them.
    fn commit(&mut self) -> Vec<JobKey> {
        self.adopting = false;
        if self.downgraded.is_empty() {
            return Vec::new();
        }
        self.downgraded.retain(|_, d| d.held);
        let mut promoted = Vec::new();
        for (job, downgrade) in &self.downgraded {
            let (tenant, gpus) = (downgrade.tenant, downgrade.gpus);
            let share = self.shares.get(tenant).copied().unwrap_or(self.default);
            let held = self.held.entry(tenant);
            if share.guaranteed.saturating_sub(held.guaranteed) >= gpus {
                held.guaranteed += gpus;
                held.borrowed -= gpus;
                promoted.push(*job);
            }
        }
        self.downgraded.retain(|job, _| !promoted.contains(job));
        promoted
    }

    fn downgraded(&self) -> Vec<JobKey> {
        self.downgraded.keys().copied().collect()
    }

    fn check(&self, holders: &mut dyn Iterator<Item = &Job>) -> Result<(), CheckError> {
        let mut counted: IdVec<TenantId, Held> = IdVec::default();
        for job in holders {
            let held = counted.entry(job.spec.tenant);
            match self.is_opportunistic(&job.spec) {
                true => held.borrowed += job.width(),
                false => held.guaranteed += job.width(),
            }
        }
        for (tenant, held) in self.held.iter() {
            let found = counted.get(tenant).copied().unwrap_or_default();
            if found != *held {
                return Err(CheckError::Ledger(format!(
                    "tenant {tenant} holds {found:?}, but {held:?} was counted"
                )));
            }
            let share = self.shares.get(tenant).copied().unwrap_or(self.default);
            let downgraded = self.downgraded.values().filter(|d| d.tenant == tenant);
            let downgraded: u32 = downgraded.map(|d| d.gpus).sum();
            let borrowed = held.borrowed.saturating_sub(downgraded);
            if held.guaranteed > share.guaranteed || borrowed > share.borrowed {
                return Err(CheckError::Ledger(format!(
                    "tenant {tenant} holds {held:?}, but may hold {share:?}"
                )));
            }
        }
        Ok(())
    }
}
