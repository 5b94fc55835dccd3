//! Workloads: trace readers and writers, generators, model profiles and cluster files.

pub mod job;

pub use job::{JobLabel, Names, TraceJob, Workload};
