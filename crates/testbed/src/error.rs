//! Errors of a run of the test bed.

use std::io;
use std::path::PathBuf;

use dovetail_client::ClientError;
use dovetail_console::{Failure, ScratchError};
use dovetail_experiment::ExperimentError;
use dovetail_jobfile::KeyError;
use dovetail_policies::PolicyError;
use dovetail_reproduce::ReproduceError;
use dovetail_workload::TraceError;

/// Why the test bed could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The public data is missing.
    #[error(transparent)]
    Data(Box<ReproduceError>),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(Box<TraceError>),
    /// A policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The forecast failed.
    #[error("the forecast failed: {0}")]
    Forecast(Box<ExperimentError>),
    /// A job of the trace lacks what a run needs.
    #[error("{file}: job {job}: missing {column}")]
    Incomplete {
        /// The trace.
        file: String,
        /// The job.
        job: String,
        /// The missing column.
        column: &'static str,
    },
    /// The scale is not a usable number.
    #[error("--scale: found {found}, expected a number above 0 and at most 1")]
    InvalidScale {
        /// The scale.
        found: f64,
    },
    /// A script or interpreter that was named does not exist.
    #[error("--{flag}: {}: no such file", path.display())]
    MissingFile {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The trainer that was named cannot run.
    #[error("--trainer requires PyTorch, which `{}` does not find: {reason}", python.display())]
    NoTorch {
        /// The interpreter.
        python: PathBuf,
        /// What it printed.
        reason: String,
    },
    /// Jobs cannot run without Python.
    #[error("no python3 found: the trainers are Python scripts; name an interpreter with --python PROGRAM")]
    NoPython,
    /// The temporary folder cannot be created.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The server cannot be started.
    #[error("cannot start the cluster: {0}")]
    Start(io::Error),
    /// The server ended at once.
    #[error("the cluster did not start: {log}")]
    NotStarted {
        /// What it wrote to standard error.
        log: String,
    },
    /// The nodes of an existing cluster cannot be used.
    #[error("the cluster at {server} cannot be used: {reason}")]
    Unsuitable {
        /// Address of the server.
        server: String,
        /// Why.
        reason: String,
    },
    /// The server cannot be reached, or rejected a request.
    #[error(transparent)]
    Client(Box<ClientError>),
    /// A generated job is invalid.
    #[error("job {job} of the trace: {source}")]
    InvalidJob {
        /// The job.
        job: String,
        /// Why.
        source: KeyError,
    },
    /// A job did not complete.
    #[error("job {job} of the trace ({model}): {detail}{log}")]
    JobFailed {
        /// The job.
        job: String,
        /// Its model.
        model: String,
        /// How it ended.
        detail: String,
        /// The end of its log, on lines of their own.
        log: String,
    },
    /// No steps of a model were reported.
    #[error("no profile of {model} on {gpus} GPUs: its jobs reported no steps")]
    NoProfile {
        /// The model.
        model: String,
        /// Number of GPUs.
        gpus: u32,
    },
    /// The jobs did not end in time.
    #[error("timeout: {unfinished} of {jobs} jobs had not ended after {limit_s} s under {policy}")]
    Timeout {
        /// Number of jobs that have not ended.
        unfinished: usize,
        /// Number of jobs.
        jobs: usize,
        /// The bound.
        limit_s: u64,
        /// The policy.
        policy: String,
    },
    /// SIGINT or SIGTERM.
    #[error("interrupted; all jobs were stopped")]
    Interrupted,
}

/// Errors of other crates are large, so they are boxed.
macro_rules! boxed {
    ($($variant:ident($error:ty),)*) => {
        $(impl From<$error> for TestbedError {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed! {
    Data(ReproduceError),
    Forecast(ExperimentError),
    Client(ClientError),
    Trace(TraceError),
}

impl TestbedError {
    /// Returns whether the request was wrong, rather than the work failed.
    fn is_request(&self) -> bool {
        match self {
            Self::Data(error) => error.is_request(),
            Self::Client(error) => error.is_request(),
            Self::Forecast(error) => !error.is_failed_work(),
            Self::Trace(_)
            | Self::Policy(_)
            | Self::Incomplete { .. }
            | Self::InvalidScale { .. }
            | Self::MissingFile { .. }
            | Self::NoTorch { .. }
            | Self::NoPython
            | Self::Unsuitable { .. } => true,
            Self::Scratch(_)
            | Self::Start(_)
            | Self::NotStarted { .. }
            | Self::InvalidJob { .. }
            | Self::JobFailed { .. }
            | Self::NoProfile { .. }
            | Self::Timeout { .. }
            | Self::Interrupted => false,
        }
    }
}

impl From<TestbedError> for Failure {
    fn from(error: TestbedError) -> Self {
        if error.is_request() {
            Self::Request(error.into())
        } else {
            Self::Work(error.into())
        }
    }
}
