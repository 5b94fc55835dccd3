//! Sizing: how many GPUs and how much CPU and memory a job gets.

use dovetail_model::run::SolverStats;
use dovetail_model::{JobSpec, Share, Time};

use super::{Ask, Part, cloneable};
use crate::cluster::{Cluster, NodeState};
use crate::job::Job;

/// Numbers of GPUs chosen for all jobs of the queue at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Widths {
    /// GPUs for each job, in queue order; zero for a job that does not run now.
    pub gpus: Vec<u32>,
    /// When the numbers may change although nothing happens until then.
    pub valid_until: Option<Time>,
}

/// **Sizing**: decides how many GPUs a job gets, and how much CPU and memory beside them.
pub trait Sizing: Part + CloneSizing {
    /// Returns what to ask the placement for when the job is considered alone. What is placed is promised: the job keeps
    /// it until it stops.
    fn ask(&self, job: &Job, _cluster: &Cluster) -> Ask {
        Ask::of(&job.spec)
    }

    /// Whether all jobs of one [`crate::Shape`] get the same ask and the same headroom, so that one call serves all of
    /// them.
    fn asks_by_shape(&self) -> bool {
        false
    }

    /// Returns the fewest GPUs the job is ever given.
    fn min_gpus(&self, job: &JobSpec) -> u32 {
        job.gpus
    }

    /// Returns the widths of all jobs, in queue order, on `gpus` GPUs; none if every job keeps its own width.
    fn widths(&mut self, _queue: &[&Job], _gpus: u32, _now: Time) -> Option<Widths> {
        None
    }

    /// Returns the rule by which CPU and memory that were promised to no job are distributed on a node; none if jobs keep
    /// exactly what they were placed with.
    fn filling(&mut self) -> Option<&mut dyn NodeFilling> {
        None
    }

    /// Returns statistics of the integer programs solved so far.
    fn solver_stats(&self) -> SolverStats {
        SolverStats::default()
    }
}

cloneable!(Sizing, CloneSizing);

/// A job on a node, as [`NodeFilling::fill`] sees it.
#[derive(Debug, Clone, Copy)]
pub struct NodeJob<'a> {
    /// The job.
    pub job: &'a Job,
    /// GPUs it has on the node.
    pub gpus: u32,
    /// CPU and memory promised to it there, for all its GPUs on the node together.
    pub promised: Share,
    /// CPU and memory per GPU that it gets at most, because another of its nodes has no more for it.
    pub cap: Option<Share>,
}

/// Distributes the CPU and memory of a node beyond what was promised, and takes them back when other jobs need them.
pub trait NodeFilling {
    /// Returns CPU and memory on one node for each of its jobs, for all GPUs of the job there together: at least what was
    /// promised to it, and all together no more than `left` beyond the promises.
    fn fill(&mut self, node: &NodeState, left: Share, jobs: &[NodeJob<'_>]) -> Vec<Share>;

    /// Whether jobs that find their [`NodeFilling::headroom`] start first, and all others afterwards on the remaining
    /// GPUs. Applies only under a discipline that starts all jobs that fit.
    fn starts_with_headroom_first(&self) -> bool {
        false
    }

    /// Returns the CPU and memory per GPU that a job must find, beyond the preferred shares of the jobs on a node, to
    /// start before jobs that do not; none if its promised share is enough.
    fn headroom(&self, _job: &Job, _cluster: &Cluster) -> Option<Share> {
        None
    }
}
