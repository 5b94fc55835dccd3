//! Errors of measurements.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use dovetail_console::Failure;
use dovetail_model::CpuSet;
use dovetail_model::sensitivity::SensitivityError;
use dovetail_workload::profiles::ProfileError;

/// Amounts must be below this; larger ones are typing errors.
pub(crate) const LARGEST_AMOUNT: f64 = 1e9;

/// Why a command cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProfilerError {
    /// An amount is out of range.
    #[error("{flag}: found {value}, expected a number above 0 and below {LARGEST_AMOUNT:e}")]
    AmountOutOfRange {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: f64,
    },
    /// A number of CPUs is out of range.
    #[error("--cpus: found {found}, expected numbers from 1 to {available}, the CPUs of this machine")]
    CpusOutOfRange {
        /// The number.
        found: u32,
        /// CPUs that this process may use.
        available: u32,
    },
    /// The pattern is not a regular expression.
    #[error("--pattern: {source} in {pattern:?}")]
    InvalidPattern {
        /// The pattern.
        pattern: String,
        /// The error of the parser.
        source: regex_lite::Error,
    },
    /// A cached share is not a percentage.
    #[error("--cache: expected percentages from 0 to 100")]
    InvalidCacheShare,
    /// The existing table cannot be read.
    #[error(transparent)]
    Table(#[from] ProfileError),
    /// The existing table is relative to other amounts of CPU and memory.
    #[error(
        "{}: speed is 1 at {theirs} per GPU there, but at {ours} here; pass the same --share-cpus and --share-gb, or \
         another file", path.display()
    )]
    OtherShare {
        /// File of the table.
        path: PathBuf,
        /// CPUs and memory in the table.
        theirs: String,
        /// CPUs and memory of this run.
        ours: String,
    },
    /// This system cannot bind commands to CPUs.
    #[error("commands can be bound to CPUs on Linux only")]
    Unsupported,
    /// The CPUs of this process cannot be read.
    #[error("cannot read the CPU affinity of this process: {0}")]
    ReadAffinity(io::Error),
    /// The command cannot be bound to CPUs.
    #[error("cannot bind to CPUs {cpus}: {source}")]
    BindCpus {
        /// The CPUs.
        cpus: CpuSet,
        /// Why.
        source: io::Error,
    },
    /// The progress file of an earlier run cannot be emptied.
    #[error("cannot empty {}: {source}", path.display())]
    ResetProgress {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The command cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The state of the command cannot be read.
    #[error("cannot wait for {program}: {source}")]
    Wait {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The command failed.
    #[error("{program} failed with {status}: {output}")]
    CommandFailed {
        /// The program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its last lines on standard error.
        output: String,
    },
    /// The command reported too few iterations to compute a rate.
    #[error("{program} reported {reports} iterations, too few to measure: {expected}{output}")]
    TooFewIterations {
        /// The program.
        program: String,
        /// Number of reports.
        reports: usize,
        /// What the command was expected to print.
        expected: String,
        /// Its last lines on standard error, if any.
        output: String,
    },
    /// The group of the pattern matched something else than a number.
    #[error("--pattern: the group matched {found:?}, expected a number of iterations")]
    NotANumber {
        /// The matched text.
        found: String,
    },
    /// The measured rates do not make a curve.
    #[error(transparent)]
    Curve(#[from] SensitivityError),
}

impl ProfilerError {
    /// Returns whether the request was wrong, rather than the work failed.
    pub fn is_request(&self) -> bool {
        matches!(
            self,
            Self::AmountOutOfRange { .. }
                | Self::CpusOutOfRange { .. }
                | Self::InvalidPattern { .. }
                | Self::InvalidCacheShare
                | Self::Table(_)
                | Self::OtherShare { .. }
        )
    }
}

impl From<ProfilerError> for Failure {
    fn from(error: ProfilerError) -> Self {
        if error.is_request() {
            Self::Request(error.into())
        } else {
            Self::Work(error.into())
        }
    }
}
