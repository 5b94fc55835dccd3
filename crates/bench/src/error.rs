//! Errors of benchmarks.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use dovetail_client::ClientError;
use dovetail_cluster::{DriverError, Refusal};
use dovetail_console::{Failure, ScratchError};
use dovetail_hub::AuthorityError;
use dovetail_kubelab::LabError;
use dovetail_policies::PolicyError;
use dovetail_sim::SimError;
use dovetail_sim::compat::BloxError;
use dovetail_web::{AuditError, UsersError};
use dovetail_workload::TraceError;
use dovetail_workload::generate::GenerateError;

/// Why a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A recorded workload cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of a recorded workload is not JSON.
    #[error("{}: {source}", path.display())]
    InvalidRecording {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// A workload cannot be generated.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy of Blox cannot be built.
    #[error(transparent)]
    Blox(#[from] BloxError),
    /// A simulation failed.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A temporary folder cannot be created.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The driver of the live cluster cannot be opened.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The live cluster refused a request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Certificates cannot be created.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// Users cannot be created.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The audit log cannot be created.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A request to the scheduler failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The Kubernetes control plane failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A request to the Kubernetes API server failed.
    #[error(transparent)]
    Kubernetes(#[from] dovetail_kubeapi::Error),
    /// A step of the benchmark failed.
    #[error("cannot {step}: {source}")]
    Step {
        /// The step, as in "cannot STEP".
        step: String,
        /// Why it failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An expected event did not happen in time.
    #[error("timed out after {seconds} s: {expected}")]
    Timeout {
        /// The expected event.
        expected: String,
        /// Time limit, in seconds.
        seconds: u64,
    },
    /// The measured system did not behave as expected.
    #[error("{0}")]
    Unexpected(String),
}

impl BenchError {
    /// Returns whether the request was wrong, rather than the work failed.
    pub fn is_request(&self) -> bool {
        matches!(
            self,
            Self::Trace(_) | Self::Recording { .. } | Self::InvalidRecording { .. }
        )
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        if error.is_request() {
            Self::Request(error.into())
        } else {
            Self::Work(error.into())
        }
    }
}

/// Names the step that failed.
pub(crate) trait StepResult<T> {
    /// Turns the error into [`BenchError::Step`]; `step` completes "cannot ...".
    fn step(self, step: &str) -> Result<T, BenchError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> StepResult<T> for Result<T, E> {
    fn step(self, step: &str) -> Result<T, BenchError> {
        self.map_err(|error| BenchError::Step {
            step: step.to_owned(),
            source: error.into(),
        })
    }
}
