//! Tenancy: what each tenant may use.

use dovetail_model::{Allocation, JobKey, JobSpec, NodeId, Reason};

use super::{Ask, Part, Placement, cloneable};
use crate::check::CheckError;
use crate::cluster::{Cluster, NodeState};
use crate::job::Job;

/// **Tenancy**: decides which GPUs the jobs of a tenant may use, and from which jobs they may take them.
pub trait Tenancy: Part + TenantAccounts + TenancyLedger + CloneTenancy {
    /// Whether it ever denies a job free GPUs, or distinguishes classes of jobs.
    fn has_limits(&self) -> bool {
        false
    }

    /// Checks whether the job could ever run within the limits of its tenant.
    ///
    /// # Errors
    /// Returns the reason, with numbers, when it could not run even if all other jobs ended.
    fn check_feasible(&mut self, _job: &JobSpec) -> Result<(), Reason> {
        Ok(())
    }

    /// Finds GPUs that the tenant may use, usually by asking the placement.
    ///
    /// # Errors
    /// Returns the reason, with numbers, when no placement exists.
    fn place(
        &mut self,
        _job: &Job,
        ask: &Ask,
        cluster: &Cluster,
        placement: &mut dyn Placement,
    ) -> Result<Allocation, Reason> {
        placement.place(ask, cluster)
    }

    /// Whether the job may have these free GPUs, which it held before or which a grouping chose beside other jobs.
    fn may_use(&mut self, _job: &Job, _allocation: &Allocation) -> bool {
        true
    }

    /// Whether a job may take GPUs from a job behind it in the queue.
    fn may_evict(&self, _for_job: &Job, _victim: &Job) -> bool {
        true
    }

    /// Whether a job was refused, since the last call, something for which other jobs may have made room later in the
    /// same decision. The queue is then walked again.
    fn wants_retry(&mut self) -> bool {
        false
    }

    /// Returns further reasons why a job has no placement: which jobs hold what it could use, and what would help.
    fn explain(&self, _job: &Job, _ask: &Ask) -> Vec<Reason> {
        Vec::new()
    }
}

cloneable!(Tenancy, CloneTenancy);

/// The class of a job. All guaranteed jobs are ahead of all opportunistic ones, whatever the order says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobClass {
    /// The job runs on what its tenant owns.
    Guaranteed,
    /// The job borrows what other tenants do not use, and is preempted for guaranteed jobs.
    Opportunistic,
}

/// Assigns jobs to accounts that are limited, sized and grouped separately.
pub trait TenantAccounts {
    /// Returns the class of the job.
    fn class(&self, _job: &JobSpec) -> JobClass {
        JobClass::Guaranteed
    }

    /// Returns a key that differs between jobs that may fit differently although they ask for the same.
    fn shape_key(&self, _job: &JobSpec) -> u64 {
        0
    }

    /// Returns the account of the job. Jobs of one account may share GPUs, and are sized and grouped together.
    fn account(&self, job: &JobSpec) -> u64 {
        self.shape_key(job)
    }

    /// Returns the most GPUs that the jobs of its account may hold together.
    fn max_gpus(&self, _job: &JobSpec) -> u32 {
        u32::MAX
    }
}

/// Records what jobs hold. It is told of every step of a draft, including those that are rolled back.
pub trait TenancyLedger {
    /// Records that the job got this allocation.
    fn allocated(&mut self, _job: &JobSpec, _allocation: &Allocation) {}

    /// Records that the job gave this allocation back, in a draft or because it ended.
    fn released(&mut self, _job: &JobSpec, _allocation: &Allocation) {}

    /// Records the state of a node. Called before any job is placed on it, and at every change.
    fn node_changed(&mut self, _node: NodeId, _state: &NodeState) {}

    /// Makes the draft of a decision final. Returns the jobs whose class changed.
    fn commit(&mut self) -> Vec<JobKey> {
        Vec::new()
    }

    /// Returns guaranteed jobs that continue as opportunistic ones because what their tenants own has changed.
    fn downgraded(&self) -> Vec<JobKey> {
        Vec::new()
    }

    /// Returns the number of the tenant's cell to which this GPU is bound now, where tenants own cells.
    fn cell_at(&self, _node: NodeId, _slot: u32) -> Option<u32> {
        None
    }

    /// Checks that the ledger is consistent and agrees with what these jobs hold.
    ///
    /// # Errors
    /// Describes the first inconsistency.
    fn check(&self, _holders: &mut dyn Iterator<Item = &Job>) -> Result<(), CheckError> {
        Ok(())
    }
}
