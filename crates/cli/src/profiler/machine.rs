//! The machine that is measured on: its CPUs, its memory, and how fast that is read.

use std::time::{Duration, Instant};

use dovetail_model::CpuSet;
use dovetail_model::numa::choose_cpus;

/// What there is to measure on.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// CPUs this program may use, by NUMA domain.
    pub domains: Vec<CpuSet>,
    /// Memory, in GB.
    pub memory_gb: f64,
    /// How many threads of others wanted a CPU in the last minute, where that is known.
    pub load: Option<f64>,
}

impl Machine {
    /// This one.
    ///
    /// # Errors
    /// Where commands cannot be bound to CPUs.
    pub fn this() -> anyhow::Result<Self> {
        let allowed = allowed()?;
        let lists = std::fs::read_dir("/sys/devices/system/node")
            .into_iter()
            .flatten();
        let mut nodes: Vec<_> = lists.flatten().map(|entry| entry.path()).collect();
        nodes.sort();
        let domain = |path: &std::path::PathBuf| -> Option<CpuSet> {
            let text = std::fs::read_to_string(path.join("cpulist")).ok()?;
            let cpus: CpuSet = text.trim().parse().ok()?;
            Some(cpus.common(&allowed)).filter(|cpus| !cpus.is_empty())
        };
        let mut domains: Vec<CpuSet> = nodes.iter().filter_map(domain).collect();
        let in_domains: u32 = domains.iter().map(CpuSet::count).sum();
        if in_domains != allowed.count() {
            domains = vec![allowed];
        }
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = info.lines().find_map(|l| l.strip_prefix("MemTotal:"));
        let kb = total.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Ok(Self {
            domains,
            load: load.split_whitespace().next().and_then(|n| n.parse().ok()),
            memory_gb: kb.unwrap_or(0.0) / (1024.0 * 1024.0),
        })
    }

    /// CPUs this program may use.
    pub fn cpus(&self) -> u32 {
        self.domains.iter().map(CpuSet::count).sum()
    }

    /// So many of them, of one NUMA domain where that is possible; none if there are not so many.
    pub fn choose(&self, count: u32) -> Option<CpuSet> {
        choose_cpus(&self.domains, count, &[])
    }
}

/// How fast one thread reads memory, in GB/s: the best of several passes over more than any cache holds.
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

#[cfg(target_os = "linux")]
fn allowed() -> anyhow::Result<CpuSet> {
    use rustix::thread::{CpuSet as Mask, sched_getaffinity};
    let mask = sched_getaffinity(None)?;
    Ok((0..Mask::MAX_CPU)
        .filter(|cpu| mask.is_set(*cpu))
        .map(|cpu| cpu as u32)
        .collect())
}

/// Binds the calling thread, and what it starts from now on.
#[cfg(target_os = "linux")]
pub(super) fn bind(cpus: &CpuSet) -> anyhow::Result<()> {
    use anyhow::Context;
    use rustix::thread::{CpuSet as Mask, sched_setaffinity};
    let mut mask = Mask::new();
    cpus.iter().for_each(|cpu| mask.set(cpu as usize));
    sched_setaffinity(None, &mask).with_context(|| format!("cannot bind to CPUs {cpus}"))
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> anyhow::Result<CpuSet> {
    Err(anyhow::anyhow!("commands can be bound to CPUs on Linux only"))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn bind(_: &CpuSet) -> anyhow::Result<()> {
    allowed().map(drop)
}
