//! The GPUs that admitted jobs ask for.

use dovetail_model::ids::IdVec;
use dovetail_model::{JobSpec, TenantId, UserId};
use serde::{Deserialize, Serialize};

/// GPUs asked for by admitted jobs that have not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// GPUs asked for by all jobs.
    pub gpus: u64,
    by_tenant: IdVec<TenantId, u64>,
    by_user: IdVec<UserId, u64>,
}

impl Demand {
    /// Returns the GPUs asked for by one tenant.
    pub fn of_tenant(&self, tenant: TenantId) -> u64 {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Returns the GPUs asked for by one user.
    pub fn of_user(&self, user: UserId) -> u64 {
        self.by_user.get(user).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, job: &JobSpec) {
        self.gpus += u64::from(job.gpus);
        *self.by_tenant.entry(job.tenant) += u64::from(job.gpus);
        *self.by_user.entry(job.user) += u64::from(job.gpus);
    }

    pub(crate) fn remove(&mut self, job: &JobSpec) {
        self.gpus -= u64::from(job.gpus);
        *self.by_tenant.entry(job.tenant) -= u64::from(job.gpus);
        *self.by_user.entry(job.user) -= u64::from(job.gpus);
    }
}
