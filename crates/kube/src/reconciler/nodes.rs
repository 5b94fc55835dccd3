//! Nodes as the API server has them, and what pods of other schedulers use of them.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::{ClusterState, Fact};
use dovetail_kubeapi::{Node, Taint, cpu_milli, memory_mib, whole};
use dovetail_model::ids::Id;
use dovetail_model::{NodeId, NodeSpec, Share};

use super::ClusterTransaction;
use super::devices::DeviceTable;
use super::foreign::{ForeignPod, ForeignPods};
use crate::annotations;
use crate::pod_resources::PodResources;

/// A node as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownNode {
    /// Id in the cluster state; `None` for a node without GPUs.
    pub(crate) id: Option<NodeId>,
    /// Allocatable resources.
    pub(crate) allocatable: PodResources,
    /// GPUs of its capacity, including those that the device plugin lost.
    pub(crate) gpu_capacity: u32,
    /// Whether its GPUs are allocated by ResourceClaims.
    pub(crate) by_claims: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    /// Why the node takes no new pods.
    pub(crate) closed: Option<String>,
    address: String,
    /// Resources that were reported as unavailable.
    unavailable: PodResources,
}

/// Prefix of taints that repeat the conditions of the node.
const CONDITION_TAINTS: &str = "node.kubernetes.io/";

/// Nodes as the API server has them, and what pods of other schedulers use of them.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    nodes: BTreeMap<String, KnownNode>,
    /// The objects: a change of their ResourceSlices evaluates them again.
    objects: BTreeMap<String, Node>,
    names: BTreeMap<NodeId, String>,
    /// Nodes that were lost and are back, while pods of before are still there.
    returning: BTreeMap<String, Node>,
    foreign: ForeignPods,
    /// CPU and memory that pods keep although they were granted less, by node.
    kept: BTreeMap<String, Share>,
    /// Nodes whose use by foreign pods has changed.
    changed: BTreeSet<String>,
}

impl NodeTable {
    pub(super) fn get(&self, name: &str) -> Option<&KnownNode> {
        self.nodes.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &KnownNode)> {
        self.nodes.iter()
    }

    /// Returns the name of a node.
    pub(crate) fn name(&self, id: NodeId) -> String {
        self.names.get(&id).cloned().unwrap_or_default()
    }

    /// Returns the id of a node with GPUs.
    pub(super) fn id(&self, name: &str) -> Option<NodeId> {
        self.nodes.get(name)?.id
    }

    /// Returns the id that a node has or had.
    pub(super) fn known_id(&self, name: &str) -> Option<NodeId> {
        let mut names = self.names.iter();
        names.find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    pub(super) fn object(&self, name: &str) -> Option<Node> {
        self.objects.get(name).cloned()
    }

    pub(super) fn put_object(&mut self, node: &Node) {
        self.objects.insert(node.metadata.name.clone(), node.clone());
    }

    pub(super) fn insert(&mut self, name: &str, node: KnownNode) {
        if let Some(id) = node.id {
            self.names.insert(id, name.to_owned());
        }
        self.nodes.insert(name.to_owned(), node);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<KnownNode> {
        self.returning.remove(name);
        self.objects.remove(name);
        self.nodes.remove(name)
    }

    /// Returns the nodes that are not among these.
    pub(super) fn missing_from(&self, nodes: &[Node]) -> Vec<String> {
        let listed: BTreeSet<&str> = nodes.iter().map(|n| n.metadata.name.as_str()).collect();
        let missing = self.nodes.keys().filter(|name| !listed.contains(name.as_str()));
        missing.cloned().collect()
    }

    /// Remembers a node that is back, until the pods of before are deleted.
    pub(super) fn delay_return(&mut self, node: &Node, id: NodeId) {
        self.names.insert(id, node.metadata.name.clone());
        self.returning.insert(node.metadata.name.clone(), node.clone());
    }

    pub(super) fn has_returned(&mut self, name: &str) {
        self.returning.remove(name);
    }

    pub(super) fn returning(&self) -> Vec<Node> {
        self.returning.values().cloned().collect()
    }

    /// Reads a node object.
    pub(super) fn read(
        node: &Node,
        gpu_resources: &[String],
        devices: &DeviceTable,
        state: &ClusterState,
    ) -> KnownNode {
        let (meta, status) = (&node.metadata, &node.status);
        let amount = |name: &str| status.allocatable.get(name).cloned().unwrap_or_default();
        let gpus = |amounts: &BTreeMap<String, String>| -> u32 {
            let counts = gpu_resources.iter().filter_map(|name| whole(amounts.get(name)?));
            counts.sum()
        };
        let annotated = meta
            .labels
            .get(annotations::GPU_COUNT)
            .or_else(|| meta.annotations.get(annotations::GPU_COUNT));
        let annotated = annotated.and_then(|text| text.parse::<u32>().ok());
        // Devices in slices take precedence: a device plugin beside them would count the same ones.
        let in_slices = Some(devices.devices_on(&meta.name)).filter(|devices| *devices > 0);
        let fixed = in_slices.or(annotated);
        let allocatable = PodResources {
            gpus: fixed.unwrap_or_else(|| gpus(&status.allocatable)),
            cpu_milli: cpu_milli(&amount("cpu")).unwrap_or(0),
            memory_mib: memory_mib(&amount("memory")).unwrap_or(0),
        };
        let gpu_capacity = fixed.unwrap_or_else(|| gpus(&status.capacity).max(allocatable.gpus));
        let known = state.node_named(&meta.name);
        let next = || NodeId::from_index(state.nodes().count());
        let taints = node.spec.taints.iter();
        let internal = status.addresses.iter().find(|a| a.kind == "InternalIP");
        KnownNode {
            id: known.or_else(|| (gpu_capacity > 0).then(next)),
            allocatable,
            gpu_capacity,
            by_claims: in_slices.is_some(),
            labels: meta.labels.clone(),
            taints: taints
                .filter(|t| !t.key.starts_with(CONDITION_TAINTS))
                .cloned()
                .collect(),
            closed: closed(node),
            address: internal.map_or_else(|| meta.name.clone(), |a| a.address.clone()),
            unavailable: PodResources::default(),
        }
    }

    /// Records what a pod of another scheduler uses now; `None` if it uses nothing.
    pub(super) fn set_foreign(&mut self, uid: &str, now: Option<ForeignPod>) {
        let before = self.foreign.get(uid);
        if before == now.as_ref() {
            return;
        }
        self.changed.extend(before.map(|pod| pod.node.clone()));
        self.changed.extend(now.as_ref().map(|pod| pod.node.clone()));
        match now {
            Some(pod) => self.foreign.insert(uid, pod),
            None => drop(self.foreign.remove(uid)),
        }
    }

    pub(super) fn foreign_uids(&self) -> impl Iterator<Item = &String> {
        self.foreign.uids()
    }

    /// Records what pods of a node keep although they were granted less, and reports it.
    pub(super) fn set_kept(&mut self, name: &str, kept: Share, tx: &mut impl ClusterTransaction) {
        match kept == Share::default() {
            true => drop(self.kept.remove(name)),
            false => drop(self.kept.insert(name.to_owned(), kept)),
        }
        self.report_unavailable(name, tx);
    }

    /// Returns CPU and memory of a node that pods of other schedulers do not use.
    pub(super) fn usable(&self, name: &str) -> Share {
        let all = self
            .nodes
            .get(name)
            .map_or(Share::default(), |node| node.allocatable.share());
        all.minus(self.foreign.used_on(name).share())
    }

    /// Reports what is unavailable on the nodes whose use by foreign pods has changed.
    pub(super) fn report_changed(&mut self, tx: &mut impl ClusterTransaction) {
        for name in std::mem::take(&mut self.changed) {
            self.report_unavailable(&name, tx);
        }
    }

    /// Reports what jobs cannot use of a node: the part of foreign pods, what pods keep that were granted less, and lost GPUs.
    pub(super) fn report_unavailable(&mut self, name: &str, tx: &mut impl ClusterTransaction) {
        let used = self.foreign.used_on(name);
        let kept = self.kept.get(name).copied().unwrap_or_default();
        let mut used = used.with(used.share().plus(kept));
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let Some(id) = node.id else { return };
        let lost = node.gpu_capacity.saturating_sub(node.allocatable.gpus);
        used.gpus = used.gpus.saturating_add(lost);
        if used == node.unavailable {
            return;
        }
        node.unavailable = used;
        tx.record(Fact::NodeUnavailable {
            node: id,
            gpus: used.gpus.min(node.gpu_capacity),
            cpu_milli: used.cpu_milli,
            memory_mib: used.memory_mib,
        });
    }
}

impl KnownNode {
    /// Checks whether the cluster state would have the same facts of both.
    pub(super) fn has_same_shape(&self, other: &Self) -> bool {
        let (own, others) = (&self.allocatable, &other.allocatable);
        (self.id, own.cpu_milli, own.memory_mib, self.gpu_capacity)
            == (other.id, others.cpu_milli, others.memory_mib, other.gpu_capacity)
            && gpu_type(&self.labels) == gpu_type(&other.labels)
            && rack(&self.labels) == rack(&other.labels)
            && self.by_claims == other.by_claims
            && self.address == other.address
    }

    /// Takes over what was reported as unavailable.
    pub(super) fn keep_reported(&mut self, before: &Self) {
        self.unavailable = before.unavailable;
    }

    /// Forgets what was reported as unavailable: it was lost with the node.
    pub(super) fn forget_reported(&mut self) {
        self.unavailable = PodResources::default();
    }

    /// Returns the fact that the node joined with this id and name.
    pub(super) fn joined(&self, id: NodeId, name: &str) -> Fact {
        Fact::NodeJoined {
            node: id,
            spec: Box::new(NodeSpec {
                cpu_milli: self.allocatable.cpu_milli,
                memory_mib: self.allocatable.memory_mib,
                ..NodeSpec::plain(name.to_owned(), self.gpu_capacity)
            }),
            gpu_type: gpu_type(&self.labels),
            rack: rack(&self.labels),
            address: self.address.clone(),
            identity: 0,
        }
    }
}

/// Returns why a node takes no new pods; `None` if it takes them.
fn closed(node: &Node) -> Option<String> {
    if node.spec.unschedulable {
        return Some("cordoned".to_owned());
    }
    let ready = node.status.conditions.iter().find(|c| c.kind == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) if !ready.message.is_empty() => Some(format!("not ready: {}", ready.message)),
        _ => Some("not ready".to_owned()),
    }
}

/// Returns the type of the GPUs of a node with these labels.
pub(crate) fn gpu_type(labels: &BTreeMap<String, String>) -> String {
    let value = annotations::GPU_TYPE_LABELS
        .iter()
        .find_map(|name| labels.get(*name));
    value.cloned().unwrap_or_else(|| "gpu".to_owned())
}

fn rack(labels: &BTreeMap<String, String>) -> String {
    let names = [
        annotations::RACK,
        "topology.kubernetes.io/rack",
        "topology.kubernetes.io/zone",
    ];
    let value = names.iter().find_map(|name| labels.get(*name));
    value.cloned().unwrap_or_default()
}
