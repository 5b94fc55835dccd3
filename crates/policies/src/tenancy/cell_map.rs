//! Which node is which machine, which GPU which leaf, which tenant which virtual cluster.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use dovetail_cells::{ChainId, Layout, LeafType, MachineId, VcId, ViewId};
use dovetail_model::ids::IdVec;
use dovetail_model::{ClusterSpec, GpuTypeId, NodeId, NodeSpec, TenantId};

use super::cells::Slots;
use crate::error::PolicyError;

/// What the cells call the things the engine knows.
#[derive(Debug, Clone)]
pub struct CellMap {
    pub(super) layout: Layout,
    pub(super) vcs: IdVec<TenantId, Option<VcId>>,
    /// What the cells call GPUs of a kind; machines that are known by their names may call them differently.
    pub(super) kinds: IdVec<GpuTypeId, Vec<LeafType>>,
    /// Names of users, for their limits. The first stands for "not said" and has none.
    pub(super) users: Vec<String>,
    slots: Slots,
    nodes: BTreeMap<(ChainId, u32), NodeId>,
    by_machine: Vec<Vec<NodeId>>,
}

/// A map that several policies may be built with. Two are equal if they are one.
#[derive(Debug, Clone)]
pub struct SharedCells(Arc<CellMap>);

impl SharedCells {
    /// Shares a map.
    pub fn new(map: CellMap) -> Self {
        Self(Arc::new(map))
    }
}

impl Deref for SharedCells {
    type Target = CellMap;

    fn deref(&self) -> &CellMap {
        &self.0
    }
}

impl PartialEq for SharedCells {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedCells {}

impl CellMap {
    /// Finds every node of the cluster among the machines, by name and kind of GPU, and every tenant among the virtual
    /// clusters. A tenant that is none of them has nothing.
    ///
    /// # Errors
    /// Names the node that is no machine, or has other GPUs.
    pub fn new(layout: Layout, cluster: &ClusterSpec, tenants: &[String]) -> Result<Self, PolicyError> {
        match Self::build(layout, cluster, tenants, Self::find) {
            (map, None) => Ok(map),
            (_, Some(error)) => Err(error),
        }
    }

    /// The same for nodes that come and go: they are known by their names, whatever their drivers call the GPUs. Those
    /// that are no machines are left out, and so cannot be used; the first of them is named.
    pub fn of_those_that_fit(
        layout: Layout,
        cluster: &ClusterSpec,
        tenants: &[String],
    ) -> (Self, Option<PolicyError>) {
        Self::build(layout, cluster, tenants, |map, node, kind| {
            map.find(node, kind)
                .or_else(|what| map.find_by_name(node).ok_or(what))
        })
    }

    fn build(
        layout: Layout,
        cluster: &ClusterSpec,
        tenants: &[String],
        find: impl Fn(&Self, &NodeSpec, &str) -> Result<(ChainId, u32, MachineId), String>,
    ) -> (Self, Option<PolicyError>) {
        let mut map = Self {
            users: Vec::new(),
            vcs: tenants.iter().map(|name| layout.vc_named(name)).collect(),
            kinds: cluster
                .gpu_types
                .values()
                .map(|name| layout.leaf_type_named(name).into_iter().collect())
                .collect(),
            slots: IdVec::default(),
            nodes: BTreeMap::new(),
            by_machine: vec![Vec::new(); layout.machines.len()],
            layout,
        };
        let mut left_out = None;
        for (id, node) in cluster.nodes.iter() {
            match find(&map, node, &cluster.gpu_types[node.gpu_type]) {
                Ok((chain, cell, machine)) => {
                    let leaves = map.layout.chain(chain).node_leaves();
                    map.call(node.gpu_type, map.layout.chain(chain).leaf_type);
                    *map.slots.entry(id) = Some((chain, cell * leaves, machine));
                    map.nodes.insert((chain, cell), id);
                    map.by_machine[machine.index()].push(id);
                }
                Err(mismatch) => {
                    left_out.get_or_insert(PolicyError::NotInCells {
                        node: node.name.clone(),
                        mismatch,
                    });
                }
            }
        }
        (map, left_out)
    }

    /// The cell of a node, or why it has none.
    fn find(&self, node: &NodeSpec, kind: &str) -> Result<(ChainId, u32, MachineId), String> {
        let name = node
            .name
            .strip_suffix(&format!(" ({kind})"))
            .unwrap_or(&node.name);
        let machine = self.layout.machine_named(name).ok_or_else(|| {
            "is no machine of the file with the cells; expected the same machines".to_owned()
        })?;
        let chains = &self.layout.machines[machine.index()].nodes;
        let of_kind = chains
            .iter()
            .find(|(c, _)| self.layout.chain(*c).types[0] == *kind);
        let (chain, cell) = *of_kind.ok_or_else(|| format!("has no {kind} in the file with the cells"))?;
        let leaves = self.layout.chain(chain).node_leaves();
        match leaves == node.gpus {
            true => Ok((chain, cell, machine)),
            false => Err(format!(
                "has {} GPUs, but {leaves} leaf cells; expected one GPU for each",
                node.gpus
            )),
        }
    }

    /// The cell of a node that has as many GPUs as its machine has leaves in one chain, and in one alone.
    fn find_by_name(&self, node: &NodeSpec) -> Option<(ChainId, u32, MachineId)> {
        let machine = self.layout.machine_named(&node.name)?;
        let chains = self.layout.machines[machine.index()].nodes.iter();
        let mut fitting = chains.filter(|(c, _)| self.layout.chain(*c).node_leaves() == node.gpus);
        let (chain, cell) = *fitting.next()?;
        fitting.next().is_none().then_some((chain, cell, machine))
    }

    /// Notes what the cells call a kind of GPU, in the order in which names are tried: descending.
    fn call(&mut self, kind: GpuTypeId, leaf: LeafType) {
        let known = self.kinds.entry(kind);
        if !known.contains(&leaf) {
            known.push(leaf);
            known.sort_by(|a, b| b.cmp(a));
        }
    }

    /// The same with the names of users in the order of their ids, so that limits of users count.
    pub fn with_users(self, users: &[String]) -> Self {
        Self {
            users: users.to_vec(),
            ..self
        }
    }

    /// Whether users are told apart in a virtual cluster.
    pub(super) fn limits_users(&self, vc: VcId) -> bool {
        let vc = &self.layout.vcs[vc.index()];
        vc.leaves_per_user.is_some() || !vc.user_limits.is_empty()
    }

    /// GPUs a virtual cluster owns, pinned ones too.
    pub(super) fn owned(&self, vc: VcId) -> u32 {
        let slots = self.layout.vcs[vc.index()].slots.iter();
        let slots = slots.map(|s| &self.layout.slots[s.index()]);
        slots.map(|s| self.layout.chain(s.chain).leaves[s.level]).sum()
    }

    /// The pinned cells of a virtual cluster that have this kind of GPU, and the GPUs each has on one machine.
    pub(super) fn pinned(&self, vc: VcId, kind: LeafType) -> impl Iterator<Item = (ViewId, u32)> {
        let views = self.layout.vcs[vc.index()].pinned.values();
        views.filter_map(move |view| {
            let spec = &self.layout.views[view.index()];
            let slot = &self.layout.slots[spec.slots.first()?.index()];
            let chain = self.layout.chain(spec.chain);
            let size = chain.leaves[slot.level].min(chain.node_leaves());
            (chain.leaf_type == kind).then_some((*view, size))
        })
    }

    /// The machine of a node.
    pub(super) fn machine(&self, node: NodeId) -> Option<MachineId> {
        self.slots
            .get(node)
            .copied()
            .flatten()
            .map(|(_, _, machine)| machine)
    }

    /// The nodes of a machine.
    pub(super) fn nodes_of(&self, machine: MachineId) -> &[NodeId] {
        &self.by_machine[machine.index()]
    }

    /// The leaf of a GPU.
    pub(super) fn leaf_of(&self, node: NodeId, slot: u32) -> Option<(ChainId, u32)> {
        let (chain, first, _) = self.slots.get(node).copied().flatten()?;
        Some((chain, first + slot))
    }

    /// The GPU of a leaf: its node, its slot there, and how many slots the node has.
    pub(super) fn slot_of(&self, chain: ChainId, leaf: u32) -> Option<(NodeId, u32, u32)> {
        let size = self.layout.chain(chain).node_leaves();
        Some((*self.nodes.get(&(chain, leaf / size))?, leaf % size, size))
    }

    /// The sizes a gang can be cut into, largest first: machines, or what the virtual cluster owns of one.
    pub(super) fn sizes(&self, vc: VcId, kind: LeafType, borrows: bool) -> Vec<u32> {
        let chains = &self.layout.chains_of[kind.index()];
        let mut sizes: Vec<u32> = match borrows {
            true => chains
                .iter()
                .map(|c| self.layout.chain(*c).node_leaves())
                .collect(),
            false => {
                let slots = self.layout.vcs[vc.index()].slots.iter();
                let slots = slots.map(|s| &self.layout.slots[s.index()]);
                let owned = slots.filter(|s| s.pinned.is_none() && chains.contains(&s.chain));
                owned
                    .map(|s| {
                        let chain = self.layout.chain(s.chain);
                        chain.leaves[s.level].min(chain.node_leaves())
                    })
                    .collect()
            }
        };
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        sizes.dedup();
        sizes
    }
}
