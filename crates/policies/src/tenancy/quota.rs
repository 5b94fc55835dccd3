//! Quota: so many GPUs are a tenant's own, whichever they are, and what is idle is lent.
//!
//! A job of priority 0 or more is *guaranteed*: it runs within what its tenant is guaranteed. A job of lower priority
//! *borrows*: it runs on whatever is idle, stands behind all guaranteed jobs and gives way to them. Who is thrown out
//! for whom follows the line, but no tenant ever takes from what another is guaranteed.

use std::collections::BTreeMap;

use dovetail_engine::{Ask, Cluster, Job, Knowledge, Part, Placement, Tenancy};
use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, JobId, JobSpec, Reason, TenantId};
use serde_json::Value;

use crate::knobs::{Knob, PolicyError};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Tenancy> = Entry {
    name: "quota",
    what: "each tenant is guaranteed so many GPUs; jobs of negative priority borrow what is idle and give way",
    source: "rule",
    key: "guaranteed jobs within the tenant's count, then borrowers",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "TENANT",
        default: "0",
        what: "GPUs guaranteed to the tenant, and after a plus the most it may borrow: vision=8+4; TENANT `default` is \
               every other one; or the name of a YAML file",
    }],
    build: |knobs| Err(knobs.bad("TENANT", EXPECTED)),
};

const EXPECTED: &str =
    "TENANT=GPUS or TENANT=GPUS+MOST_BORROWED for each tenant, such as quota:vision=8,speech=16+4,default=0";

/// What one tenant may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// GPUs that are its own.
    pub guaranteed: u32,
    /// The most it may borrow beside them.
    pub borrowed: u32,
}

impl Share {
    /// Reads `8`, or `8+4` for at most four borrowed ones.
    pub fn parse(text: &str) -> Option<Self> {
        let (guaranteed, borrowed) = match text.split_once('+') {
            Some((own, more)) => (own, more.trim().parse().ok()?),
            None => (text, u32::MAX),
        };
        Some(Self {
            guaranteed: guaranteed.trim().parse().ok()?,
            borrowed,
        })
    }
}

/// The shares of all tenants, by name, as a user writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shares {
    /// By name.
    pub named: BTreeMap<String, Share>,
    /// Of every tenant that is not named.
    pub default: Option<Share>,
}

impl Shares {
    /// Reads `vision=8,speech=16+4,default=0`.
    ///
    /// # Errors
    /// Names the piece that is wrong, and what is expected.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let bad = |value: &str| PolicyError::BadValue {
            kind: "tenancy",
            part: "quota".to_owned(),
            knob: "TENANT".to_owned(),
            value: value.to_owned(),
            expected: EXPECTED.to_owned(),
        };
        let mut shares = Self::default();
        for piece in text.split(',') {
            let (name, share) = piece.split_once('=').ok_or_else(|| bad(piece))?;
            let (name, share) = (name.trim(), Share::parse(share).ok_or_else(|| bad(piece))?);
            let twice = match name {
                "" => return Err(bad(piece)),
                "default" => shares.default.replace(share).is_some(),
                name => shares.named.insert(name.to_owned(), share).is_some(),
            };
            if twice {
                return Err(bad(piece));
            }
        }
        Ok(shares)
    }

    /// The tenancy for tenants of these names, in the order of their ids.
    ///
    /// # Errors
    /// Names the tenants that have no share.
    pub fn of(&self, tenants: &[String]) -> Result<Quota, PolicyError> {
        let mut shares = IdVec::default();
        let mut missing = Vec::new();
        for name in tenants {
            let share = self.named.get(name).or(self.default.as_ref());
            // Jobs of no tenant have one called `default`; it is there even if no job has it.
            if share.is_none() && name != "default" {
                missing.push(name.clone());
            }
            shares.push(share.copied().unwrap_or(NOTHING));
        }
        match missing.is_empty() {
            true => Ok(Quota {
                name: format!("quota:{self}"),
                default: self.default.unwrap_or(NOTHING),
                shares,
                held: IdVec::default(),
                lent: BTreeMap::new(),
                carrying: true,
            }),
            false => Err(PolicyError::NoShare {
                tenants: missing.join(", "),
            }),
        }
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = self.named.iter().map(|(name, share)| (name.as_str(), share));
        let all = named.chain(self.default.iter().map(|share| ("default", share)));
        for (i, (name, share)) in all.enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}={}", share.guaranteed)?;
            if share.borrowed < u32::MAX {
                write!(f, "+{}", share.borrowed)?;
            }
        }
        Ok(())
    }
}

const NOTHING: Share = Share {
    guaranteed: 0,
    borrowed: 0,
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
    shares: IdVec<TenantId, Share>,
    default: Share,
    held: IdVec<TenantId, Held>,
    /// Guaranteed jobs that only borrow, since their tenant was guaranteed more when they started.
    lent: BTreeMap<JobId, Lent>,
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

    fn save(&self) -> Value {
        let held = self.lent.iter().filter(|(_, lent)| lent.held);
        let lent: Vec<JobId> = held.map(|(job, _)| *job).collect();
        serde_json::to_value(lent).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        // Older ones had nothing to save.
        let lent: Option<Vec<JobId>> = serde_json::from_value(saved.clone())
            .map_err(|e| format!("{}: what it saved cannot be read: {e}", self.name))?;
        let mark = |job| {
            let (tenant, gpus, held) = (TenantId(0), 0, false);
            (job, Lent { tenant, gpus, held })
        };
        self.lent.extend(lent.into_iter().flatten().map(mark));
        Ok(())
    }
}

impl Tenancy for Quota {
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

    fn limits(&self) -> bool {
        true
    }

    fn ever(&mut self, job: &JobSpec) -> Result<(), Reason> {
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

    fn class(&self, job: &JobSpec) -> u8 {
        u8::from(self.gives_way(job))
    }

    fn may_use(&mut self, job: &Job, allocation: &Allocation) -> bool {
        self.room(&job.spec, allocation.gpus()).is_ok()
    }

    fn shape_key(&self, job: &JobSpec) -> u64 {
        u64::from(job.tenant.0) << 1 | u64::from(borrows(job))
    }

    fn most(&self, job: &JobSpec) -> u32 {
        self.held_of(job).0
    }

    /// Borrowers give way to all, guaranteed jobs to those of their own tenant. A job whose account is full gets no
    /// further by taking GPUs from other accounts.
    fn may_evict(&self, for_job: &Job, victim: &Job) -> bool {
        let (one, other) = (&for_job.spec, &victim.spec);
        let same_account = one.tenant == other.tenant && self.gives_way(one) == self.gives_way(other);
        same_account || (self.gives_way(other) && self.room(one, one.gpus).is_ok())
    }

    fn taken(&mut self, job: &JobSpec, allocation: &Allocation) {
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
    fn decided(&mut self) -> Vec<JobId> {
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

    fn downgraded(&self) -> Vec<JobId> {
        self.lent.keys().copied().collect()
    }

    fn check(&self, holders: &mut dyn Iterator<Item = &Job>) -> Result<(), String> {
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
                return Err(format!("tenant {tenant} holds {found:?}, its books say {held:?}"));
            }
            let share = self.shares.get(tenant).copied().unwrap_or(self.default);
            let lent = self.lent.values().filter(|l| l.tenant == tenant).map(|l| l.gpus);
            let lent: u32 = lent.sum();
            if held.guaranteed > share.guaranteed || held.borrowed.saturating_sub(lent) > share.borrowed {
                return Err(format!("tenant {tenant} holds {held:?}, it may hold {share:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_written() {
        let shares = Shares::parse("b=16 + 4, a=8,default=0+2").unwrap();
        assert_eq!(shares.to_string(), "a=8,b=16+4,default=0+2");
        assert_eq!(Shares::parse(&shares.to_string()).unwrap(), shares);
        assert_eq!(
            shares.named["a"],
            Share {
                guaranteed: 8,
                borrowed: u32::MAX
            }
        );
        for wrong in ["a", "a=", "a=x", "a=1+", "=3", "a=1,a=2", "a=-1", ""] {
            let said = Shares::parse(wrong).unwrap_err().to_string();
            assert!(said.contains("such as quota:vision=8"), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_tenant_without_a_share_is_named() {
        let shares = Shares::parse("a=8").unwrap();
        let names = ["a".to_owned(), "c".to_owned()];
        let said = shares.of(&names).unwrap_err().to_string();
        assert!(said.contains("no share for tenant c"), "{said}");
        assert!(shares.of(&names[..1]).is_ok());
    }
}
