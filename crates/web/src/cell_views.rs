//! The cells virtual clusters own, where they are now and who is in them.

use std::collections::BTreeMap;

use dovetail_control::JobNo;
use dovetail_control::Promise;
use dovetail_control::book::{Book, NodeState};
use dovetail_model::NodeId;

use crate::views::CellView;

/// A GPU that stands for a part of an owned cell.
struct Leaf {
    node: NodeId,
    slot: u32,
    job: Option<(JobNo, String)>,
}

/// By virtual cluster; nothing where GPUs are not promised as cells.
pub(crate) fn cells_of(book: &Book) -> BTreeMap<String, Vec<CellView>> {
    let clusters = book.clusters();
    let cells = clusters
        .cells
        .as_ref()
        .filter(|_| clusters.promise == Promise::Cells);
    let Some(layout) = cells.and_then(|c| c.compile().ok()).map(|c| c.layout) else {
        return BTreeMap::new();
    };
    let mut holders: BTreeMap<(NodeId, u32), (JobNo, String)> = BTreeMap::new();
    for job in book.jobs_up() {
        for share in job.attempt().into_iter().flat_map(|a| &a.allocation.shares) {
            for slot in share.gpus.iter() {
                holders.insert((share.node, slot), (job.no, job.request.tenant.clone()));
            }
        }
    }
    let mut bound: BTreeMap<u32, Vec<Leaf>> = BTreeMap::new();
    let tenancy = &book.engine().policy().tenancy;
    for (node, record) in book.nodes() {
        for slot in 0..record.spec.gpus {
            if let Some(cell) = tenancy.cell_at(node, slot) {
                let job = holders.get(&(node, slot)).cloned();
                bound.entry(cell).or_default().push(Leaf { node, slot, job });
            }
        }
    }
    let mut views: BTreeMap<String, Vec<CellView>> = BTreeMap::new();
    for vc in &layout.vcs {
        let own = vc.slots.iter().map(|slot| {
            let spec = &layout.slots[slot.index()];
            let chain = layout.chain(spec.chain);
            let leaves = bound.remove(&slot.0).unwrap_or_default();
            let children: Vec<CellView> = leaves
                .iter()
                .map(|leaf| leaf_view(book, leaf, &chain.types[0]))
                .collect();
            let used = |own: bool| {
                let by = |l: &&Leaf| {
                    l.job
                        .as_ref()
                        .is_some_and(|(_, tenant)| (*tenant == vc.name) == own)
                };
                leaves.iter().filter(by).count() as u32
            };
            let mut nodes: Vec<String> = children.iter().filter_map(|c| c.node.clone()).collect();
            nodes.dedup();
            CellView {
                id: layout.slot_address(*slot),
                kind: layout.slot_type(*slot).to_owned(),
                level: spec.level as u32,
                gpus: chain.leaves[spec.level],
                used_gpus: used(true),
                lent_gpus: used(false),
                health: worst(&children),
                node: (!nodes.is_empty()).then(|| nodes.join(", ")),
                job: None,
                children,
            }
        });
        views.insert(vc.name.clone(), own.collect());
    }
    views
}

fn worst(children: &[CellView]) -> String {
    let bad = children.iter().any(|c| c.health == "bad");
    if bad { "bad" } else { "ok" }.to_owned()
}

fn leaf_view(book: &Book, leaf: &Leaf, kind: &str) -> CellView {
    let node = book.node(leaf.node);
    let name = node.map(|n| n.spec.name.clone()).unwrap_or_default();
    let lost = node.is_none_or(|n| n.state == NodeState::Lost);
    CellView {
        id: format!("{name}/{}", leaf.slot),
        kind: kind.to_owned(),
        level: 0,
        gpus: 1,
        used_gpus: u32::from(leaf.job.is_some()),
        lent_gpus: 0,
        health: if lost { "bad" } else { "ok" }.to_owned(),
        node: Some(name),
        job: leaf.job.as_ref().map(|(job, _)| *job),
        children: Vec::new(),
    }
}
