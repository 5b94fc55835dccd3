//! Checks whether a job could ever run.

use std::collections::BTreeMap;

use dovetail_engine::feasibility::{NodeScope, never_fits};
use dovetail_model::{GpuTypeId, JobKey, JobSpec};

use super::ClusterState;
use super::error::Infeasible;
use crate::request::JobRequest;
use crate::virtual_clusters::GuaranteeMode;

/// Checks whether the guarantee of its virtual cluster could ever hold the job.
pub(super) fn check_guarantee(state: &ClusterState, request: &JobRequest) -> Result<(), Infeasible> {
    if state.virtual_clusters.mode == GuaranteeMode::Open {
        return Ok(());
    }
    let spec = state.scheduler.preview_spec("", request, state.now);
    let mut tenancy = state.engine().policy().tenancy.clone();
    tenancy
        .check_feasible(&spec)
        .map_err(|reason| Infeasible::Guarantee {
            text: state.reason(&reason),
            reason: Box::new(reason),
        })
}

/// Checks whether the connected nodes could run the job if they were empty. Without nodes every job passes.
pub(super) fn check_empty_nodes(state: &ClusterState, request: &JobRequest) -> Result<(), Infeasible> {
    let cluster = state.engine().cluster();
    let mut nodes = cluster.nodes();
    if !nodes.any(|(_, n)| n.up && n.admits(request.constraint)) {
        return Ok(());
    }
    let gpu_type = request.gpu_type.as_ref();
    let spec = JobSpec {
        min_gpus: request.min_gpus.unwrap_or(request.gpus),
        gpu_type: gpu_type.map(|name| find_gpu_type(state, name)).transpose()?,
        cpu_milli_per_gpu: request.cpus_per_gpu.milli(),
        memory_mib_per_gpu: request.memory_mib_per_gpu,
        constraint: request.constraint,
        gpu_memory_mib: request.gpu_memory_mib,
        gpus_per_task: request.gpus_per_task,
        ..JobSpec::new(JobKey(0), request.gpus)
    };
    match never_fits(&spec, cluster, NodeScope::Up) {
        None => Ok(()),
        Some(reason) => Err(Infeasible::Nodes {
            text: state.reason(&reason),
            reason: Box::new(reason),
        }),
    }
}

/// Returns the GPU type with this name, or an error that lists the types of all connected nodes.
fn find_gpu_type(state: &ClusterState, name: &str) -> Result<GpuTypeId, Infeasible> {
    let mut available: BTreeMap<String, u32> = BTreeMap::new();
    for node in state.nodes.connected() {
        if node.gpu_type == name {
            return Ok(node.spec.gpu_type);
        }
        *available.entry(node.gpu_type.clone()).or_default() += node.spec.gpus;
    }
    Err(Infeasible::UnknownGpuType {
        gpu_type: name.to_owned(),
        available: available.into_iter().collect(),
    })
}
