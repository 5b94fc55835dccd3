//! Errors of the cluster state.

use dovetail_cells::Fault;
use dovetail_engine::{CheckError, LoadError};
use dovetail_model::Reason;
use dovetail_policies::PolicyError;

use super::jobs::JobState;
use crate::JobId;
use crate::virtual_clusters::VirtualClustersError;

/// Why a policy cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyTextError {
    /// A part of a kind that does not exist.
    #[error(
        "unknown part `{0}` of a policy; expected admission, order, discipline, sizing, grouping, placement or tenancy"
    )]
    UnknownPart(String),
    /// A tenancy was named.
    #[error(
        "tenancy \"{0}\" must not be set: on a live cluster it follows from the virtual clusters; see `dovetail vc`"
    )]
    Tenancy(String),
    /// The policy or one of its parts is wrong.
    #[error(transparent)]
    Policy(Box<PolicyError>),
    /// GPUs are guaranteed as cells, and there are none.
    #[error("cells: missing; expected HiveD's configuration")]
    MissingCells,
    /// The cells are wrong.
    #[error("{}", join(.0, "; "))]
    Cells(Vec<Fault>),
    /// The allocations of running jobs contradict it.
    #[error("running jobs contradict the policy: {0}")]
    RunningJobs(String),
}

/// Why the virtual clusters cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VirtualClusterChangeError {
    /// The new virtual clusters are wrong.
    #[error(transparent)]
    Invalid(#[from] VirtualClustersError),
    /// A job would belong to a virtual cluster without cells.
    #[error(
        "job {job} has not ended and belongs to virtual cluster {tenant}, which would own no cells; stop the job first, or \
         give {tenant} some cells"
    )]
    Orphaned {
        /// Number of the job.
        job: JobId,
        /// Its virtual cluster.
        tenant: String,
    },
    /// The policy cannot be built for them.
    #[error(transparent)]
    Policy(#[from] PolicyTextError),
}

/// Why a snapshot cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It is not in the expected format.
    #[error(transparent)]
    Format(#[from] serde_json::Error),
    /// Its policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyTextError),
    /// A part of the policy does not accept its saved state.
    #[error(transparent)]
    Engine(#[from] LoadError),
}

impl From<PolicyError> for PolicyTextError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(Box::new(error))
    }
}

/// An invariant of the cluster state that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InconsistentState {
    /// An invariant of the engine.
    #[error(transparent)]
    Engine(#[from] CheckError),
    /// The index of jobs that hold GPUs contradicts the state of a job.
    #[error("job {job} is {state:?}, but the index of active jobs disagrees")]
    ActiveIndex {
        /// Number of the job.
        job: JobId,
        /// Its state.
        state: Box<JobState>,
    },
    /// The engine has a job that it should not have, or does not have one that it should.
    #[error("job {job} is {state:?}, but the engine {}", if *.in_engine { "has it" } else { "does not have it" })]
    EngineJob {
        /// Number of the job.
        job: JobId,
        /// Its state.
        state: Box<JobState>,
        /// Whether the engine has it.
        in_engine: bool,
    },
}

/// Why a job could never run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Infeasible {
    /// Its virtual cluster is not guaranteed enough.
    #[error("gpus: {text}")]
    Guarantee {
        /// What is missing.
        reason: Box<Reason>,
        /// The reason with names.
        text: String,
    },
    /// The nodes could not run it if they were empty.
    #[error("gpus: {text}; ask for fewer, for another gpu_type, or for less CPU and memory")]
    Nodes {
        /// What is missing.
        reason: Box<Reason>,
        /// The reason with names.
        text: String,
    },
    /// No node has GPUs of this type.
    #[error("gpu_type: no GPU of type `{gpu_type}` in this cluster; available: {}", list_gpu_types(.available))]
    UnknownGpuType {
        /// The type that was requested.
        gpu_type: String,
        /// The types there are, with their numbers of GPUs.
        available: Vec<(String, u32)>,
    },
}

fn list_gpu_types(available: &[(String, u32)]) -> String {
    let types: Vec<String> = available
        .iter()
        .map(|(name, gpus)| format!("{name} ({gpus})"))
        .collect();
    types.join(", ")
}

fn join(faults: &[Fault], separator: &str) -> String {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    faults.join(separator)
}
