//! Admission: which jobs enter the queue.

use dovetail_model::{JobSpec, Reason};

use super::{Part, cloneable};
use crate::cluster::Cluster;
use crate::demand::Demand;

/// What admission decides about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The job enters the queue.
    Admit,
    /// The job is held until a later decision.
    Hold(Reason),
    /// The job will never be admitted.
    Reject(Reason),
}

/// **Admission**: admits, holds or rejects a submitted job.
pub trait Admission: Part + CloneAdmission {
    /// Returns the verdict on a job that is new, or first in its lane of held jobs.
    fn admit(&self, job: &JobSpec, demand: &Demand, cluster: &Cluster) -> Verdict;

    /// Returns the lane of the job. Held jobs of one lane are admitted in order of submission.
    fn lane(&self, _job: &JobSpec) -> u64 {
        0
    }
}

cloneable!(Admission, CloneAdmission);
