//! Maps nodes to machines, GPUs to leaves, and tenants to virtual clusters.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use dovetail_cells::{ChainId, Layout, LeafType, MachineId, VcId, ViewId};
use dovetail_model::ids::IdVec;
use dovetail_model::{ClusterSpec, GpuTypeId, NodeId, NodeSpec, TenantId};

use crate::error::{NodeMismatch, PolicyError};

/// Where the GPUs of each node are among the leaves: the chain, the first leaf, and the machine.
type Slots = IdVec<NodeId, Option<(ChainId, u32, MachineId)>>;

/// A map between the ids of the engine and those of the cells.
#[derive(Debug, Clone)]
pub struct CellMap {
    pub(super) layout: Layout,
    pub(super) vcs: IdVec<TenantId, Option<VcId>>,
    /// Leaf types of each GPU type. There may be several, because nodes matched by name alone may name their GPUs differently.
    pub(super) leaf_types: IdVec<GpuTypeId, Vec<LeafType>>,
    /// Names of users, for their limits. The first is that of jobs without a user, and has none.
    pub(super) users: Vec<String>,
    slots: Slots,
    nodes: BTreeMap<(ChainId, u32), NodeId>,
    by_machine: Vec<Vec<NodeId>>,
}

/// A map shared by several policies. Two are equal if they are the same map.
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
    /// Matches every node of the cluster with a machine, by name and GPU type, and every tenant with a virtual cluster. A
    /// tenant without a virtual cluster owns nothing.
    ///
    /// # Errors
    /// Names the first node that matches no machine.
    pub fn new(layout: Layout, cluster: &ClusterSpec, tenants: &[String]) -> Result<Self, PolicyError> {
        match Self::build(layout, cluster, tenants, Self::find) {
            (map, None) => Ok(map),
            (_, Some(error)) => Err(error),
        }
    }

    /// Like [`CellMap::new`] for a cluster whose nodes join and leave: nodes may also match by name alone, whatever their
    /// drivers call the GPUs. Nodes that match no machine are left out, so that no job can use them; also returns the error
    /// of the first one.
    pub fn of_matching_nodes(
        layout: Layout,
        cluster: &ClusterSpec,
        tenants: &[String],
    ) -> (Self, Option<PolicyError>) {
        Self::build(layout, cluster, tenants, |map, node, gpu_type| {
            map.find(node, gpu_type)
                .or_else(|mismatch| map.find_by_name(node).ok_or(mismatch))
        })
    }

    fn build(
        layout: Layout,
        cluster: &ClusterSpec,
        tenants: &[String],
        find: impl Fn(&Self, &NodeSpec, &str) -> Result<(ChainId, u32, MachineId), NodeMismatch>,
    ) -> (Self, Option<PolicyError>) {
        let mut map = Self {
            users: Vec::new(),
            vcs: tenants.iter().map(|name| layout.vc_named(name)).collect(),
            leaf_types: cluster
                .gpu_types
                .values()
                .map(|name| layout.leaf_type_named(name).into_iter().collect())
                .collect(),
            slots: IdVec::default(),
            nodes: BTreeMap::new(),
            by_machine: vec![Vec::new(); layout.machines.len()],
            layout,
        };
        let mut unmatched = None;
        for (id, node) in cluster.nodes.iter() {
            match find(&map, node, &cluster.gpu_types[node.gpu_type]) {
                Ok((chain, cell, machine)) => {
                    let leaves = map.layout.chain(chain).node_leaves();
                    map.add_leaf_type(node.gpu_type, map.layout.chain(chain).leaf_type);
                    *map.slots.entry(id) = Some((chain, cell * leaves, machine));
                    map.nodes.insert((chain, cell), id);
                    map.by_machine[machine.index()].push(id);
                }
                Err(mismatch) => {
                    unmatched.get_or_insert(PolicyError::NotInCells {
                        node: node.name.clone(),
                        mismatch,
                    });
                }
            }
        }
        (map, unmatched)
    }

    /// Returns the cell of a node, or how the node differs from the machines.
    fn find(&self, node: &NodeSpec, gpu_type: &str) -> Result<(ChainId, u32, MachineId), NodeMismatch> {
        let name = node
            .name
            .strip_suffix(&format!(" ({gpu_type})"))
            .unwrap_or(&node.name);
        let machine = self.layout.machine_named(name);
        let machine = machine.ok_or(NodeMismatch::UnknownMachine)?;
        let chains = &self.layout.machines[machine.index()].nodes;
        let of_type = chains
            .iter()
            .find(|(c, _)| self.layout.chain(*c).types[0] == *gpu_type);
        let (chain, cell) = *of_type.ok_or_else(|| NodeMismatch::OtherGpuType {
            gpu_type: gpu_type.to_owned(),
        })?;
        let leaves = self.layout.chain(chain).node_leaves();
        match leaves == node.gpus {
            true => Ok((chain, cell, machine)),
            false => Err(NodeMismatch::OtherGpuCount {
                gpus: node.gpus,
                leaves,
            }),
        }
    }

    /// Returns the cell of a node by name, if its machine has as many leaves as the node has GPUs in exactly one chain.
    fn find_by_name(&self, node: &NodeSpec) -> Option<(ChainId, u32, MachineId)> {
        let machine = self.layout.machine_named(&node.name)?;
        let chains = self.layout.machines[machine.index()].nodes.iter();
        let mut fitting = chains.filter(|(c, _)| self.layout.chain(*c).node_leaves() == node.gpus);
        let (chain, cell) = *fitting.next()?;
        fitting.next().is_none().then_some((chain, cell, machine))
    }

    /// Adds a leaf type of a GPU type. They are tried in descending order.
    fn add_leaf_type(&mut self, gpu_type: GpuTypeId, leaf: LeafType) {
        let known = self.leaf_types.entry(gpu_type);
        if !known.contains(&leaf) {
            known.push(leaf);
            known.sort_by(|a, b| b.cmp(a));
        }
    }

    /// Returns the map with the names of users, in the order of their ids, so that limits of users apply.
    pub fn with_users(self, users: &[String]) -> Self {
        Self {
            users: users.to_vec(),
            ..self
        }
    }

    /// Whether a virtual cluster limits its users.
    pub(super) fn limits_users(&self, vc: VcId) -> bool {
        let vc = &self.layout.vcs[vc.index()];
        vc.leaves_per_user.is_some() || !vc.user_limits.is_empty()
    }

    /// Returns the number of GPUs that a virtual cluster owns, including pinned ones.
    pub(super) fn owned(&self, vc: VcId) -> u32 {
        let slots = self.layout.vcs[vc.index()].slots.iter();
        let slots = slots.map(|s| &self.layout.slots[s.index()]);
        slots.map(|s| self.layout.chain(s.chain).leaves[s.level]).sum()
    }

    /// Returns the pinned cells of a virtual cluster with this leaf type, and the GPUs that each has on one machine.
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

    /// Returns the machine of a node.
    pub(super) fn machine(&self, node: NodeId) -> Option<MachineId> {
        self.slots
            .get(node)
            .copied()
            .flatten()
            .map(|(_, _, machine)| machine)
    }

    /// Returns the nodes of a machine.
    pub(super) fn nodes_of(&self, machine: MachineId) -> &[NodeId] {
        &self.by_machine[machine.index()]
    }

    /// Returns the leaf of a GPU.
    pub(super) fn leaf_of(&self, node: NodeId, slot: u32) -> Option<(ChainId, u32)> {
        let (chain, first, _) = self.slots.get(node).copied().flatten()?;
        Some((chain, first + slot))
    }

    /// Returns the GPU of a leaf: its node, its slot there, and the number of slots of the node.
    pub(super) fn slot_of(&self, chain: ChainId, leaf: u32) -> Option<(NodeId, u32, u32)> {
        let size = self.layout.chain(chain).node_leaves();
        Some((*self.nodes.get(&(chain, leaf / size))?, leaf % size, size))
    }

    /// Returns the pod sizes into which a gang can be cut, largest first: machines, or the parts of machines that the
    /// virtual cluster owns.
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
