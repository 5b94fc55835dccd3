//! The true speed of a job on an allocation.

use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, ClusterSpec, GpuTypeId, ModelId, Rate, Time};
use dovetail_workload::TraceJob;

/// Factors on full speed. The default is one everywhere: placement does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpeedModel {
    /// By GPU type; full speed for types that are not listed.
    pub by_gpu_type: IdVec<GpuTypeId, Rate>,
    /// By model and GPU type, where known; takes precedence over `by_gpu_type`.
    pub by_model: IdVec<ModelId, ModelSpeed>,
    /// Factor for a job that spans several nodes.
    pub spread: Rate,
    /// Factor for a job that spans several racks, in addition to `spread`.
    pub across_racks: Rate,
}

/// Factors of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelSpeed {
    /// Factor for spanning several nodes; takes precedence over the general factor.
    pub spread: Option<Rate>,
    /// By GPU type.
    pub by_gpu_type: IdVec<GpuTypeId, Option<Rate>>,
}

impl SpeedModel {
    /// Returns the job's speed on this allocation, with a checkpoint of `cost` after every `interval` of work.
    pub fn rate(
        &self,
        job: &TraceJob,
        allocation: &Allocation,
        cluster: &ClusterSpec,
        checkpoint: (Option<Time>, Time),
    ) -> Rate {
        let mut rate = job.scaling.rate(allocation.gpus(), job.gpus);
        let model = job.model.and_then(|m| self.by_model.get(m));
        let first = &cluster.nodes[allocation.shares[0].node];
        let by_type = model.and_then(|m| m.by_gpu_type.get(first.gpu_type).copied().flatten());
        if let Some(factor) = by_type.or_else(|| self.by_gpu_type.get(first.gpu_type).copied()) {
            rate = rate.times(factor);
        }
        if let Some(sensitivity) = &job.sensitivity {
            rate = rate.times(sensitivity.rate_on(allocation, |node| cluster.nodes[node].proportional()));
        }
        if allocation.nodes() > 1 {
            rate = rate.times(model.and_then(|m| m.spread).unwrap_or(self.spread));
            if allocation
                .shares
                .iter()
                .any(|s| cluster.nodes[s.node].zone != first.zone)
            {
                rate = rate.times(self.across_racks);
            }
        }
        match checkpoint {
            (Some(interval), cost) if cost > Time::ZERO && interval > Time::ZERO => rate.times(
                Rate::from_factor(interval.0 as f64 / (interval.0 + cost.0) as f64),
            ),
            _ => rate,
        }
    }
}
