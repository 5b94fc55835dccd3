//! Changes of nodes.

use dovetail_cluster::{Actor, Fact, NodeState};
use dovetail_kubeapi::Node;
use dovetail_model::NodeId;

use super::nodes::NodeTable;
use super::{ClusterTransaction, Reconciler, machine};

/// Applies a new or changed node.
pub(super) fn put_node(r: &mut Reconciler, node: &Node, tx: &mut impl ClusterTransaction) {
    let name = node.metadata.name.as_str();
    r.nodes.put_object(node);
    let mut new = NodeTable::read(node, &r.settings.gpu_resources, &r.devices, tx.state());
    let before = r.nodes.get(name);
    let same_shape = before.is_some_and(|before| before.has_same_shape(&new));
    if let Some(before) = before.filter(|_| same_shape) {
        new.keep_reported(before);
    }
    // Heartbeats change nothing that matters here.
    let has_changed = before != Some(&new);
    let Some(id) = new.id else {
        r.nodes.insert(name, new);
        return;
    };
    let state = tx.state().node(id).map(|n| n.state.clone());
    let lost = state.is_none_or(|state| state == NodeState::Lost);
    if lost && r.listed && r.gangs.use_node(name) {
        // The cluster state takes a node that joins for empty, so it joins when its pods are deleted.
        r.nodes.delay_return(node, id);
        return;
    }
    r.nodes.has_returned(name);
    if !same_shape || lost {
        tx.record(new.joined(id, name));
    }
    if lost {
        new.forget_reported();
    }
    let closed = new.closed.clone();
    r.nodes.insert(name, new);
    if has_changed {
        r.constraints.update_node(name, id, &r.nodes, tx);
    }
    r.nodes.report_unavailable(name, tx);
    update_drain(r, (name, id), closed, tx);
    if has_changed || lost {
        machine::retry_refused(r, tx);
    }
}

/// Drains a node that takes no new pods, and resumes it when it takes them again.
fn update_drain(
    r: &mut Reconciler,
    (name, id): (&str, NodeId),
    closed: Option<String>,
    tx: &mut impl ClusterTransaction,
) {
    let by_us = |state: &NodeState| matches!(state, NodeState::Draining { by, .. } if by.is_kubernetes());
    let state = tx.state().node(id).map(|n| n.state.clone());
    match (state, closed) {
        (Some(NodeState::Up), Some(reason)) => tx.record(Fact::NodeDrained {
            node: id,
            by: Actor::Kubernetes(None),
            reason,
        }),
        (Some(state), None) if by_us(&state) => {
            tx.record(Fact::NodeResumed {
                node: id,
                by: Actor::Kubernetes(None),
            });
            // Slots of running gangs may be vacant, and can be filled now.
            visit_gangs_on(r, name, tx);
        }
        _ => {}
    }
}

/// Lets nodes join that are back and empty.
pub(super) fn return_nodes(r: &mut Reconciler, tx: &mut impl ClusterTransaction) {
    for node in r.nodes.returning() {
        put_node(r, &node, tx);
    }
}

/// Applies the deletion of a node.
pub(super) fn delete_node(r: &mut Reconciler, name: &str, tx: &mut impl ClusterTransaction) {
    let Some(id) = r.nodes.remove(name).and_then(|node| node.id) else {
        return;
    };
    r.constraints.update_node(name, id, &r.nodes, tx);
    lose(r, name, id, tx);
}

/// Applies the loss of a node that was not ready for too long.
pub(super) fn lose_node(r: &mut Reconciler, name: &str, tx: &mut impl ClusterTransaction) {
    if let Some(id) = r.nodes.id(name) {
        lose(r, name, id, tx);
    }
}

fn lose(r: &mut Reconciler, name: &str, id: NodeId, tx: &mut impl ClusterTransaction) {
    // Their gangs can start again only when their controllers have recreated the pods.
    let on_node = r.gangs.iter().filter(|g| g.slots.iter().any(|s| s.node == id));
    let jobs: Vec<_> = on_node.filter_map(|gang| gang.job).collect();
    for job in jobs {
        tx.record(Fact::WorkloadLost { job });
    }
    tx.record(Fact::NodeLost { node: id });
    visit_gangs_on(r, name, tx);
}

fn visit_gangs_on(r: &mut Reconciler, name: &str, tx: &mut impl ClusterTransaction) {
    for key in r.gangs.on_node(name, r.nodes.known_id(name)) {
        machine::visit(r, &key, tx);
    }
}
