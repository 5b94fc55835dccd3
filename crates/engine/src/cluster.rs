//! The nodes and what is free on them, with an index that finds the best node without a scan.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::ids::IdVec;
use dovetail_model::{
    Allocation, FenceId, GpuSet, GpuTypeId, JobSpec, NodeId, NodeSpec, Share, Zone, ZoneId,
};
use serde::{Deserialize, Serialize};

use crate::node_set::NodeSet;

/// A node and what is free on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// What it has.
    pub spec: NodeSpec,
    /// It is there.
    pub up: bool,
    /// It takes no new jobs.
    pub draining: bool,
    /// GPU slots nobody is meant to hold.
    pub free: GpuSet,
    /// How many those are.
    pub free_gpus: u32,
    /// CPU nobody is meant to hold, in milli-cores.
    pub free_cpu_milli: u32,
    /// Memory nobody is meant to hold, in MiB.
    pub free_memory_mib: u64,
    /// CPU and memory that would make all jobs here fastest, together: it may be more than there is.
    #[serde(default)]
    pub wished: Share,
    /// By how much what is wished for of its CPU and of its memory is more than the part of its GPUs that is busy, in
    /// millionths: above zero where its jobs are hungry, below where they are modest.
    #[serde(skip)]
    pub leaning: [i64; 2],
    /// Slots that jobs told to stop have not given up yet.
    pub lingering: GpuSet,
    /// How many such jobs beyond the first are on a slot; those that shared it.
    also_lingering: BTreeMap<u32, u32>,
    /// CPU that goes with those jobs, in milli-cores.
    lingering_cpu_milli: u32,
    /// Memory that goes with them, in MiB.
    lingering_memory_mib: u64,
    /// How many jobs beyond the first share a slot; slots held by one job are not in here.
    sharers: BTreeMap<u32, u32>,
    /// Memory filled on a slot, in MiB, where jobs say what they fill and the node what it has.
    #[serde(default)]
    gpu_memory: BTreeMap<u32, u64>,
    /// What is not there for jobs.
    #[serde(default)]
    pub(crate) withheld: Withheld,
    /// The fences it is within, a bit for each.
    #[serde(default)]
    fences: u64,
}

/// What of a node is not there for jobs: what should be kept from them, and what is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Withheld {
    gpus_meant: u32,
    beside_meant: Share,
    /// The slots; none where nothing was ever withheld.
    pub(crate) gpus: Option<GpuSet>,
    /// CPU and memory.
    pub(crate) beside: Share,
}

impl NodeState {
    fn new(spec: NodeSpec) -> Self {
        Self {
            up: true,
            draining: false,
            free: GpuSet::full(spec.gpus),
            free_gpus: spec.gpus,
            free_cpu_milli: spec.cpu_milli,
            free_memory_mib: spec.memory_mib,
            wished: Share::default(),
            leaning: [0; 2],
            lingering: GpuSet::empty(spec.gpus),
            also_lingering: BTreeMap::new(),
            lingering_cpu_milli: 0,
            lingering_memory_mib: 0,
            sharers: BTreeMap::new(),
            gpu_memory: BTreeMap::new(),
            withheld: Withheld::default(),
            fences: 0,
            spec,
        }
    }

    /// Whether a job that is confined to this fence may be here.
    pub fn admits(&self, fence: Option<FenceId>) -> bool {
        fence.is_none_or(|fence| self.fences & bit(fence) != 0)
    }

    /// Whether something should be withheld that somebody holds.
    fn owes(&self) -> bool {
        let has = self.withheld.gpus.as_ref().map_or(0, GpuSet::count);
        has < self.withheld.gpus_meant || self.withheld.beside != self.withheld.beside_meant
    }

    /// Withholds of what is free as much as should be: the last slots first, and those that nobody is leaving.
    fn withhold(&mut self) {
        let mut kept = self
            .withheld
            .gpus
            .take()
            .unwrap_or_else(|| GpuSet::empty(self.spec.gpus));
        self.free.add(&kept);
        kept = GpuSet::empty(self.spec.gpus);
        let mut slots: Vec<u32> = self.free.iter().collect();
        slots.sort_by_key(|slot| (self.lingering.contains(*slot), std::cmp::Reverse(*slot)));
        for slot in slots.into_iter().take(self.withheld.gpus_meant as usize) {
            kept.insert(slot);
        }
        self.free.remove(&kept);
        self.free_gpus = self.free.count();
        self.withheld.gpus = Some(kept);
        let free = Share::new(self.free_cpu_milli, self.free_memory_mib).plus(self.withheld.beside);
        self.withheld.beside = self.withheld.beside_meant.at_most(free);
        let left = free.minus(self.withheld.beside);
        (self.free_cpu_milli, self.free_memory_mib) = (left.cpu_milli, left.memory_mib);
    }

    pub(crate) fn is_withheld(&self, slot: u32) -> bool {
        self.withheld
            .gpus
            .as_ref()
            .is_some_and(|gpus| gpus.contains(slot))
    }

    /// Whether it takes new jobs.
    pub fn is_open(&self) -> bool {
        self.up && !self.draining
    }

    /// CPU and memory that are promised to nobody and that no job told to stop still has.
    pub fn left(&self) -> Share {
        Share::new(self.free_cpu_milli, self.free_memory_mib)
            .minus(Share::new(self.lingering_cpu_milli, self.lingering_memory_mib))
    }

    /// How many GPUs with so much CPU and memory beside each are free.
    pub fn fitting(&self, cpu_milli_per_gpu: u32, memory_mib_per_gpu: u64) -> u32 {
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

    /// What a job on so many of its GPUs could use here, at most all there is.
    pub fn wish_here(&self, gpus: u32, wish: Share) -> Share {
        wish.times(gpus)
            .at_most(Share::new(self.spec.cpu_milli, self.spec.memory_mib))
    }

    fn lean(&mut self) {
        let busy = millionths((self.spec.gpus - self.free_gpus).into(), self.spec.gpus.into());
        let cpu = millionths(self.wished.cpu_milli.into(), self.spec.cpu_milli.into());
        let memory = millionths(self.wished.memory_mib, self.spec.memory_mib);
        self.leaning = [cpu - busy, memory - busy];
    }

    /// How many of so many GPUs have that much beside the wishes of those who are here.
    pub fn fitting_beside(&self, gpus: u32, enough: Share) -> u32 {
        let most = gpus.min(self.free_gpus);
        let fits = |gpus: &u32| self.has_beside(*gpus, enough);
        (1..=most).rev().find(fits).unwrap_or(0)
    }

    /// Whether that much for each of so many GPUs is here beside the wishes of those who are.
    pub fn has_beside(&self, gpus: u32, enough: Share) -> bool {
        let all = Share::new(self.spec.cpu_milli, self.spec.memory_mib);
        all.covers(enough.times(gpus).plus(self.wished))
    }

    /// Whether some of its GPUs are held by several jobs.
    pub fn has_sharers(&self) -> bool {
        !self.sharers.is_empty()
    }

    /// How many jobs are meant to hold a slot. One that is withheld has no room for any.
    pub fn holders(&self, slot: u32) -> u32 {
        match self.sharers.get(&slot) {
            _ if self.is_withheld(slot) => u32::MAX,
            _ if self.free.contains(slot) => 0,
            more => 1 + more.copied().unwrap_or(0),
        }
    }

    /// Memory that jobs fill on a slot, in MiB.
    pub fn filled_mib(&self, slot: u32) -> u64 {
        self.gpu_memory.get(&slot).copied().unwrap_or(0)
    }

    /// Whether a slot has memory for one more job.
    pub fn has_gpu_memory(&self, slot: u32, mib: u64) -> bool {
        mib == 0 || self.spec.has_gpu_memory(self.filled_mib(slot) + mib)
    }

    /// Books memory of GPUs, or its return.
    fn fill(&mut self, gpus: &GpuSet, mib: u64, back: bool) {
        if mib == 0 || self.spec.gpu_memory_mib == 0 {
            return;
        }
        for slot in gpus.iter() {
            let filled = self.gpu_memory.entry(slot).or_insert(0);
            if back {
                *filled -= mib;
            } else {
                *filled += mib;
            }
            let filled = *filled;
            assert!(
                filled <= self.spec.gpu_memory_mib,
                "no GPU holds more than it has"
            );
            if filled == 0 {
                self.gpu_memory.remove(&slot);
            }
        }
    }

    /// Free GPUs that count as fragments: the node is partly used.
    fn fragment(&self) -> u32 {
        if self.is_open() && self.free_gpus < self.spec.gpus {
            self.free_gpus
        } else {
            0
        }
    }
}

/// A part of something, in millionths.
pub fn millionths(part: u64, of: u64) -> i64 {
    (part.saturating_mul(1_000_000) / of.max(1)) as i64
}

/// Open nodes with one kind of GPU, by how many GPUs are free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pool {
    by_free: Vec<NodeSet>,
    /// One bit for every level of `by_free` that is not empty.
    levels: Vec<u64>,
    free: u32,
    total: u32,
}

impl Pool {
    fn insert(&mut self, id: NodeId, node: &NodeState) {
        let level = node.free_gpus as usize;
        if self.by_free.len() <= node.spec.gpus as usize {
            self.by_free
                .resize_with(node.spec.gpus as usize + 1, NodeSet::default);
            self.levels.resize(node.spec.gpus as usize / 64 + 1, 0);
        }
        self.by_free[level].insert(id);
        self.levels[level / 64] |= 1 << (level % 64);
        self.free += node.free_gpus;
        self.total += node.spec.gpus;
    }

    fn remove(&mut self, id: NodeId, node: &NodeState) {
        let level = node.free_gpus as usize;
        self.by_free[level].remove(id);
        if self.by_free[level].is_empty() {
            self.levels[level / 64] &= !(1 << (level % 64));
        }
        self.free -= node.free_gpus;
        self.total -= node.spec.gpus;
    }

    /// The lowest level of at least `from` that has a node.
    fn level_from(&self, from: u32) -> Option<u32> {
        let (word, bit) = (from as usize / 64, from % 64);
        let first = self.levels.get(word)? >> bit << bit;
        if first != 0 {
            return Some((word * 64) as u32 + first.trailing_zeros());
        }
        let rest = self
            .levels
            .iter()
            .enumerate()
            .skip(word + 1)
            .find(|(_, w)| **w != 0)?;
        Some((rest.0 * 64) as u32 + rest.1.trailing_zeros())
    }

    /// The highest level below `below` that has a node.
    fn level_below(&self, below: u32) -> Option<u32> {
        let (word, bit) = (below as usize / 64, below % 64);
        let last = self.levels.get(word).copied().unwrap_or(0) & ((1 << bit) - 1);
        if last != 0 {
            return Some((word * 64) as u32 + last.ilog2());
        }
        let rest = self
            .levels
            .iter()
            .enumerate()
            .take(word)
            .rev()
            .find(|(_, w)| **w != 0)?;
        Some((rest.0 * 64) as u32 + rest.1.ilog2())
    }
}

/// The bit of a fence; none for one that cannot be.
fn bit(fence: FenceId) -> u64 {
    1u64.checked_shl(fence.0).unwrap_or(0)
}

/// All nodes. What is free here is what nobody is *meant* to hold; what lingers is kept beside it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cluster {
    nodes: IdVec<NodeId, Option<NodeState>>,
    /// The tree above the nodes.
    pub zones: IdVec<ZoneId, Zone>,
    #[serde(skip)]
    pools: IdVec<GpuTypeId, Pool>,
    #[serde(skip)]
    with_free: NodeSet,
    #[serde(skip)]
    free: u32,
    #[serde(skip)]
    total: u32,
    #[serde(skip)]
    fragments: u32,
    lingering: u32,
    /// Nodes of which more should be withheld than is free.
    #[serde(default)]
    owing: BTreeSet<NodeId>,
    /// The least that any node has beside a GPU.
    #[serde(skip)]
    least_share: Share,
    /// GPUs of the largest node with each kind of GPU.
    #[serde(skip)]
    widest: IdVec<GpuTypeId, u32>,
}

impl Cluster {
    /// CPU and memory beside each GPU when they are shared out in proportion, on the node that has least of each.
    pub fn least_share(&self) -> Share {
        self.least_share
    }

    /// GPUs of the largest node, among those whose GPUs the job may use.
    pub fn widest_for(&self, job: &JobSpec) -> u32 {
        let may_use = |node: &NodeSpec| job.gpu_type.is_none_or(|kind| node.gpu_type == kind);
        match job.gpu_type {
            _ if job.gpu_memory_mib > 0 => {
                let nodes = self.nodes().map(|(_, n)| &n.spec).filter(|n| may_use(n));
                let fitting = nodes.filter(|n| n.has_gpu_memory(job.gpu_memory_mib));
                fitting.map(|n| n.gpus).max().unwrap_or(0)
            }
            Some(kind) => self.widest.get(kind).copied().unwrap_or(0),
            None => self.widest.values().copied().max().unwrap_or(0),
        }
    }

    /// The node, if it ever joined.
    pub fn node(&self, id: NodeId) -> Option<&NodeState> {
        self.nodes.get(id)?.as_ref()
    }

    /// Whether the node takes new jobs.
    pub fn is_open(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(NodeState::is_open)
    }

    /// Every node that ever joined.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeState)> {
        self.nodes
            .iter()
            .filter_map(|(id, n)| n.as_ref().map(|n| (id, n)))
    }

    /// Free GPUs on open nodes, of one kind or of all.
    pub fn free_gpus(&self, gpu_type: Option<GpuTypeId>) -> u32 {
        match gpu_type {
            None => self.free,
            Some(t) => self.pools.get(t).map_or(0, |p| p.free),
        }
    }

    /// GPUs on open nodes, of one kind or of all.
    pub fn total_gpus(&self, gpu_type: Option<GpuTypeId>) -> u32 {
        match gpu_type {
            None => self.total,
            Some(t) => self.pools.get(t).map_or(0, |p| p.total),
        }
    }

    /// Free GPUs on partly used open nodes.
    pub fn fragmented_gpus(&self) -> u32 {
        self.fragments
    }

    /// GPUs that jobs told to stop have not given up.
    pub fn lingering_gpus(&self) -> u32 {
        self.lingering
    }

    /// The kinds of GPU a job may use.
    pub fn types(&self, gpu_type: Option<GpuTypeId>) -> impl Iterator<Item = GpuTypeId> + use<> {
        let known = self.pools.len() as u32;
        let range = match gpu_type {
            Some(t) => t.0.min(known)..t.0.saturating_add(1).min(known),
            None => 0..known,
        };
        range.map(GpuTypeId)
    }

    /// The most GPUs that are free on one open node.
    pub fn most_free(&self, gpu_type: Option<GpuTypeId>) -> u32 {
        self.types(gpu_type)
            .filter_map(|t| self.pools[t].level_below(u32::MAX))
            .max()
            .unwrap_or(0)
    }

    /// Numbers of free GPUs, from `from` up, for which there is an open node.
    pub fn levels_from(&self, gpu_type: GpuTypeId, from: u32) -> impl Iterator<Item = u32> + '_ {
        let pool = self.pools.get(gpu_type);
        let next = move |from| pool.and_then(|p| p.level_from(from));
        std::iter::successors(next(from), move |level| next(level + 1))
    }

    /// Numbers of free GPUs for which there is an open node, largest first, down to one.
    pub fn levels_down(&self, gpu_type: GpuTypeId) -> impl Iterator<Item = u32> + '_ {
        let pool = self.pools.get(gpu_type);
        let next = move |below| pool.and_then(|p| p.level_below(below)).filter(|level| *level > 0);
        std::iter::successors(next(u32::MAX), move |level| next(*level))
    }

    /// Open nodes of one kind with exactly `free` free GPUs, lowest id first.
    pub fn nodes_with_free(&self, gpu_type: GpuTypeId, free: u32) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self
            .pools
            .get(gpu_type)
            .and_then(|p| p.by_free.get(free as usize));
        nodes.map(NodeSet::iter).unwrap_or_default()
    }

    /// Open nodes with any free GPU, lowest id first.
    pub fn nodes_with_any_free(&self) -> impl Iterator<Item = (NodeId, &NodeState)> + '_ {
        self.with_free
            .iter()
            .filter_map(|id| self.node(id).map(|n| (id, n)))
    }

    /// A node joins, or comes back empty.
    pub(crate) fn node_up(&mut self, id: NodeId, spec: NodeSpec) {
        self.unindex(id);
        let before = self.entry(id).take();
        let new = before.is_none();
        let fences = before.as_ref().map_or(0, |n| n.fences);
        self.lingering -= before.map_or(0, |n| n.lingering.count());
        let (proportional, kind, gpus) = (spec.proportional(), spec.gpu_type, spec.gpus);
        *self.entry(id) = Some(NodeState {
            fences,
            ..NodeState::new(spec)
        });
        self.owing.remove(&id);
        self.index(id);
        if !new {
            return self.find_least_share();
        }
        // One more node: what is known of the others still holds.
        let first = self.widest.values().all(|gpus| *gpus == 0);
        if gpus > 0 {
            self.least_share = match first {
                true => proportional,
                false => self.least_share.at_most(proportional),
            };
        }
        let widest = self.widest.entry(kind);
        *widest = (*widest).max(gpus);
    }

    fn find_least_share(&mut self) {
        let with_gpus = self.nodes().map(|(_, n)| &n.spec).filter(|n| n.gpus > 0);
        self.least_share = with_gpus
            .map(NodeSpec::proportional)
            .reduce(Share::at_most)
            .unwrap_or_default();
        self.widest = IdVec::default();
        for node in self.nodes.values().flatten() {
            let widest = self.widest.entry(node.spec.gpu_type);
            *widest = (*widest).max(node.spec.gpus);
        }
    }

    /// Changes whether a node is up or draining.
    pub(crate) fn set_node(&mut self, id: NodeId, up: bool, draining: bool) {
        self.unindex(id);
        if let Some(node) = self.entry(id).as_mut() {
            node.up = up;
            node.draining = draining;
            if !up {
                let gone = node.lingering.count();
                node.lingering = GpuSet::empty(node.spec.gpus);
                node.also_lingering.clear();
                (node.lingering_cpu_milli, node.lingering_memory_mib) = (0, 0);
                self.lingering -= gone;
            }
        }
        self.index(id);
    }

    /// Withholds so much of a node, now or as soon as it is free. Whether that is news.
    pub(crate) fn withhold(&mut self, id: NodeId, gpus: u32, beside: Share) -> bool {
        let Some(node) = self.node(id) else { return false };
        let meant = (gpus.min(node.spec.gpus), beside);
        if (node.withheld.gpus_meant, node.withheld.beside_meant) == meant {
            return false;
        }
        self.unindex(id);
        let node = self.existing(id);
        (node.withheld.gpus_meant, node.withheld.beside_meant) = meant;
        self.index(id);
        self.owing.insert(id);
        true
    }

    /// Withholds what should be and has become free, on the nodes that are returned. Not in the middle of a draft, which may
    /// give it back.
    pub(crate) fn withhold_what_is_free(&mut self) -> BTreeSet<NodeId> {
        let owing = std::mem::take(&mut self.owing);
        for id in owing.iter().copied() {
            self.unindex(id);
            let node = self.existing(id);
            node.withhold();
            node.lean();
            let owes = node.owes();
            self.index(id);
            if owes {
                self.owing.insert(id);
            }
        }
        owing
    }

    /// Whether some of these GPUs are not there for jobs.
    pub(crate) fn is_withheld(&self, allocation: &Allocation) -> bool {
        allocation.shares.iter().any(|part| {
            self.node(part.node)
                .is_some_and(|n| part.gpus.iter().any(|slot| n.is_withheld(slot)))
        })
    }

    /// Takes what an allocation names; with `share`, GPUs may be held already.
    pub(crate) fn take(&mut self, allocation: &Allocation, share: bool, gpu_memory_mib: u64, wish: Share) {
        for part in &allocation.shares {
            self.unindex(part.node);
            let node = self.existing(part.node);
            if share {
                for slot in part.gpus.iter().filter(|s| !node.free.contains(*s)) {
                    *node.sharers.entry(slot).or_insert(0) += 1;
                }
            } else {
                assert!(node.free.covers(&part.gpus), "no GPU is given twice");
            }
            node.fill(&part.gpus, gpu_memory_mib, false);
            node.free.remove(&part.gpus);
            node.free_gpus = node.free.count();
            node.free_cpu_milli -= part.cpu_milli;
            node.free_memory_mib -= part.memory_mib;
            node.wished = node.wished.plus(node.wish_here(part.gpus.count(), wish));
            node.lean();
            self.index(part.node);
        }
    }

    /// Gives back what an allocation names.
    pub(crate) fn release(&mut self, allocation: &Allocation, gpu_memory_mib: u64, wish: Share) {
        for part in &allocation.shares {
            self.unindex(part.node);
            let node = self.existing(part.node);
            node.fill(&part.gpus, gpu_memory_mib, true);
            if node.sharers.is_empty() {
                debug_assert!(
                    !node.free.intersects(&part.gpus),
                    "only what is held is given back"
                );
                node.free.add(&part.gpus);
            } else {
                for slot in part.gpus.iter() {
                    match node.sharers.get_mut(&slot) {
                        None => node.free.insert(slot),
                        Some(1) => drop(node.sharers.remove(&slot)),
                        Some(more) => *more -= 1,
                    }
                }
            }
            node.free_gpus = node.free.count();
            node.free_cpu_milli += part.cpu_milli;
            node.free_memory_mib += part.memory_mib;
            node.wished = node.wished.minus(node.wish_here(part.gpus.count(), wish));
            node.lean();
            self.index(part.node);
        }
    }

    /// Whether all this is free: the GPUs, the CPU and the memory, on nodes that are up.
    pub fn is_free(&self, allocation: &Allocation) -> bool {
        allocation.shares.iter().all(|part| {
            self.node(part.node).is_some_and(|n| {
                n.up && n.free.covers(&part.gpus)
                    && n.free_cpu_milli >= part.cpu_milli
                    && n.free_memory_mib >= part.memory_mib
            })
        })
    }

    /// These nodes and no others are within the fence; whether that is news.
    pub(crate) fn fence(&mut self, fence: FenceId, nodes: &[NodeId]) -> bool {
        let before: Vec<u64> = self.nodes().map(|(_, n)| n.fences).collect();
        for node in self.nodes.values_mut().flatten() {
            node.fences &= !bit(fence);
        }
        for id in nodes {
            if let Some(node) = self.entry(*id) {
                node.fences |= bit(fence);
            }
        }
        !self.nodes().map(|(_, n)| n.fences).eq(before)
    }

    /// Whether a job that is confined to this fence may have these GPUs.
    pub fn admits(&self, allocation: &Allocation, fence: Option<FenceId>) -> bool {
        let mut nodes = allocation.shares.iter().map(|part| self.node(part.node));
        fence.is_none() || nodes.all(|node| node.is_some_and(|n| n.admits(fence)))
    }

    /// Whether there is CPU, memory and memory of the GPUs for one more job on these GPUs, which others hold.
    pub(crate) fn has_room_beside(&self, allocation: &Allocation, gpu_memory_mib: u64) -> bool {
        allocation.shares.iter().all(|part| {
            self.node(part.node).is_some_and(|n| {
                n.free_cpu_milli >= part.cpu_milli
                    && n.free_memory_mib >= part.memory_mib
                    && !part.gpus.iter().any(|s| n.is_withheld(s))
                    && (gpu_memory_mib == 0 || part.gpus.iter().all(|s| n.has_gpu_memory(s, gpu_memory_mib)))
            })
        })
    }

    /// The fewest and the most jobs that hold one of these GPUs, which are all held.
    pub(crate) fn holders_of(&self, allocation: &Allocation) -> (u32, u32) {
        let mut range = (u32::MAX, 0);
        for part in &allocation.shares {
            let Some(node) = self.node(part.node) else {
                continue;
            };
            if node.has_sharers() {
                for held in part.gpus.iter().map(|slot| node.holders(slot)) {
                    range = (range.0.min(held), range.1.max(held));
                }
            } else {
                range = (range.0.min(1), range.1.max(1));
            }
        }
        range
    }

    /// The memory of the smallest GPU that ever joined, in MiB; none where nodes do not say.
    pub fn least_gpu_memory_mib(&self) -> Option<u64> {
        let said = self.nodes().map(|(_, n)| n.spec.gpu_memory_mib);
        said.filter(|mib| *mib > 0).min()
    }

    /// Marks GPUs as not given up yet.
    pub(crate) fn linger(&mut self, allocation: &Allocation) {
        for part in &allocation.shares {
            let node = self.existing(part.node);
            if node.up {
                let before = node.lingering.count();
                for slot in part.gpus.iter().filter(|s| node.lingering.contains(*s)) {
                    *node.also_lingering.entry(slot).or_insert(0) += 1;
                }
                node.lingering.add(&part.gpus);
                node.lingering_cpu_milli += part.cpu_milli;
                node.lingering_memory_mib += part.memory_mib;
                let more = node.lingering.count() - before;
                self.lingering += more;
            }
        }
    }

    /// The job on these GPUs is gone.
    pub(crate) fn unlinger(&mut self, allocation: &Allocation) {
        for part in &allocation.shares {
            let node = self.existing(part.node);
            let before = node.lingering.count();
            let mut gone = part.gpus.clone();
            if !node.also_lingering.is_empty() {
                gone = GpuSet::empty(node.spec.gpus);
                for slot in part.gpus.iter() {
                    match node.also_lingering.get_mut(&slot) {
                        None => gone.insert(slot),
                        Some(1) => drop(node.also_lingering.remove(&slot)),
                        Some(more) => *more -= 1,
                    }
                }
            }
            node.lingering.remove(&gone);
            node.lingering_cpu_milli -= part.cpu_milli;
            node.lingering_memory_mib -= part.memory_mib;
            let fewer = before - node.lingering.count();
            self.lingering -= fewer;
        }
    }

    /// How many GPUs of an allocation are not given up yet.
    pub(crate) fn busy_gpus(&self, allocation: &Allocation) -> u32 {
        if self.lingering == 0 {
            return 0;
        }
        let busy = |part: &dovetail_model::NodeShare| {
            self.node(part.node).map_or(0, |n| {
                part.gpus.iter().filter(|s| n.lingering.contains(*s)).count() as u32
            })
        };
        allocation.shares.iter().map(busy).sum()
    }

    /// Whether all of an allocation can be used: no GPU, CPU or memory of it is still with a job that was told to stop.
    pub(crate) fn is_given_up(&self, allocation: &Allocation) -> bool {
        if self.lingering == 0 {
            return true;
        }
        self.busy_gpus(allocation) == 0
            && allocation.shares.iter().all(|part| {
                self.node(part.node).is_some_and(|n| {
                    (part.cpu_milli == 0 || n.lingering_cpu_milli <= n.free_cpu_milli)
                        && (part.memory_mib == 0 || n.lingering_memory_mib <= n.free_memory_mib)
                })
            })
    }

    /// Builds the index again, after the state was read from a snapshot.
    pub(crate) fn reindex(&mut self) {
        self.pools = IdVec::default();
        self.with_free = NodeSet::default();
        (self.free, self.total, self.fragments) = (0, 0, 0);
        let ids: Vec<NodeId> = self.nodes().map(|(id, _)| id).collect();
        for id in ids {
            self.existing(id).lean();
            self.index(id);
        }
        self.find_least_share();
    }

    fn entry(&mut self, id: NodeId) -> &mut Option<NodeState> {
        self.nodes.entry(id)
    }

    fn existing(&mut self, id: NodeId) -> &mut NodeState {
        self.nodes[id]
            .as_mut()
            .expect("an allocation names nodes that joined")
    }

    fn unindex(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id).and_then(Option::as_ref) else {
            return;
        };
        if node.is_open() {
            self.pools[node.spec.gpu_type].remove(id, node);
            self.free -= node.free_gpus;
            self.total -= node.spec.gpus;
            self.fragments -= node.fragment();
            self.with_free.remove(id);
        }
    }

    fn index(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id).and_then(Option::as_ref) else {
            return;
        };
        if node.is_open() {
            self.pools.entry(node.spec.gpu_type).insert(id, node);
            self.free += node.free_gpus;
            self.total += node.spec.gpus;
            self.fragments += node.fragment();
            if node.free_gpus > 0 {
                self.with_free.insert(id);
            }
        }
    }
}
