//! Workloads: trace readers and writers, generators, model profiles and cluster files.
//!
//! [`read()`] reads any of the public traces in [`Format`] into a [`Workload`]; [`parse_cluster`] parses `32x4` or a file
//! into a `ClusterSpec`. An error in a file names the place, the value found and the accepted values. Choices of a reader,
//! such as rows that it skips, are in [`Workload::notes`].

mod date;
mod decimal;

pub mod cluster;
pub mod compression;
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
pub mod stage_group;
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
pub use sensitivity::{SensitivityProfile, SensitivityTable, StatedIdeal, join_sensitivity};
pub use stage_group::StageGroup;
pub use stage_table::{StageLookupError, StageProfile, StageTable};
pub use stats::WorkloadStats;
pub use write::{WriteError, encode, write};
