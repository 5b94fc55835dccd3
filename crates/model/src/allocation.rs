//! Which GPUs, CPUs and memory a job (or a group of jobs) holds.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::gpu_set::GpuSet;
use crate::ids::NodeId;

/// What is held on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    /// The node.
    pub node: NodeId,
    /// Its GPU slots.
    pub gpus: GpuSet,
    /// CPU, in milli-cores.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// Everything a job holds, node by node in ascending order of nodes.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Allocation {
    /// The shares; never empty for a running job.
    pub shares: SmallVec<[NodeShare; 1]>,
}

impl Clone for Allocation {
    /// Most jobs are on one node, and every launch copies what they hold.
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
    /// All of it on one node.
    pub fn on_one(share: NodeShare) -> Self {
        Self {
            shares: SmallVec::from_buf([share]),
        }
    }

    /// All GPUs together.
    pub fn gpus(&self) -> u32 {
        self.shares.iter().map(|s| s.gpus.count()).sum()
    }

    /// How many nodes it spans.
    pub fn nodes(&self) -> usize {
        self.shares.len()
    }

    /// Whether each bundle of so many GPUs is on one node: all nodes hold whole bundles, but for one that also holds what
    /// is left over.
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
