//! Utilization of nodes, as their agents report it.

use dovetail_model::Time;

/// Utilization of a node over an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadPoint {
    /// End of the interval.
    pub at: Time,
    /// Utilization of each GPU in percent; empty if unknown.
    pub gpu_busy: Vec<u8>,
    /// Memory in use on each GPU, in MiB; empty if unknown.
    pub gpu_memory_mib: Vec<u32>,
    /// Utilization of all CPUs together in percent.
    pub cpu_busy: u8,
    /// Memory in use, in MiB.
    pub memory_mib: u64,
    /// Share of each GPU's streaming multiprocessors that had work, in percent; empty if unknown.
    pub sm_active: Vec<u8>,
    /// Bytes that disks read in the interval.
    pub disk_read_bytes: u64,
    /// Bytes that disks wrote.
    pub disk_written_bytes: u64,
    /// Bytes that network interfaces received.
    pub network_received_bytes: u64,
    /// Bytes that they sent.
    pub network_sent_bytes: u64,
}

impl LoadPoint {
    /// Length of the interval.
    pub const INTERVAL: Time = Time::from_secs(30);
}
