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
