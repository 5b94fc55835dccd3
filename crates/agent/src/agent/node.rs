//! Hardware of the node and how tasks are confined on it.

use std::path::PathBuf;

use dovetail_proto::v1::{Gpu, Hardware, Heartbeat, NumaDomain};

use crate::config::AgentConfig;
use crate::hardware::gpus::{self, GpuDriver};
use crate::hardware::mps;
use crate::hardware::system::{IoBytes, System};
use crate::task::cgroup::Cgroups;
use crate::task::container;
use crate::task::cpus::CpuAllocator;

/// The hardware of the node.
pub(crate) struct NodeResources {
    system: System,
    gpu_driver: Box<dyn GpuDriver>,
    pub(crate) gpus: Vec<Gpu>,
    /// CPUs of each NUMA domain.
    domains: Vec<Vec<u32>>,
    pub(crate) cpus: CpuAllocator,
    /// Busy and total CPU ticks at the last heartbeat.
    cpu_ticks: (u64, u64),
    /// Bytes of disks and network at the last heartbeat.
    io: IoBytes,
    /// Parent of the tasks' cgroups; `None` where tasks are bound to CPUs instead.
    pub(crate) cgroups: Option<Cgroups>,
    /// Folder of the MPS daemon, if it runs.
    pub(crate) mps: Option<String>,
    /// Program of the container runtime, if there is one.
    pub(crate) container_runtime: Option<PathBuf>,
}

impl NodeResources {
    pub(crate) fn detect(config: &AgentConfig, identity: u64) -> Self {
        let system = System::here();
        let domains = system.domains();
        let mut gpu_driver = gpus::driver(&config.node, config.virtual_gpus);
        let cgroups = match Cgroups::open(config.cgroup.as_deref(), identity) {
            Ok(groups) => Some(groups),
            Err(e) => {
                tracing::warn!(
                    "cgroups are not available, so tasks are bound to CPUs and have no memory limit: {e}"
                );
                None
            }
        };
        Self {
            cpu_ticks: system.cpu_ticks(),
            io: system.io_bytes(),
            system,
            gpus: gpu_driver.gpus(),
            gpu_driver,
            cpus: CpuAllocator::new(domains.clone()),
            domains,
            cgroups,
            mps: mps::pipe(),
            container_runtime: match &config.container_runtime {
                None => container::runtime(),
                Some(program) if program.as_os_str() == "none" => None,
                Some(program) => Some(program.clone()),
            },
        }
    }

    /// Returns how CPU limits are enforced: `cgroup`, `cgroup-v1` or `affinity`.
    pub(crate) fn limits(&self) -> &'static str {
        self.cgroups.as_ref().map_or("affinity", Cgroups::name)
    }

    /// Returns all CPUs that tasks may use.
    pub(crate) fn all_cpus(&self) -> Vec<u32> {
        self.domains.concat()
    }

    /// Returns the NUMA domain nearest to the first GPU slot of a task.
    pub(crate) fn nearest_domain(&self, slots: &[u32]) -> Option<usize> {
        let gpu = self.gpus.get(*slots.first()? as usize)?;
        (gpu.numa as usize).checked_sub(1)
    }

    /// Reads the state of the GPUs and describes the node, for `Hello`.
    pub(crate) fn describe(&mut self, config: &AgentConfig) -> Hardware {
        self.gpus = self.gpu_driver.gpus();
        let mut labels = config.labels.clone();
        labels.insert("dovetail.limits".to_owned(), self.limits().to_owned());
        let numa = |cpus: &Vec<u32>| NumaDomain { cpus: cpus.clone() };
        Hardware {
            gpus: self.gpus.clone(),
            cpu_milli: u32::try_from(self.all_cpus().len() * 1000).unwrap_or(u32::MAX),
            memory_mib: self.system.memory_mib().0,
            numa: self.domains.iter().map(numa).collect(),
            mps: self.mps.is_some(),
            rack: config.rack.clone(),
            labels,
        }
    }

    /// Measures the utilization since the last call.
    pub(crate) fn measure(&mut self) -> Heartbeat {
        let gpus = self.gpu_driver.gpus();
        let is_changed = |gpu: &&Gpu| !self.gpus.contains(gpu);
        let changed = gpus.iter().filter(is_changed).cloned().collect();
        self.gpus = gpus;
        let ticks = self.system.cpu_ticks();
        let busy = ticks.0.saturating_sub(self.cpu_ticks.0);
        let total = ticks.1.saturating_sub(self.cpu_ticks.1);
        self.cpu_ticks = ticks;
        let io = self.io.replace_by(self.system.io_bytes());
        Heartbeat {
            gpus: changed,
            gpu_utilization: self.gpu_driver.utilization(),
            cpu_utilization: u32::try_from(busy * 100 / total.max(1)).unwrap_or(100),
            memory_used_mib: self.system.memory_mib().1,
            gpu_memory_used_mib: self.gpu_driver.memory_used(),
            sm_activity: self.gpu_driver.sm_activity(),
            disk_read_bytes: io.disk_read,
            disk_written_bytes: io.disk_written,
            network_received_bytes: io.network_received,
            network_sent_bytes: io.network_sent,
        }
    }
}
