//! The machine that is measured on: its CPUs and memory, and the bandwidth of that memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dovetail_model::CpuSet;
use dovetail_model::numa::choose_cpus;

use crate::ProfilerError;

/// CPUs, memory and load of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// CPUs that this process may use, by NUMA domain.
    pub domains: Vec<CpuSet>,
    /// Memory, in GB.
    pub memory_gb: f64,
    /// Load average of the last minute, where the system reports it.
    pub load: Option<f64>,
}

impl Machine {
    /// Reads the properties of this machine.
    ///
    /// # Errors
    /// Fails where commands cannot be bound to CPUs.
    pub fn this() -> Result<Self, ProfilerError> {
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = info.lines().find_map(|l| l.strip_prefix("MemTotal:"));
        let kib = total.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Ok(Self {
            domains: numa_domains(allowed_cpus()?),
            memory_gb: kib.unwrap_or(0.0) / (1024.0 * 1024.0),
            load: load.split_whitespace().next().and_then(|n| n.parse().ok()),
        })
    }

    /// Returns the number of CPUs that this process may use.
    pub fn cpus(&self) -> u32 {
        self.domains.iter().map(CpuSet::count).sum()
    }

    /// Chooses a number of CPUs, from one NUMA domain if possible. Returns `None` if there are too few.
    pub fn choose(&self, count: u32) -> Option<CpuSet> {
        choose_cpus(&self.domains, count, &[])
    }
}

/// Splits CPUs by NUMA domain. If the system's domains do not cover them, they are treated as one domain.
fn numa_domains(allowed: CpuSet) -> Vec<CpuSet> {
    let entries = std::fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten();
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let domain = |folder: &PathBuf| -> Option<CpuSet> {
        Some(read_cpus(folder)?.common(&allowed)).filter(|cpus| !cpus.is_empty())
    };
    let domains: Vec<CpuSet> = folders.iter().filter_map(domain).collect();
    let covered: u32 = domains.iter().map(CpuSet::count).sum();
    if covered == allowed.count() {
        domains
    } else {
        vec![allowed]
    }
}

fn read_cpus(folder: &Path) -> Option<CpuSet> {
    let text = std::fs::read_to_string(folder.join("cpulist")).ok()?;
    text.trim().parse().ok()
}

/// Measures the read bandwidth of memory with one thread, in GB/s: the best of five passes over 256 MiB, which no cache
/// holds.
pub fn memory_gbps() -> f64 {
    let words = vec![1u64; 32 << 20];
    let bytes = (words.len() * 8) as f64;
    let mut best = Duration::MAX;
    for pass in 0..5u64 {
        let start = Instant::now();
        let sum = words.iter().fold(pass, |sum, word| sum.wrapping_add(*word));
        std::hint::black_box(sum);
        best = best.min(start.elapsed());
    }
    bytes / best.as_secs_f64().max(1e-9) / f64::from(1 << 30)
}

/// Returns the CPUs that this process may use.
#[cfg(target_os = "linux")]
fn allowed_cpus() -> Result<CpuSet, ProfilerError> {
    use rustix::thread::{CpuSet as Mask, sched_getaffinity};
    let mask = sched_getaffinity(None).map_err(|e| ProfilerError::ReadAffinity(e.into()))?;
    Ok((0..Mask::MAX_CPU)
        .filter(|cpu| mask.is_set(*cpu))
        .map(|cpu| cpu as u32)
        .collect())
}

/// Binds the calling thread, and the processes it starts from now on.
#[cfg(target_os = "linux")]
pub(crate) fn bind(cpus: &CpuSet) -> Result<(), ProfilerError> {
    use rustix::thread::{CpuSet as Mask, sched_setaffinity};
    let mut mask = Mask::new();
    cpus.iter().for_each(|cpu| mask.set(cpu as usize));
    sched_setaffinity(None, &mask).map_err(|e| ProfilerError::BindCpus {
        cpus: cpus.clone(),
        source: e.into(),
    })
}

#[cfg(not(target_os = "linux"))]
fn allowed_cpus() -> Result<CpuSet, ProfilerError> {
    Err(ProfilerError::Unsupported)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn bind(_: &CpuSet) -> Result<(), ProfilerError> {
    Err(ProfilerError::Unsupported)
}
