//! Bodies of GPU usage.

use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// GPU time of a user in a virtual cluster on one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageRow {
    /// Day in UTC: `2026-11-16`.
    pub day: String,
    /// User that submitted the jobs.
    pub user: String,
    /// Virtual cluster of the jobs.
    pub tenant: String,
    /// GPU-hours.
    pub gpu_hours: f64,
    /// Number of jobs that held GPUs on that day.
    pub jobs: u64,
}

/// Utilization of a node over an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeUtilization {
    /// Node.
    pub node: String,
    /// End of the interval.
    #[schemars(with = "i64")]
    pub at: Time,
    /// Length of the interval, in seconds.
    pub interval_s: u32,
    /// Utilization of all CPUs together, in percent.
    pub cpu: f64,
    /// Largest amount of memory in use, in MiB.
    pub memory_mib: u64,
    /// Share of the time in which each GPU was busy, in percent; empty if unknown, as for virtual GPUs.
    pub gpu: Vec<f64>,
    /// Share of each GPU's streaming multiprocessors that had work, in percent; empty where DCGM does not measure it.
    pub sm: Vec<f64>,
    /// Largest amount of memory in use on each GPU, in MiB; empty if unknown.
    pub gpu_memory_mib: Vec<u32>,
    /// Bytes that disks read.
    pub disk_read_bytes: u64,
    /// Bytes that disks wrote.
    pub disk_written_bytes: u64,
    /// Bytes that network interfaces received.
    pub network_received_bytes: u64,
    /// Bytes that they sent.
    pub network_sent_bytes: u64,
}

/// GPU utilization of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuUtilization {
    /// Whether there are measurements.
    pub known: bool,
    /// Reason why there are no measurements.
    pub note: String,
    /// Mean over all GPUs of the job.
    pub mean: Vec<GpuPoint>,
    /// Utilization of each GPU; empty for jobs with many GPUs.
    pub gpus: Vec<GpuSeries>,
}

/// Measurements of one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuSeries {
    /// Node.
    pub node: String,
    /// GPU slot on the node.
    pub gpu: u32,
    /// Measurements, oldest first.
    pub points: Vec<GpuPoint>,
}

/// A measurement of GPU utilization.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuPoint {
    /// End of the measurement.
    #[schemars(with = "i64")]
    pub at: Time,
    /// Share of the time in which the GPU was busy, in percent.
    pub busy: f64,
    /// GPU memory in use, in MiB, if known.
    pub memory_mib: Option<u64>,
}
