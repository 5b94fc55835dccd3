//! Nodes, and what others use of them.

use std::collections::BTreeMap;

use dovetail_cluster::{Actor, Fact, NodeState};
use dovetail_kubeapi::{Node, Taint, cpu_milli, memory_mib, whole};
use dovetail_model::ids::Id;
use dovetail_model::{NodeId, NodeSpec};

use super::{Ledger, Reconciler};
use crate::ask::Needs;
use crate::words;

/// A node as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its number in the book; none for one without GPUs.
    pub(crate) id: Option<NodeId>,
    pub(crate) has: Needs,
    /// GPUs of its capacity: it may have lost some.
    pub(crate) gpus_in_all: u32,
    /// They are given out by claims.
    pub(crate) by_claims: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    /// Why it takes no new pods, if it does not.
    pub(crate) closed: Option<String>,
    address: String,
    /// What was told to be withheld.
    unavailable: Needs,
}

/// Taints that say no more than the conditions of the node.
const OF_CONDITIONS: &str = "node.kubernetes.io/";

impl Reconciler {
    /// A node is new, or has changed.
    pub fn node_put(&mut self, node: &Node, ledger: &mut impl Ledger) {
        let name = node.metadata.name.clone();
        self.node_objects.insert(name.clone(), node.clone());
        let mut seen = self.see(node, ledger);
        let before = self.nodes.get(&name);
        let same = before.is_some_and(|b| b.has_same_shape(&seen) && b.id == seen.id);
        if let Some(before) = before.filter(|_| same) {
            seen.unavailable = before.unavailable;
        }
        let is_news = before != Some(&seen);
        let Some(id) = seen.id else {
            self.nodes.insert(name, seen);
            return;
        };
        self.node_names.insert(id, name.clone());
        let lost = ledger.state().node(id).is_none_or(|n| n.state == NodeState::Lost);
        if lost && self.has_leftovers(&name) {
            // To the scheduler a node that comes back is empty, so it comes back when it is.
            self.returning.insert(name, node.clone());
            return;
        }
        self.returning.remove(&name);
        if !same || lost {
            ledger.record(Fact::NodeJoined {
                node: id,
                spec: Box::new(NodeSpec {
                    cpu_milli: seen.has.cpu_milli,
                    memory_mib: seen.has.memory_mib,
                    ..NodeSpec::plain(name.clone(), seen.gpus_in_all)
                }),
                gpu_type: gpu_type(&seen.labels),
                rack: rack(&seen.labels),
                address: seen.address.clone(),
                identity: 0,
            });
        }
        let closed = seen.closed.clone();
        self.nodes.insert(name.clone(), seen);
        if !same || lost {
            self.forget_what_is_withheld(&name);
        }
        if is_news {
            self.update_constraints_of(&name, id, ledger);
        }
        self.withhold(&name, ledger);
        let by_us = |state: &NodeState| matches!(state, NodeState::Draining { by, .. } if by.is_kubernetes());
        let state = ledger.state().node(id).map(|n| n.state.clone());
        match (state, closed) {
            (Some(NodeState::Up), Some(why)) => ledger.record(Fact::NodeDrained {
                node: id,
                by: Actor::Kubernetes(None),
                reason: why,
            }),
            (Some(state), None) if by_us(&state) => {
                ledger.record(Fact::NodeResumed {
                    node: id,
                    by: Actor::Kubernetes(None),
                });
                // Seats of gangs that run may be empty, and can be taken again.
                self.look_at_all_on(&name, ledger);
            }
            _ => {}
        }
        // Heartbeats are no news.
        if is_news || lost {
            self.retry_refused(ledger);
        }
    }

    /// Whether pods of ours are on a node, or on their way there.
    fn has_leftovers(&self, name: &str) -> bool {
        let here = |m: &super::Member| {
            (m.is_there() && m.node.as_deref() == Some(name)) || m.in_flight.as_deref() == Some(name)
        };
        self.settled && self.gangs.values().any(|g| g.members.values().any(here))
    }

    /// Nodes that are back and empty are used again.
    pub(super) fn let_nodes_return(&mut self, ledger: &mut impl Ledger) {
        if self.returning.is_empty() {
            return;
        }
        let back: Vec<Node> = self.returning.values().cloned().collect();
        for node in back {
            self.node_put(&node, ledger);
        }
    }

    /// A node is gone, with everything on it.
    pub fn node_gone(&mut self, name: &str, ledger: &mut impl Ledger) {
        self.returning.remove(name);
        self.node_objects.remove(name);
        let Some(seen) = self.nodes.remove(name) else {
            return;
        };
        if let Some(id) = seen.id {
            self.update_constraints_of(name, id, ledger);
            self.scatter_all_on(id, ledger);
            ledger.record(Fact::NodeLost { node: id });
            self.look_at_all_on(name, ledger);
        }
    }

    /// A node was not heard of for too long.
    pub fn node_lost(&mut self, name: &str, ledger: &mut impl Ledger) {
        if let Some(id) = self.nodes.get(name).and_then(|n| n.id) {
            self.scatter_all_on(id, ledger);
            ledger.record(Fact::NodeLost { node: id });
            self.look_at_all_on(name, ledger);
        }
    }

    fn see(&self, node: &Node, ledger: &impl Ledger) -> Seen {
        let meta = &node.metadata;
        let amount =
            |amounts: &BTreeMap<String, String>, name: &str| amounts.get(name).cloned().unwrap_or_default();
        let gpus = |amounts: &BTreeMap<String, String>| -> u32 {
            let all = self.settings.gpu_resources.iter();
            all.filter_map(|name| whole(amounts.get(name)?)).sum()
        };
        let said = meta
            .labels
            .get(words::GPUS_WANTED)
            .or_else(|| meta.annotations.get(words::GPUS_WANTED));
        let said = said.and_then(|text| text.parse::<u32>().ok());
        // Whoever claims devices counts them: a device plugin beside that would give out the same ones.
        let claimed = Some(self.devices(&meta.name) as u32).filter(|devices| *devices > 0);
        let said = claimed.or(said);
        let status = &node.status;
        let has = Needs {
            gpus: said.unwrap_or_else(|| gpus(&status.allocatable)),
            cpu_milli: cpu_milli(&amount(&status.allocatable, "cpu")).unwrap_or(0),
            memory_mib: memory_mib(&amount(&status.allocatable, "memory")).unwrap_or(0),
        };
        let gpus_in_all = said.unwrap_or_else(|| gpus(&status.capacity).max(has.gpus));
        let known = ledger.state().node_named(&meta.name);
        let next = || NodeId::from_index(ledger.state().nodes().count());
        let internal = status.addresses.iter().find(|a| a.kind == "InternalIP");
        Seen {
            id: known.or_else(|| (gpus_in_all > 0).then(next)),
            has,
            gpus_in_all,
            by_claims: claimed.is_some(),
            labels: meta.labels.clone(),
            taints: node
                .spec
                .taints
                .iter()
                .filter(|t| !t.key.starts_with(OF_CONDITIONS))
                .cloned()
                .collect(),
            closed: closed(node),
            address: internal
                .map(|a| a.address.clone())
                .unwrap_or_else(|| meta.name.clone()),
            unavailable: Needs::default(),
        }
    }

    /// Looks at all nodes whose use by others has changed.
    pub(crate) fn withhold_changed(&mut self, ledger: &mut impl Ledger) {
        for name in std::mem::take(&mut self.changed_nodes) {
            self.withhold(&name, ledger);
        }
    }

    fn forget_what_is_withheld(&mut self, name: &str) {
        if let Some(seen) = self.nodes.get_mut(name) {
            seen.unavailable = Needs::default();
        }
    }

    /// Others use so much of it, and so many GPUs are lost.
    fn withhold(&mut self, name: &str, ledger: &mut impl Ledger) {
        let mut used = self.others.use_of(name);
        let Some(seen) = self.nodes.get_mut(name) else {
            return;
        };
        let Some(id) = seen.id else { return };
        used.gpus = used
            .gpus
            .saturating_add(seen.gpus_in_all.saturating_sub(seen.has.gpus));
        if used == seen.unavailable {
            return;
        }
        seen.unavailable = used;
        ledger.record(Fact::NodeUnavailable {
            node: id,
            gpus: used.gpus.min(seen.gpus_in_all),
            cpu_milli: used.cpu_milli,
            memory_mib: used.memory_mib,
        });
    }
}

impl Seen {
    /// Whether the book would be told the same of it.
    fn has_same_shape(&self, other: &Self) -> bool {
        (self.has.cpu_milli, self.has.memory_mib, self.gpus_in_all)
            == (other.has.cpu_milli, other.has.memory_mib, other.gpus_in_all)
            && gpu_type(&self.labels) == gpu_type(&other.labels)
            && rack(&self.labels) == rack(&other.labels)
            && self.by_claims == other.by_claims
            && self.address == other.address
    }
}

fn closed(node: &Node) -> Option<String> {
    if node.spec.unschedulable {
        return Some("it is cordoned".to_owned());
    }
    let ready = node.status.conditions.iter().find(|c| c.kind == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) if !ready.message.is_empty() => Some(format!("it is not ready: {}", ready.message)),
        _ => Some("it is not ready".to_owned()),
    }
}

/// The kind of a node's GPUs.
pub(crate) fn gpu_type(labels: &BTreeMap<String, String>) -> String {
    let said = words::GPU_TYPE_LABELS.iter().find_map(|name| labels.get(*name));
    said.cloned().unwrap_or_else(|| "gpu".to_owned())
}

fn rack(labels: &BTreeMap<String, String>) -> String {
    let names = [
        words::RACK,
        "topology.kubernetes.io/rack",
        "topology.kubernetes.io/zone",
    ];
    let said = names.iter().find_map(|name| labels.get(*name));
    said.cloned().unwrap_or_default()
}
