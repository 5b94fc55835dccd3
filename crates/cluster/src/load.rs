//! How busy nodes are, as their agents tell.

use dovetail_model::Time;

/// How busy a node was for a while.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadPoint {
    /// When that was over.
    pub at: Time,
    /// Of each GPU, the part of the time it did something, in percent; empty if nobody knows.
    pub gpu_busy: Vec<u8>,
    /// Memory in use on each GPU, in MiB; empty if nobody knows.
    pub gpu_memory_mib: Vec<u32>,
    /// Of all CPUs together, in percent.
    pub cpu_busy: u8,
    /// Memory in use, in MiB.
    pub memory_mib: u64,
}
