//! Who gets in.

mod accept_all;
mod caps;
mod feasible;
mod load;

use dovetail_engine::{Admission, Cluster};
use dovetail_model::{JobSpec, NodeSpec, Reason};

pub use accept_all::AcceptAll;
pub use caps::Caps;
pub use feasible::Feasible;
pub use load::Load;

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Admission>] = &[feasible::ENTRY, accept_all::ENTRY, load::ENTRY, caps::ENTRY];

/// The reason why a job can never run on the nodes that ever joined, even on an empty cluster.
pub(crate) fn never_fits(job: &JobSpec, cluster: &Cluster) -> Option<Reason> {
    let of_kind = |n: &NodeSpec| job.gpu_type.is_none_or(|t| n.gpu_type == t);
    if job.gpu_memory_mib > 0 {
        let nodes = || cluster.nodes().map(|(_, n)| &n.spec).filter(|n| of_kind(n));
        let holding = nodes().filter(|n| n.has_gpu_memory(job.gpu_memory_mib));
        let fitting: u32 = holding.map(|n| n.gpus).sum();
        let (gpus, largest_mib) = (job.min_gpus, nodes().map(|n| n.gpu_memory_mib).max().unwrap_or(0));
        let enough_of_any: u32 = nodes().map(|n| n.gpus).sum();
        if fitting < gpus && enough_of_any >= gpus {
            return Some(Reason::GpuMemoryNeverFits {
                asked_mib: job.gpu_memory_mib,
                largest_mib,
                gpus: job.gpus,
                fitting,
            });
        }
    }
    let usable = |node: &dovetail_engine::cluster::NodeState| {
        let by_cpu = node
            .spec
            .cpu_milli
            .checked_div(job.cpu_milli_per_gpu)
            .unwrap_or(u32::MAX);
        let by_memory = node
            .spec
            .memory_mib
            .checked_div(job.memory_mib_per_gpu)
            .unwrap_or(u64::MAX);
        if !node.spec.has_gpu_memory(job.gpu_memory_mib) || !node.admits(job.fence) {
            return 0;
        }
        node.spec
            .gpus
            .min(by_cpu)
            .min(u32::try_from(by_memory).unwrap_or(u32::MAX))
    };
    if job.cpu_milli_per_gpu == 0
        && job.memory_mib_per_gpu == 0
        && job.gpu_memory_mib == 0
        && job.fence.is_none()
        && cluster.total_gpus(job.gpu_type) >= job.min_gpus
    {
        return None;
    }
    let largest: u32 = cluster
        .nodes()
        .filter(|(_, n)| of_kind(&n.spec))
        .map(|(_, n)| usable(n))
        .sum();
    (largest < job.min_gpus).then_some(Reason::NeverFits {
        asked: job.gpus,
        largest,
        gpu_type: job.gpu_type,
    })
}
