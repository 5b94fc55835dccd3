//! Workloads: trace readers and writers, generators, model profiles and cluster files.
//!
//! [`read()`] takes any of the public traces in [`Format`] and gives a [`Workload`]; [`parse_cluster`] takes `32x4` or a
//! file and gives a `ClusterSpec`. Every mistake in a file is an error that names the place, what was found and what
//! would be accepted; what a reader decides on its own, such as rows it leaves out, is in [`Workload::notes`].

mod date;
mod decimal;

pub mod cluster;
pub mod error;
pub mod format;
pub mod generate;
pub mod job;
pub mod openpai;
pub mod profiles;
pub mod profiling;
pub mod quota;
pub mod read;
pub mod rescale;
pub mod sensitivity;
pub mod stage_table;
pub mod stages;
pub mod stats;
pub mod write;

pub use cluster::{ClusterError, describe_cluster, parse_cluster};
pub use error::TraceError;
pub use format::Format;
pub use generate::{GenerateError, GenerateSpec, generate};
pub use job::{JobLabel, Names, TraceJob, Workload};
pub use openpai::{OpenPaiError, PaiJob, PaiRole, parse_openpai, read_openpai};
pub use profiles::{ModelProfile, ProfileError, Profiles};
pub use read::{read, read_from};
pub use rescale::RescaleError;
pub use sensitivity::{SensitivityProfile, SensitivityTable, StatedIdeal};
pub use stage_table::{StageLookupError, StageProfile, StageTable};
pub use stats::WorkloadStats;
pub use write::{WriteError, write};
