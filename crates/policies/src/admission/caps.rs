//! Holds the jobs of a tenant or user while its admitted jobs ask for more GPUs than its cap.

use dovetail_engine::feasibility::{NodeScope, never_fits};
use dovetail_engine::parts::{Admission, Part, Verdict};
use dovetail_engine::{Cluster, Demand};
use dovetail_model::{JobSpec, Reason};

use crate::error::PolicyError;
use crate::knobs::{Knob, Knobs};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Admission> = Entry {
    name: "caps",
    what: "hold jobs above a cap on the GPUs that a tenant or user asks for, first come first served for each of them",
    source: "rule",
    key: "demand of the tenant (user) + the job's GPUs ≤ cap, or the tenant (user) has no admitted job yet",
    companions: &[],
    knobs: &[
        Knob {
            name: "tenant",
            default: "none",
            what: "GPUs per tenant; a whole number, or none",
        },
        Knob {
            name: "user",
            default: "none",
            what: "GPUs per user; a whole number, or none",
        },
    ],
    build: |knobs| {
        Ok(Box::new(Caps {
            tenant: cap(knobs, "tenant")?,
            user: cap(knobs, "user")?,
            name: knobs.name(),
        }))
    },
};

fn cap(knobs: &Knobs, name: &str) -> Result<Option<u64>, PolicyError> {
    let expected = "a whole number of at least 1, or none";
    match knobs.text(name) {
        "none" => Ok(None),
        _ => match knobs.get::<u64>(name, expected)? {
            0 => Err(knobs.invalid(name, expected)),
            cap => Ok(Some(cap)),
        },
    }
}

/// Admission by the demand of each tenant and user.
#[derive(Debug, Clone)]
struct Caps {
    tenant: Option<u64>,
    user: Option<u64>,
    name: String,
}

impl Part for Caps {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Admission for Caps {
    fn admit(&self, job: &JobSpec, demand: &Demand, cluster: &Cluster) -> Verdict {
        if let Some(reason) = never_fits(job, cluster, NodeScope::Joined) {
            return Verdict::Reject(reason);
        }
        let asked = u64::from(job.gpus);
        let above = |used: u64, cap: Option<u64>| cap.filter(|cap| used > 0 && used + asked > *cap);
        let (of_tenant, of_user) = (demand.of_tenant(job.tenant), demand.of_user(job.user));
        if let Some(cap) = above(of_tenant, self.tenant) {
            return Verdict::Hold(Reason::TenantCap {
                tenant: job.tenant,
                demand: of_tenant,
                cap,
            });
        }
        if let Some(cap) = above(of_user, self.user) {
            return Verdict::Hold(Reason::UserCap {
                user: job.user,
                demand: of_user,
                cap,
            });
        }
        Verdict::Admit
    }

    fn lane(&self, job: &JobSpec) -> u64 {
        let tenant = if self.tenant.is_some() {
            u64::from(job.tenant.0) << 32
        } else {
            0
        };
        tenant
            | if self.user.is_some() {
                u64::from(job.user.0)
            } else {
                0
            }
    }
}
