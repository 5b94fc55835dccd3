//! The cluster: nodes, their resources, and their position in the topology.

use serde::{Deserialize, Serialize};

use crate::ids::{GpuTypeId, IdVec, NodeId, ZoneId};
use crate::numa::NumaDomain;
use crate::sensitivity::Share;

/// A place above the nodes: a rack, a switch, a row. Zones form a tree of any depth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Name of the zone ("rack-3").
    pub name: String,
    /// The zone that contains it; none at the top.
    pub parent: Option<ZoneId>,
}

/// A node as it joins the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Name of the node.
    pub name: String,
    /// The rack or switch it is connected to.
    pub zone: ZoneId,
    /// The type of its GPUs.
    pub gpu_type: GpuTypeId,
    /// Number of GPUs.
    pub gpus: u32,
    /// CPU, in milli-cores.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Memory of each GPU, in MiB; zero if unknown, which means no limit.
    #[serde(default)]
    pub gpu_memory_mib: u64,
    /// Disk bandwidth, in MB/s.
    pub disk_mbps: u32,
    /// Network bandwidth, in Mbit/s.
    pub network_mbps: u32,
    /// GPUs of one NUMA or NVLink domain; the first `n` slots are the first domain, and so on.
    pub gpus_per_domain: u32,
    /// NUMA domains, each with its CPUs and GPUs; empty if unknown, which means one domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaDomain>,
    /// Whether a job can only be limited to whole CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_cpus: bool,
}

impl NodeSpec {
    /// Returns a node with ample CPU and memory, for clusters that are described by GPUs alone.
    pub fn plain(name: impl Into<String>, gpus: u32) -> Self {
        Self {
            name: name.into(),
            zone: ZoneId(0),
            gpu_type: GpuTypeId(0),
            gpus,
            cpu_milli: 16_000 * gpus.max(1),
            memory_mib: 64 * 1024 * u64::from(gpus.max(1)),
            gpu_memory_mib: 0,
            disk_mbps: 500,
            network_mbps: 40_000,
            gpus_per_domain: gpus.max(1),
            numa: Vec::new(),
            whole_cpus: false,
        }
    }

    /// Returns the NUMA domains; one with all whole CPUs if none are declared.
    pub fn numa_domains(&self) -> Vec<NumaDomain> {
        match self.numa.as_slice() {
            [] => NumaDomain::equal(1, self.cpu_milli / 1000, self.gpus),
            declared => declared.to_vec(),
        }
    }

    /// Whether each GPU has this much memory.
    pub fn has_gpu_memory(&self, mib: u64) -> bool {
        self.gpu_memory_mib == 0 || mib <= self.gpu_memory_mib
    }

    /// Returns the CPU and memory per GPU when both are divided in proportion to GPUs.
    pub fn proportional(&self) -> Share {
        let gpus = self.gpus.max(1);
        Share::new(self.cpu_milli / gpus, self.memory_mib / u64::from(gpus))
    }

    /// Returns the domain of a GPU slot.
    pub fn domain_of(&self, slot: u32) -> u32 {
        slot / self.gpus_per_domain.max(1)
    }
}

/// A whole cluster, as described by a file or by `32x4`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// Names of the GPU types, indexed by `GpuTypeId`.
    pub gpu_types: IdVec<GpuTypeId, String>,
    /// The tree of racks and switches.
    pub zones: IdVec<ZoneId, Zone>,
    /// The nodes.
    pub nodes: IdVec<NodeId, NodeSpec>,
}

impl ClusterSpec {
    /// Returns a cluster of `nodes` equal nodes with `gpus` GPUs each, in one rack.
    pub fn uniform(nodes: u32, gpus: u32) -> Self {
        let mut cluster = Self::bare("gpu");
        for i in 0..nodes {
            cluster.nodes.push(NodeSpec::plain(format!("node-{i}"), gpus));
        }
        cluster
    }

    /// Returns a cluster without nodes, with one GPU type and one rack.
    pub fn bare(gpu_type: &str) -> Self {
        let mut cluster = Self::default();
        cluster.gpu_types.push(gpu_type.to_owned());
        cluster.zones.push(Zone {
            name: "rack-0".to_owned(),
            parent: None,
        });
        cluster
    }

    /// Returns the number of GPUs of all nodes.
    pub fn gpus(&self) -> u32 {
        self.nodes.values().map(|n| n.gpus).sum()
    }

    /// Returns the GPU type with this name, which is added if it is new.
    pub fn gpu_type(&mut self, name: &str) -> GpuTypeId {
        let known = self
            .gpu_types
            .iter()
            .find(|(_, n)| n.as_str() == name)
            .map(|(id, _)| id);
        known.unwrap_or_else(|| self.gpu_types.push(name.to_owned()))
    }
}
