//! Why an experiment could not be set up, or failed.

use std::path::PathBuf;

use dovetail_hived::ConfigError;
use dovetail_policies::PolicyError;
use dovetail_sim::SimError;
use dovetail_sim::compat::{BloxError, MuriError, SynergyError};
use dovetail_sim::failures::FailureFileError;
use dovetail_workload::format::UnknownFormatName;
use dovetail_workload::quota::QuotaError;
use dovetail_workload::{ClusterError, GenerateError, ProfileError, RescaleError, TraceError};

use crate::scenario::ScenarioError;

/// Why an experiment could not be set up, or failed. Settings are named by their key in a scenario file.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The simulation of the past of a cluster ended without a job that finished.
    #[error("no job finished in the simulator")]
    NothingFinished,
    /// A setting has an invalid value.
    #[error("{key}: found {found}, expected {expected}")]
    InvalidSetting {
        /// The setting.
        key: &'static str,
        /// Its value.
        found: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// A list has no items.
    #[error("{key}: expected at least one {item}")]
    EmptyList {
        /// The setting.
        key: &'static str,
        /// What it lists.
        item: &'static str,
    },
    /// Two settings exclude each other.
    #[error("{key} cannot be used with {other}")]
    Conflict {
        /// The setting.
        key: &'static str,
        /// The setting that excludes it.
        other: &'static str,
    },
    /// A setting has no meaning without another.
    #[error("{key} requires {other}")]
    Requires {
        /// The setting.
        key: &'static str,
        /// The missing setting.
        other: &'static str,
    },
    /// A tenant of the workload is not a virtual cluster.
    #[error(
        "tenancy cells: tenant `{tenant}` of the workload is not a virtual cluster of {file}: expected one of {}",
        known.join(", ")
    )]
    UnknownVirtualCluster {
        /// The tenant.
        tenant: String,
        /// The file with the virtual clusters.
        file: String,
        /// The virtual clusters.
        known: Vec<String>,
    },
    /// The cluster is smaller than the guarantees of all tenants.
    #[error("tenancy quota: guarantees of {guaranteed} GPUs exceed the {gpus} GPUs of the cluster")]
    ExcessiveGuarantees {
        /// Guaranteed GPUs of all tenants.
        guaranteed: u64,
        /// GPUs of the cluster.
        gpus: u32,
    },
    /// Tenants with jobs have no share.
    #[error(
        "tenancy quota: missing share for {}: add TENANT=GPUS for {}, or default=GPUS for all others",
        in_backticks(tenants),
        if tenants.len() == 1 { "it" } else { "each" }
    )]
    MissingShare {
        /// The tenants.
        tenants: Vec<String>,
    },
    /// The workload has no job of this name.
    #[error("{name}: unknown job: expected a name from the workload such as {example}")]
    UnknownJob {
        /// The name.
        name: String,
        /// The name of a job.
        example: String,
    },
    /// A file is not readable.
    #[error("cannot read {what} {}: {source}", path.display())]
    Unreadable {
        /// What the file holds.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A scenario file has invalid content.
    #[error("{}: {source}", path.display())]
    ScenarioFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ScenarioError,
    },
    /// A scenario has a key that does not apply.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The format of a trace is unknown.
    #[error(transparent)]
    TraceFormat(#[from] UnknownFormatName),
    /// A trace is invalid.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A generator is unknown or got invalid parameters.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Arrivals cannot be rescaled.
    #[error(transparent)]
    Rescale(#[from] RescaleError),
    /// The cluster is invalid.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Profiles or sensitivity tables are invalid.
    #[error(transparent)]
    Profiles(#[from] ProfileError),
    /// A file of outages is invalid.
    #[error(transparent)]
    Failures(#[from] FailureFileError),
    /// A file of quotas is invalid.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// A file of virtual clusters is invalid.
    #[error(transparent)]
    VirtualClusters(#[from] ConfigError),
    /// The policy, or one of its parts, is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Blox does not have this combination.
    #[error(transparent)]
    Blox(#[from] BloxError),
    /// Muri's simulator does not have this combination.
    #[error(transparent)]
    Muri(#[from] MuriError),
    /// Synergy's simulator does not have this combination.
    #[error(transparent)]
    Synergy(#[from] SynergyError),
    /// The threads of a comparison cannot be created.
    #[error(transparent)]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The run is not possible, or failed.
    #[error(transparent)]
    Run(#[from] SimError),
}

impl ExperimentError {
    /// Returns whether a valid request failed. Every other error is an error in the request.
    pub fn is_failed_work(&self) -> bool {
        match self {
            Self::Run(error) => match error {
                SimError::Invariant { .. } | SimError::Stuck { .. } => true,
                SimError::NotEnoughKnowledge { .. } | SimError::Empty(_) | SimError::Unsupported(_) => false,
            },
            _ => false,
        }
    }

    /// Creates the error of a setting whose value is a text.
    pub(crate) fn invalid_text(key: &'static str, text: &str, expected: &'static str) -> Self {
        Self::InvalidSetting {
            key,
            found: format!("`{text}`"),
            expected,
        }
    }
}

fn in_backticks(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    quoted.join(", ")
}
