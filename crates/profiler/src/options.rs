//! The options of `dovetail profile run`.

use std::path::PathBuf;

/// Options of a measurement.
#[derive(Debug, Clone)]
pub struct Options {
    /// Command and arguments.
    pub command: Vec<String>,
    /// Name of the model in the table; the name of the command if not given.
    pub model: Option<String>,
    /// GPUs that the command uses.
    pub gpus: u32,
    /// Numbers of CPUs to measure at; chosen while measuring if empty.
    pub cpus: Vec<u32>,
    /// Time to measure at each number of CPUs, from the first iteration on, in seconds.
    pub seconds: f64,
    /// Time to wait for the first iteration, in seconds.
    pub patience: f64,
    /// Pattern of the lines that are iterations.
    pub pattern: Option<String>,
    /// File in which the command keeps its number of iterations.
    pub progress: Option<PathBuf>,
    /// Size of the data set, in GB.
    pub dataset_gb: Option<f64>,
    /// Iterations per epoch.
    pub epoch_iterations: Option<f64>,
    /// Cached shares of the data set to compute speeds for, in percent.
    pub cache: Vec<f64>,
    /// Disk bandwidth, in MB/s.
    pub disk_mbps: f64,
    /// Memory bandwidth, in GB/s; measured if not given.
    pub mem_gbps: Option<f64>,
    /// CPUs per GPU at which the speed is 1.
    pub share_cpus: Option<f64>,
    /// Memory per GPU at which the speed is 1, in GB.
    pub share_gb: Option<f64>,
    /// File of the table.
    pub out: Option<PathBuf>,
    /// File of the drawn curve.
    pub svg: Option<PathBuf>,
    /// Whether the result is printed as JSON.
    pub json: bool,
    /// Whether progress and notes are hidden.
    pub quiet: bool,
}
