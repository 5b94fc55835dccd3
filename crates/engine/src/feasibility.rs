//! Whether a job could ever run, even if it had the cluster for itself.

use dovetail_model::{JobSpec, Reason};

use crate::cluster::{Cluster, NodeState};

/// Which nodes of the cluster count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeScope {
    /// Every node that ever joined: one that is down may return.
    Joined,
    /// Nodes that are up.
    Up,
    /// Nodes that accept new jobs.
    Open,
}

impl NodeScope {
    fn includes(self, node: &NodeState) -> bool {
        match self {
            Self::Joined => true,
            Self::Up => node.up,
            Self::Open => node.is_open(),
        }
    }
}

/// Returns why the job could never run on the nodes in scope, even if all of them were empty; none if it could.
pub fn never_fits(job: &JobSpec, cluster: &Cluster, scope: NodeScope) -> Option<Reason> {
    let has_limits = job.cpu_milli_per_gpu > 0
        || job.memory_mib_per_gpu > 0
        || job.gpu_memory_mib > 0
        || job.gpus_per_task > 1
        || job.constraint.is_some();
    if !has_limits && cluster.total_gpus(job.gpu_type) >= job.min_gpus {
        return None;
    }
    let of_type = cluster.nodes().map(|(_, node)| node).filter(|node| {
        scope.includes(node) && job.gpu_type.is_none_or(|gpu_type| node.spec.gpu_type == gpu_type)
    });
    let mut capacity = Capacity::default();
    for node in of_type {
        capacity.add(node, job);
        if capacity.suffices(job) {
            return None;
        }
    }
    Some(capacity.shortage(job))
}

/// What empty nodes offer a job.
#[derive(Debug, Default)]
struct Capacity {
    /// GPUs of the type it asks for.
    gpus: u32,
    /// Of those, GPUs with enough memory.
    with_memory: u32,
    /// Of those, GPUs with enough CPU and memory beside them, on nodes the job is limited to.
    usable: u32,
    /// Tasks that fit on them.
    tasks: u32,
    /// Usable GPUs of the node that has most of them.
    largest_node: u32,
    /// Memory of the largest GPU, in MiB.
    largest_gpu_mib: u64,
}

impl Capacity {
    fn add(&mut self, node: &NodeState, job: &JobSpec) {
        let spec = &node.spec;
        self.gpus += spec.gpus;
        self.largest_gpu_mib = self.largest_gpu_mib.max(spec.gpu_memory_mib);
        if !spec.has_gpu_memory(job.gpu_memory_mib) {
            return;
        }
        self.with_memory += spec.gpus;
        if !node.admits(job.constraint) {
            return;
        }
        let by_cpu = spec.cpu_milli.checked_div(job.cpu_milli_per_gpu);
        let by_memory = spec.memory_mib.checked_div(job.memory_mib_per_gpu);
        let by_memory = by_memory.map_or(u32::MAX, |gpus| u32::try_from(gpus).unwrap_or(u32::MAX));
        let usable = spec.gpus.min(by_cpu.unwrap_or(u32::MAX)).min(by_memory);
        self.usable += usable;
        self.tasks += usable / job.gpus_per_task.max(1);
        self.largest_node = self.largest_node.max(usable);
    }

    fn suffices(&self, job: &JobSpec) -> bool {
        self.usable >= job.min_gpus && self.tasks >= min_tasks(job)
    }

    fn shortage(&self, job: &JobSpec) -> Reason {
        if self.with_memory < job.min_gpus && self.gpus >= job.min_gpus {
            Reason::GpuMemoryNeverFits {
                asked_mib: job.gpu_memory_mib,
                largest_mib: self.largest_gpu_mib,
                gpus: job.gpus,
                fitting: self.with_memory,
            }
        } else if self.usable < job.min_gpus {
            Reason::NeverFits {
                asked: job.gpus,
                largest: self.usable,
                gpu_type: job.gpu_type,
            }
        } else {
            Reason::TasksNeverFit {
                tasks: min_tasks(job),
                gpus_per_task: job.gpus_per_task,
                fitting: self.tasks,
                largest_node: self.largest_node,
            }
        }
    }
}

/// Returns the fewest whole tasks with which the job runs.
fn min_tasks(job: &JobSpec) -> u32 {
    job.min_gpus / job.gpus_per_task.max(1)
}
