//! Placement: which GPUs a job gets.

use dovetail_model::{Allocation, GpuTypeId, JobKey, JobSpec, NodeConstraintId, Reason, Share};
use serde::{Deserialize, Serialize};

use super::{Part, cloneable};
use crate::cluster::Cluster;

/// What the placement is asked to find for one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The job, or the first job of a group.
    pub job: JobKey,
    /// Number of GPUs.
    pub gpus: u32,
    /// GPUs of one task, which must be on one node; see [`Allocation::is_in_bundles_of`].
    pub gpus_per_task: u32,
    /// Required GPU type.
    pub gpu_type: Option<GpuTypeId>,
    /// Nodes the job is limited to.
    pub constraint: Option<NodeConstraintId>,
    /// CPU per GPU, in milli-cores.
    pub cpu_milli_per_gpu: u32,
    /// Memory per GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Memory used on each GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// CPU and memory per GPU with which the job is fastest. Not required, but a placement may prefer nodes that have it.
    #[serde(alias = "wish")]
    pub preferred: Share,
    /// CPU and memory per GPU that a node must have left after the preferred shares of the jobs on it.
    #[serde(alias = "enough")]
    pub headroom: Option<Share>,
}

impl Ask {
    /// Asks for exactly what the job was submitted with.
    pub fn of(spec: &JobSpec) -> Self {
        Self {
            job: spec.id,
            gpus: spec.gpus,
            gpus_per_task: spec.gpus_per_task,
            gpu_type: spec.gpu_type,
            constraint: spec.constraint,
            cpu_milli_per_gpu: spec.cpu_milli_per_gpu,
            memory_mib_per_gpu: spec.memory_mib_per_gpu,
            gpu_memory_mib: spec.gpu_memory_mib,
            preferred: spec.preferred_share(),
            headroom: None,
        }
    }
}

/// **Placement**: chooses free GPUs for a claim.
pub trait Placement: Part + ClonePlacement {
    /// Returns free GPUs for the whole claim.
    ///
    /// # Errors
    /// Returns the reason, with numbers, when no placement exists.
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason>;
}

cloneable!(Placement, ClonePlacement);
