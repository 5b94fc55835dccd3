//! Errors of experiments.

use std::io;
use std::path::PathBuf;

use dovetail_console::Failure;
use dovetail_hived::ConfigError;
use dovetail_policies::PolicyError;
use dovetail_report::ReportError;
use dovetail_sim::SimError;
use dovetail_sim::compat::{BloxError, MuriError, SynergyError};
use dovetail_workload::TraceError;
use dovetail_workload::cluster::ClusterError;
use dovetail_workload::generate::GenerateError;
use dovetail_workload::openpai::OpenPaiError;
use dovetail_workload::rescale::RescaleError;
use dovetail_yaml::YamlError;

/// Why an experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// There is no experiment of this name.
    #[error("unknown experiment `{name}`{hint}; expected one of {known}")]
    UnknownExperiment {
        /// The name.
        name: String,
        /// Similar names, if there are any.
        hint: String,
        /// All names.
        known: String,
    },
    /// The experiment runs on a live cluster.
    #[error("muri-testbed runs jobs on a live cluster: add --live; muri-table3 simulates the same test bed")]
    NeedsLive,
    /// A folder of the public data is missing.
    #[error(
        "missing folder {}: this experiment needs the public traces; name their folder with --data DIR or DOVETAIL_SHARED",
        path.display()
    )]
    MissingData {
        /// The folder.
        path: PathBuf,
    },
    /// A published table cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    ReadTable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A published table lacks a column.
    #[error("{}: missing column `{column}`; found {found}", path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The columns that are there.
        found: String,
    },
    /// A field of a published table is not a number.
    #[error("{}:{line}: field {column}: found `{found}`, expected a number", path.display())]
    InvalidNumber {
        /// The file.
        path: PathBuf,
        /// Line in the file, from 1.
        line: usize,
        /// The column.
        column: String,
        /// The field.
        found: String,
    },
    /// A job of Lab 6 is missing.
    #[error("{}: missing job {job}; expected the eight jobs of the lab", path.display())]
    MissingLabJob {
        /// The file.
        path: PathBuf,
        /// Name of the job.
        job: String,
    },
    /// A job of Lab 6 has several task roles.
    #[error("{job}: found {roles} task roles, expected one")]
    TaskRoles {
        /// Name of the job.
        job: String,
        /// Number of its roles.
        roles: usize,
    },
    /// No SKU of a HiveD configuration satisfies the request of a role.
    #[error("{config}: no entry of skuTypes satisfies the request of role {role}")]
    NoSku {
        /// File of the configuration.
        config: String,
        /// Name of the role.
        role: String,
    },
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A HiveD configuration cannot be read.
    #[error(transparent)]
    Hived(#[from] ConfigError),
    /// OpenPAI jobs cannot be read.
    #[error(transparent)]
    OpenPai(#[from] OpenPaiError),
    /// A generated configuration is invalid.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// A generated configuration has faults.
    #[error("invalid virtual clusters: {0}")]
    Cells(String),
    /// A workload cannot be generated.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The arrivals of a trace cannot be rescaled.
    #[error(transparent)]
    Rescale(#[from] RescaleError),
    /// A policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy of Blox cannot be built.
    #[error(transparent)]
    Blox(#[from] BloxError),
    /// A policy of Muri's simulator cannot be built.
    #[error(transparent)]
    Muri(#[from] MuriError),
    /// A policy of Synergy's simulator cannot be built.
    #[error(transparent)]
    Synergy(#[from] SynergyError),
    /// A simulation failed.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The data of the report cannot be encoded.
    #[error("cannot encode the data of the report: {0}")]
    Encode(#[from] serde_json::Error),
    /// A statement does not hold.
    #[error("not reproduced: {0}")]
    NotReproduced(String),
}

impl ReproduceError {
    /// Returns whether the request was wrong, rather than the work failed.
    pub fn is_request(&self) -> bool {
        matches!(
            self,
            Self::UnknownExperiment { .. }
                | Self::NeedsLive
                | Self::MissingData { .. }
                | Self::ReadTable { .. }
                | Self::MissingColumn { .. }
                | Self::InvalidNumber { .. }
                | Self::MissingLabJob { .. }
                | Self::TaskRoles { .. }
                | Self::NoSku { .. }
                | Self::Trace(_)
                | Self::Cluster(_)
                | Self::Hived(_)
                | Self::OpenPai(_)
        )
    }
}

impl From<ReproduceError> for Failure {
    fn from(error: ReproduceError) -> Self {
        if error.is_request() {
            Self::Request(error.into())
        } else {
            Self::Work(error.into())
        }
    }
}
