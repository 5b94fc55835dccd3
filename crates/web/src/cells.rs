//! The cells of virtual clusters: where each is bound, and which jobs hold its GPUs.

use std::collections::BTreeMap;

use dovetail_cluster::GuaranteeMode;
use dovetail_cluster::JobId;
use dovetail_cluster::state::{ClusterState, NodeState};
use dovetail_model::NodeId;

use crate::views::CellView;

/// A GPU that a cell is bound to.
struct Leaf {
    node: NodeId,
    slot: u32,
    job: Option<(JobId, String)>,
}

/// Returns the cells of each virtual cluster; none unless GPUs are guaranteed as cells.
pub(crate) fn cells_by_vc(state: &ClusterState) -> BTreeMap<String, Vec<CellView>> {
    let clusters = state.virtual_clusters();
    let cells = clusters
        .cells
        .as_ref()
        .filter(|_| clusters.mode == GuaranteeMode::Cells);
    let Some(layout) = cells.and_then(|c| c.compile().ok()).map(|c| c.layout) else {
        return BTreeMap::new();
    };
    let mut holders: BTreeMap<(NodeId, u32), (JobId, String)> = BTreeMap::new();
    for job in state.active_jobs() {
        for share in job.attempt().into_iter().flat_map(|a| &a.allocation.shares) {
            for slot in share.gpus.iter() {
                holders.insert((share.node, slot), (job.id, job.request.tenant.clone()));
            }
        }
    }
    let mut bound: BTreeMap<u32, Vec<Leaf>> = BTreeMap::new();
    let tenancy = &state.engine().policy().tenancy;
    for (node, record) in state.nodes() {
        for slot in 0..record.spec.gpus {
            if let Some(cell) = tenancy.cell_at(node, slot) {
                let job = holders.get(&(node, slot)).cloned();
                bound.entry(cell).or_default().push(Leaf { node, slot, job });
            }
        }
    }
    let mut views: BTreeMap<String, Vec<CellView>> = BTreeMap::new();
    for vc in &layout.vcs {
        let cells = vc.slots.iter().map(|slot| {
            let spec = &layout.slots[slot.index()];
            let chain = layout.chain(spec.chain);
            let leaves = bound.remove(&slot.0).unwrap_or_default();
            let children: Vec<CellView> = leaves
                .iter()
                .map(|leaf| leaf_view(state, leaf, &chain.types[0]))
                .collect();
            let held = |by_owner: bool| {
                let matches = |l: &&Leaf| {
                    l.job
                        .as_ref()
                        .is_some_and(|(_, tenant)| (*tenant == vc.name) == by_owner)
                };
                leaves.iter().filter(matches).count() as u32
            };
            let mut nodes: Vec<String> = children.iter().filter_map(|c| c.node.clone()).collect();
            nodes.dedup();
            CellView {
                id: layout.slot_address(*slot),
                kind: layout.slot_type(*slot).to_owned(),
                level: spec.level as u32,
                gpus: chain.leaves[spec.level],
                used_gpus: held(true),
                lent_gpus: held(false),
                health: worst_health(&children),
                node: (!nodes.is_empty()).then(|| nodes.join(", ")),
                job: None,
                children,
            }
        });
        views.insert(vc.name.clone(), cells.collect());
    }
    views
}

fn worst_health(children: &[CellView]) -> String {
    let bad = children.iter().any(|c| c.health == "bad");
    if bad { "bad" } else { "ok" }.to_owned()
}

fn leaf_view(state: &ClusterState, leaf: &Leaf, kind: &str) -> CellView {
    let node = state.node(leaf.node);
    let name = node.map(|n| n.spec.name.clone()).unwrap_or_default();
    let is_lost = node.is_none_or(|n| n.state == NodeState::Lost);
    CellView {
        id: format!("{name}/{}", leaf.slot),
        kind: kind.to_owned(),
        level: 0,
        gpus: 1,
        used_gpus: u32::from(leaf.job.is_some()),
        lent_gpus: 0,
        health: if is_lost { "bad" } else { "ok" }.to_owned(),
        node: Some(name),
        job: leaf.job.as_ref().map(|(job, _)| *job),
        children: Vec::new(),
    }
}
