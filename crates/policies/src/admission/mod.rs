//! Who gets in.

mod accept_all;
mod caps;
mod feasible;
mod load;

use dovetail_engine::{Admission, Cluster};
use dovetail_model::{JobSpec, Reason};

pub use accept_all::AcceptAll;
pub use caps::Caps;
pub use feasible::Feasible;
pub use load::Load;

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Admission>] = &[feasible::ENTRY, accept_all::ENTRY, load::ENTRY, caps::ENTRY];

/// The reason why a job can never run on the nodes that ever joined, even on an empty cluster.
pub(crate) fn never_fits(job: &JobSpec, cluster: &Cluster) -> Option<Reason> {
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
        node.spec
            .gpus
            .min(by_cpu)
            .min(u32::try_from(by_memory).unwrap_or(u32::MAX))
    };
    if job.cpu_milli_per_gpu == 0
        && job.memory_mib_per_gpu == 0
        && cluster.total_gpus(job.gpu_type) >= job.min_gpus
    {
        return None;
    }
    let matching =
        |n: &dovetail_engine::cluster::NodeState| job.gpu_type.is_none_or(|t| n.spec.gpu_type == t);
    let largest: u32 = cluster
        .nodes()
        .filter(|(_, n)| matching(n))
        .map(|(_, n)| usable(n))
        .sum();
    (largest < job.min_gpus).then_some(Reason::NeverFits {
        asked: job.gpus,
        largest,
        gpu_type: job.gpu_type,
    })
}
