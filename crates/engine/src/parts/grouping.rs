//! Grouping: which jobs share GPUs.

use dovetail_model::stages::Ordering;
use dovetail_model::{Allocation, JobKey, SharedGroupFactors, SharingTerms, Time};

use super::{Ask, Part, cloneable};
use crate::cluster::Cluster;
use crate::job::Job;
use crate::occupancy::Occupancy;

/// Jobs that run together on the same GPUs; usually one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The members, in queue order.
    pub members: Vec<JobKey>,
    /// GPUs for all members together.
    pub gpus: u32,
}

/// **Grouping**: decides which jobs share GPUs.
pub trait Grouping: Part + CloneGrouping {
    /// Combines jobs (in queue order, with their widths) into claims, in the order in which they are served.
    fn group(&mut self, queue: &[(&Job, u32)], gpus: u32, now: Time) -> Vec<Claim>;

    /// Whether it ever puts several jobs on the same GPUs.
    fn shares(&self) -> bool {
        self.terms().max_jobs > 1
    }

    /// Returns the terms on which jobs share GPUs.
    fn terms(&self) -> SharingTerms {
        SharingTerms::GROUPS
    }

    /// Returns the order in which jobs on the same GPUs interleave their stages; none if it does not assume that they do.
    fn interleaving(&self) -> Option<Ordering> {
        None
    }

    /// Looks at the nodes before it is asked for groups, and at how much longer than planned periods of groups are, if that is
    /// measured.
    fn observe(&mut self, _cluster: &Cluster, _factors: Option<&SharedGroupFactors>) {}

    /// Returns GPUs, at least some of them held by other jobs, for a job that found no free ones; none if it should wait.
    /// Called only where the terms let allocations overlap.
    fn place_beside(
        &mut self,
        _job: &Job,
        _ask: &Ask,
        _occupancy: &Occupancy<'_>,
        _now: Time,
    ) -> Option<Allocation> {
        None
    }
}

cloneable!(Grouping, CloneGrouping);
