//! Previews of changes of the virtual clusters while jobs run.

use dovetail_model::{Command, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterState;
use super::error::VirtualClusterChangeError;
use super::explain::count;
use super::jobs::JobState;
use crate::JobId;
use crate::virtual_clusters::{GuaranteeMode, VirtualClusters};

/// Immediate effects of a change of the virtual clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VirtualClusterChange {
    /// Jobs that stop.
    pub stops: Vec<JobId>,
    /// Jobs that start.
    pub starts: Vec<JobId>,
    /// Jobs that keep running on borrowed GPUs, because their virtual cluster lost its own.
    pub lent: Vec<JobId>,
    /// Queued jobs that could never start any more.
    pub stranded: Vec<JobId>,
    /// Further remarks.
    pub remarks: Vec<String>,
}

/// Previews a change of the virtual clusters on a copy of the engine.
pub(super) fn preview(
    state: &ClusterState,
    clusters: &VirtualClusters,
) -> Result<VirtualClusterChange, VirtualClusterChangeError> {
    clusters.validate()?;
    check_owners(state, clusters)?;
    let scheduler = &state.scheduler;
    let mut engine = scheduler.preview_policy(scheduler.policy(), clusters, &state.nodes)?;
    engine.handle(state.now, Event::Wake);
    let mut change = VirtualClusterChange::default();
    while let Some(command) = engine.poll() {
        match command {
            Command::Launch { job, .. } => change.starts.push(scheduler.job_id(job)),
            Command::Stop { job, .. } => change.stops.push(scheduler.job_id(job)),
            Command::Resize { .. } | Command::Reject { .. } => {}
        }
    }
    let borrowing = engine.policy().tenancy.downgraded();
    change.lent = borrowing.into_iter().map(|job| scheduler.job_id(job)).collect();
    let mut tenancy = engine.policy().tenancy.clone();
    for job in state.jobs.iter().filter(|j| j.state == JobState::Queued) {
        let spec = job
            .job_key
            .and_then(|key| engine.job(key))
            .map(|j| j.spec.clone());
        if clusters.get(&job.request.tenant).is_none()
            || spec.is_some_and(|spec| tenancy.check_feasible(&spec).is_err())
        {
            change.stranded.push(job.id);
        }
    }
    change.remarks = remarks(state, clusters);
    Ok(change)
}

/// Checks that every unfinished job belongs to a virtual cluster that owns cells, where GPUs are guaranteed as cells.
pub(super) fn check_owners(
    state: &ClusterState,
    clusters: &VirtualClusters,
) -> Result<(), VirtualClusterChangeError> {
    if clusters.mode != GuaranteeMode::Cells {
        return Ok(());
    }
    let names = clusters.names();
    let mut jobs = state.unfinished_jobs();
    match jobs.find(|job| !names.contains(&job.request.tenant)) {
        Some(job) => Err(VirtualClusterChangeError::Orphaned {
            job: job.id,
            tenant: job.request.tenant.clone(),
        }),
        None => Ok(()),
    }
}

fn remarks(state: &ClusterState, clusters: &VirtualClusters) -> Vec<String> {
    match clusters.mode {
        GuaranteeMode::Open => Vec::new(),
        GuaranteeMode::Quota => {
            let available: u64 = state.nodes.connected().map(|n| u64::from(n.spec.gpus)).sum();
            let named = clusters.named.values();
            let guaranteed: u64 = named.map(|c| u64::from(c.guaranteed_gpus)).sum();
            match guaranteed > available {
                true => vec![format!(
                    "{} guaranteed, but only {available} available: not all guarantees can be met at once",
                    count(guaranteed, "GPU")
                )],
                false => Vec::new(),
            }
        }
        GuaranteeMode::Cells => {
            let compiled = clusters.cells.as_ref().and_then(|c| c.compile().ok());
            let Some(layout) = compiled.map(|c| c.layout) else {
                return Vec::new();
            };
            let nodes = state.nodes.connected();
            let mut unused: Vec<&str> = nodes
                .filter(|n| layout.machine_named(&n.spec.name).is_none())
                .map(|n| n.spec.name.as_str())
                .collect();
            unused.sort_unstable();
            match unused.is_empty() {
                true => Vec::new(),
                false => vec![format!(
                    "in no cell and therefore not used: {}",
                    unused.join(", ")
                )],
            }
        }
    }
}
