//! Order: in which order jobs are served.

use dovetail_model::Time;
use serde::{Deserialize, Serialize};

use super::{Part, cloneable};
use crate::cluster::Cluster;
use crate::job::Job;
use crate::load::ClusterLoad;
use crate::queue_key::QueueKey;

/// What a policy must know about a job's remaining work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knowledge {
    /// Nothing beyond what the job has used so far.
    None,
    /// An estimate that may be wrong.
    Estimate,
    /// What is known from jobs that ended before, where the user states nothing.
    Predicted,
    /// The true remaining work.
    Oracle,
}

/// **Order**: gives each job its sort key.
pub trait QueueOrder: Part + CloneQueueOrder {
    /// Returns the job's sort key from `now` on. Smaller keys are served first; ties are broken by [`JobKey`].
    ///
    /// Called when the job enters the queue, starts, stops or reports progress, and when its key expires. Keys of *queued*
    /// jobs should have few different slopes, because every walk looks at the first job of each slope.
    ///
    /// [`JobKey`]: dovetail_model::JobKey
    fn key(&self, job: &Job, now: Time) -> QueueKey;

    /// Returns the sort key of an order whose keys also depend on the load of the cluster.
    fn key_under_load(&self, job: &Job, _load: &ClusterLoad, now: Time) -> QueueKey {
        self.key(job, now)
    }

    /// Whether [`QueueOrder::key_under_load`] is called instead of [`QueueOrder::key`]. The keys of all jobs are then
    /// computed again before each decision, because each arrival or departure changes all of them.
    fn depends_on_all_jobs(&self) -> bool {
        false
    }

    /// Looks at all jobs, in order of submission, and at the cluster, before all keys are computed. Called only for an
    /// order that depends on all jobs.
    fn observe(&mut self, _jobs: &mut dyn Iterator<Item = &Job>, _cluster: &Cluster, _now: Time) {}

    /// Whether [`QueueOrder::observe`] is also called when something changed since the last decision, because the moments
    /// at which keys expire depend on one another. Other orders keep their observations until the next decision.
    fn observes_between_decisions(&self) -> bool {
        false
    }

    /// Returns how long a job on `gpus` GPUs runs before its key gets worse by itself; none if it never does, or at no
    /// fixed time. Where a restart takes that long, jobs that alternate make no progress.
    fn time_slice(&self, _gpus: u32) -> Option<Time> {
        None
    }

    /// Learns from a job that finished. Returns whether the keys of all jobs have to be computed again.
    fn job_finished(&mut self, _job: &Job, _now: Time) -> bool {
        false
    }
}

cloneable!(QueueOrder, CloneQueueOrder);
