//! One node and what is free on it.

use std::collections::BTreeMap;

use dovetail_model::{GpuSet, NodeConstraintId, NodeSpec, Share};
use serde::{Deserialize, Serialize};

/// A node and what is free on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// What the node has.
    pub spec: NodeSpec,
    /// Whether the node is up.
    pub up: bool,
    /// Whether the node accepts no new jobs.
    pub draining: bool,
    /// GPU slots that no job is placed on.
    pub free: GpuSet,
    /// Number of those slots.
    pub free_gpus: u32,
    /// CPU allocated to no job, in milli-cores.
    pub free_cpu_milli: u32,
    /// Memory allocated to no job, in MiB.
    pub free_memory_mib: u64,
    /// Sum of the CPU and memory with which each job on the node is fastest; may exceed what the node has.
    #[serde(default, alias = "wished")]
    pub preferred: Share,
    /// Preferred part of the node's CPU and of its memory minus the part of its GPUs in use, in millionths: positive
    /// where its jobs need more than their proportional share, negative where they need less.
    #[serde(skip)]
    pub pressure: [i64; 2],
    /// Slots that stopping jobs have not vacated yet.
    pub lingering: GpuSet,
    /// Number of stopping jobs beyond the first on a slot that they shared.
    pub(super) also_lingering: BTreeMap<u32, u32>,
    /// CPU of stopping jobs, in milli-cores.
    pub(super) lingering_cpu_milli: u32,
    /// Memory of stopping jobs, in MiB.
    pub(super) lingering_memory_mib: u64,
    /// Number of jobs beyond the first on a slot; slots with one job have no entry.
    pub(super) sharers: BTreeMap<u32, u32>,
    /// GPU memory used on a slot, in MiB, where jobs declare their use and the node its capacity.
    #[serde(default)]
    pub(super) gpu_memory: BTreeMap<u32, u64>,
    /// What jobs cannot use.
    #[serde(default, alias = "withheld")]
    pub(crate) unavailable: Unavailable,
    /// Node constraints that include the node, one bit each.
    #[serde(default, alias = "fences")]
    pub(super) constraints: u64,
}

/// The part of a node that jobs cannot use: the target, and how much of it is set aside so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Unavailable {
    /// Number of GPUs that should be unavailable.
    #[serde(alias = "gpus_meant")]
    pub(super) target_gpus: u32,
    /// CPU and memory that should be unavailable.
    #[serde(alias = "beside_meant")]
    pub(super) target_share: Share,
    /// Slots set aside; none if nothing was ever unavailable.
    pub(crate) gpus: Option<GpuSet>,
    /// CPU and memory set aside.
    #[serde(alias = "beside")]
    pub(crate) share: Share,
}

impl NodeState {
    pub(super) fn new(spec: NodeSpec) -> Self {
        Self {
            up: true,
            draining: false,
            free: GpuSet::full(spec.gpus),
            free_gpus: spec.gpus,
            free_cpu_milli: spec.cpu_milli,
            free_memory_mib: spec.memory_mib,
            preferred: Share::default(),
            pressure: [0; 2],
            lingering: GpuSet::empty(spec.gpus),
            also_lingering: BTreeMap::new(),
            lingering_cpu_milli: 0,
            lingering_memory_mib: 0,
            sharers: BTreeMap::new(),
            gpu_memory: BTreeMap::new(),
            unavailable: Unavailable::default(),
            constraints: 0,
            spec,
        }
    }

    /// Whether the node accepts new jobs.
    pub fn is_open(&self) -> bool {
        self.up && !self.draining
    }

    /// Whether a job with this node constraint may run on the node.
    pub fn admits(&self, constraint: Option<NodeConstraintId>) -> bool {
        constraint.is_none_or(|constraint| self.constraints & bit(constraint) != 0)
    }

    /// Returns the number of free GPUs that have this much CPU and memory beside each of them.
    pub fn fitting_gpus(&self, cpu_milli_per_gpu: u32, memory_mib_per_gpu: u64) -> u32 {
        let by_cpu = self
            .free_cpu_milli
            .checked_div(cpu_milli_per_gpu)
            .unwrap_or(u32::MAX);
        let by_memory = self
            .free_memory_mib
            .checked_div(memory_mib_per_gpu)
            .unwrap_or(u64::MAX);
        self.free_gpus
            .min(by_cpu)
            .min(u32::try_from(by_memory).unwrap_or(u32::MAX))
    }

    /// Returns CPU and memory that are neither promised to a job nor still used by a stopping one.
    pub fn unallocated(&self) -> Share {
        Share::new(self.free_cpu_milli, self.free_memory_mib)
            .minus(Share::new(self.lingering_cpu_milli, self.lingering_memory_mib))
    }

    /// Returns what a job that prefers this share per GPU can use for `gpus` GPUs here: at most the whole node.
    pub fn preferred_here(&self, gpus: u32, preferred: Share) -> Share {
        preferred.times(gpus).at_most(self.capacity())
    }

    /// Returns the largest number of free GPUs, up to `gpus`, for which the node has this headroom.
    pub fn gpus_with_headroom(&self, gpus: u32, headroom: Share) -> u32 {
        let most = gpus.min(self.free_gpus);
        let fits = |gpus: &u32| self.has_headroom(*gpus, headroom);
        (1..=most).rev().find(fits).unwrap_or(0)
    }

    /// Whether the node has this much for each of `gpus` GPUs beyond the preferred shares of its jobs.
    pub fn has_headroom(&self, gpus: u32, headroom: Share) -> bool {
        self.capacity().covers(headroom.times(gpus).plus(self.preferred))
    }

    /// Whether some of its GPUs are shared by several jobs.
    pub fn has_sharers(&self) -> bool {
        !self.sharers.is_empty()
    }

    /// Returns the number of jobs placed on a slot; `u32::MAX` for an unavailable slot, which has no room for any.
    pub fn holders(&self, slot: u32) -> u32 {
        match self.sharers.get(&slot) {
            _ if self.is_unavailable(slot) => u32::MAX,
            _ if self.free.contains(slot) => 0,
            more => 1 + more.copied().unwrap_or(0),
        }
    }

    /// Returns the GPU memory that jobs use on a slot, in MiB.
    pub fn used_gpu_memory_mib(&self, slot: u32) -> u64 {
        self.gpu_memory.get(&slot).copied().unwrap_or(0)
    }

    /// Whether a slot has this much GPU memory left.
    pub fn has_gpu_memory(&self, slot: u32, mib: u64) -> bool {
        mib == 0 || self.spec.has_gpu_memory(self.used_gpu_memory_mib(slot) + mib)
    }

    pub(crate) fn is_unavailable(&self, slot: u32) -> bool {
        self.unavailable
            .gpus
            .as_ref()
            .is_some_and(|gpus| gpus.contains(slot))
    }

    fn capacity(&self) -> Share {
        Share::new(self.spec.cpu_milli, self.spec.memory_mib)
    }

    /// Whether jobs still hold something that should be unavailable.
    pub(super) fn lacks_unavailable(&self) -> bool {
        let set_aside = self.unavailable.gpus.as_ref().map_or(0, GpuSet::count);
        set_aside < self.unavailable.target_gpus || self.unavailable.share != self.unavailable.target_share
    }

    /// Sets aside as much as is free of what should be unavailable: the last slots first, and those that no stopping job
    /// still uses.
    pub(super) fn set_aside_unavailable(&mut self) {
        if let Some(set_aside) = self.unavailable.gpus.take() {
            self.free.add(&set_aside);
        }
        let mut set_aside = GpuSet::empty(self.spec.gpus);
        let mut slots: Vec<u32> = self.free.iter().collect();
        slots.sort_by_key(|slot| (self.lingering.contains(*slot), std::cmp::Reverse(*slot)));
        for slot in slots.into_iter().take(self.unavailable.target_gpus as usize) {
            set_aside.insert(slot);
        }
        self.free.remove(&set_aside);
        self.free_gpus = self.free.count();
        self.unavailable.gpus = Some(set_aside);
        let free = Share::new(self.free_cpu_milli, self.free_memory_mib).plus(self.unavailable.share);
        self.unavailable.share = self.unavailable.target_share.at_most(free);
        let left = free.minus(self.unavailable.share);
        (self.free_cpu_milli, self.free_memory_mib) = (left.cpu_milli, left.memory_mib);
    }

    pub(super) fn update_pressure(&mut self) {
        let busy = millionths((self.spec.gpus - self.free_gpus).into(), self.spec.gpus.into());
        let cpu = millionths(self.preferred.cpu_milli.into(), self.spec.cpu_milli.into());
        let memory = millionths(self.preferred.memory_mib, self.spec.memory_mib);
        self.pressure = [cpu - busy, memory - busy];
    }

    /// Adds to the GPU memory used on these slots.
    pub(super) fn use_gpu_memory(&mut self, gpus: &GpuSet, mib: u64) {
        if mib == 0 || self.spec.gpu_memory_mib == 0 {
            return;
        }
        for slot in gpus.iter() {
            let used = self.gpu_memory.entry(slot).or_insert(0);
            *used += mib;
            assert!(
                *used <= self.spec.gpu_memory_mib,
                "GPU memory in use never exceeds the memory of the GPU"
            );
        }
    }

    /// Subtracts from the GPU memory used on these slots.
    pub(super) fn free_gpu_memory(&mut self, gpus: &GpuSet, mib: u64) {
        if mib == 0 || self.spec.gpu_memory_mib == 0 {
            return;
        }
        for slot in gpus.iter() {
            let used = self.gpu_memory.entry(slot).or_insert(0);
            *used -= mib;
            if *used == 0 {
                self.gpu_memory.remove(&slot);
            }
        }
    }

    /// Returns its free GPUs if it is open and partly used.
    pub(super) fn fragment(&self) -> u32 {
        if self.is_open() && self.free_gpus < self.spec.gpus {
            self.free_gpus
        } else {
            0
        }
    }
}

/// Returns `part / of` in millionths.
pub fn millionths(part: u64, of: u64) -> i64 {
    (part.saturating_mul(1_000_000) / of.max(1)) as i64
}

/// Returns the bit of a node constraint; zero for a number beyond [`NodeConstraintId::MAX_COUNT`].
pub(super) fn bit(constraint: NodeConstraintId) -> u64 {
    1u64.checked_shl(constraint.0).unwrap_or(0)
}
