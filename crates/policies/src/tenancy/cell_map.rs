//! Which node is which machine, which GPU which leaf, which tenant which virtual cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_cells::{ChainId, Layout, LeafType, MachineId, VcId};
use dovetail_model::ids::IdVec;
use dovetail_model::{ClusterSpec, GpuTypeId, NodeId, TenantId};

use super::cells::Slots;
use crate::knobs::PolicyError;

/// What the cells call the things the engine knows.
#[derive(Debug, Clone)]
pub struct CellMap {
    pub(super) layout: Layout,
    pub(super) vcs: IdVec<TenantId, Option<VcId>>,
    pub(super) kinds: IdVec<GpuTypeId, Option<LeafType>>,
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

    pub(super) fn map(&self) -> Arc<CellMap> {
        self.0.clone()
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
        let mut map = Self {
            vcs: tenants.iter().map(|name| layout.vc_named(name)).collect(),
            kinds: cluster
                .gpu_types
                .values()
                .map(|name| layout.leaf_type_named(name))
                .collect(),
            slots: IdVec::default(),
            nodes: BTreeMap::new(),
            by_machine: vec![Vec::new(); layout.machines.len()],
            layout,
        };
        for (id, node) in cluster.nodes.iter() {
            let wrong = |what: String| PolicyError::NotInCells {
                node: node.name.clone(),
                what,
            };
            let kind = &cluster.gpu_types[node.gpu_type];
            let name = node
                .name
                .strip_suffix(&format!(" ({kind})"))
                .unwrap_or(&node.name);
            let machine = map.layout.machine_named(name).ok_or_else(|| {
                wrong("is no machine of the file with the cells; expected the same machines".to_owned())
            })?;
            let chains = &map.layout.machines[machine.index()].nodes;
            let of_kind = chains
                .iter()
                .find(|(c, _)| map.layout.chain(*c).types[0] == *kind);
            let (chain, cell) =
                *of_kind.ok_or_else(|| wrong(format!("has no {kind} in the file with the cells")))?;
            let leaves = map.layout.chain(chain).node_leaves();
            if leaves != node.gpus {
                let say = format!(
                    "has {} GPUs, but {leaves} leaf cells; expected one GPU for each",
                    node.gpus
                );
                return Err(wrong(say));
            }
            *map.slots.entry(id) = Some((chain, cell * leaves, machine));
            map.nodes.insert((chain, cell), id);
            map.by_machine[machine.index()].push(id);
        }
        Ok(map)
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
