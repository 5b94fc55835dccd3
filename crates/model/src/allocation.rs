//! The GPUs, CPU and memory that a job holds.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::gpu_set::GpuSet;
use crate::ids::NodeId;

/// What a job holds on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    /// The node.
    pub node: NodeId,
    /// GPU slots of the node.
    pub gpus: GpuSet,
    /// CPU, in milli-cores.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// Everything a job holds, node by node in ascending order.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Allocation {
    /// The shares; never empty for a running job.
    pub shares: SmallVec<[NodeShare; 1]>,
}

impl Clone for Allocation {
    /// Copies without a loop in the common case of one node, because every launch copies an allocation.
    fn clone(&self) -> Self {
        match self.shares.as_slice() {
            [only] => Self::on_one(only.clone()),
            many => Self {
                shares: many.iter().cloned().collect(),
            },
        }
    }
}

impl Allocation {
    /// Returns an allocation on one node.
    pub fn on_one(share: NodeShare) -> Self {
        Self {
            shares: SmallVec::from_buf([share]),
        }
    }

    /// Whether two allocations have a GPU in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let on_same_gpu =
            |x: &NodeShare, y: &NodeShare| x.node == y.node && x.gpus.iter().any(|gpu| y.gpus.contains(gpu));
        let others = |x: &NodeShare| other.shares.iter().any(|y| on_same_gpu(x, y));
        self.shares.iter().any(others)
    }

    /// Returns the number of GPUs.
    pub fn gpus(&self) -> u32 {
        self.shares.iter().map(|s| s.gpus.count()).sum()
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.shares.len()
    }

    /// Whether each bundle of `gpus` GPUs is on one node: all nodes hold whole bundles, except one that also holds the
    /// remainder.
    pub fn is_in_bundles_of(&self, gpus: u32) -> bool {
        if gpus <= 1 {
            return true;
        }
        let over = |share: &&NodeShare| !share.gpus.count().is_multiple_of(gpus);
        let rest: u32 = self
            .shares
            .iter()
            .filter(over)
            .map(|s| s.gpus.count() % gpus)
            .sum();
        self.shares.iter().filter(over).count() <= 1 && rest == self.gpus() % gpus
    }

    /// Whether some part of it is on this node.
    pub fn touches(&self, node: NodeId) -> bool {
        self.shares.iter().any(|s| s.node == node)
    }
}
