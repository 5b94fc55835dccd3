//! Objects of Kubernetes, as far as they matter to a scheduler.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// `null` is the same as nothing.
pub(crate) fn lenient<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// Something that has a name.
pub trait Object: DeserializeOwned + Send + 'static {
    /// Its metadata.
    fn meta(&self) -> &Meta;
}

macro_rules! objects {
    ($($kind:ty),*) => { $(impl Object for $kind {
        fn meta(&self) -> &Meta { &self.metadata }
    })* };
}
objects!(
    Pod,
    Node,
    Lease,
    Namespace,
    crate::devices::ResourceSlice,
    crate::devices::ResourceClaim
);

/// Name and history of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Names are made from this where there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Its namespace; empty for objects of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unique for ever.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Changes whenever the object does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Counts changes of what is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Labels.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// Set when it is to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// What it belongs to.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<Owner>,
    /// Who has to agree before it goes.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// What an object belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version of its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it looks after the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
}

impl Meta {
    /// Who makes the object anew when it is gone.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|o| o.controller == Some(true))
    }
}

/// A list of objects, as they were at one moment.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub struct List<T> {
    /// Its version.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default = "Vec::new", deserialize_with = "lenient")]
    pub items: Vec<T>,
}

/// The version of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// Watching goes on from here.
    pub resource_version: String,
    /// Set where there is more.
    #[serde(rename = "continue")]
    pub more: String,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Its name.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: PodSpec,
    /// What is there.
    pub status: PodStatus,
}

/// What is wanted of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: String,
    /// Who is to bind it.
    pub scheduler_name: String,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Containers that run before, one by one.
    #[serde(deserialize_with = "lenient")]
    pub init_containers: Vec<Container>,
    /// Larger is more urgent.
    pub priority: Option<i32>,
    /// The class that gave the number.
    pub priority_class_name: String,
    /// `Never`: it stops nobody.
    pub preemption_policy: Option<String>,
    /// Labels its node has to have.
    #[serde(deserialize_with = "lenient")]
    pub node_selector: BTreeMap<String, String>,
    /// Where it may be.
    pub affinity: Option<Affinity>,
    /// Taints it does not mind.
    #[serde(deserialize_with = "lenient")]
    pub tolerations: Vec<Toleration>,
    /// While there is one it must not be bound.
    #[serde(deserialize_with = "lenient")]
    pub scheduling_gates: Vec<Gate>,
    /// Time it gets to end by itself.
    pub termination_grace_period_seconds: Option<i64>,
    /// What running it costs beside its containers.
    #[serde(deserialize_with = "lenient")]
    pub overhead: BTreeMap<String, String>,
    /// Devices it claims.
    #[serde(deserialize_with = "lenient")]
    pub resource_claims: Vec<PodClaim>,
    /// The native gang it belongs to.
    pub scheduling_group: Option<SchedulingGroup>,
    /// The same in older versions of the API.
    pub workload_ref: Option<WorkloadRef>,
}

/// A reason not to bind a pod yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// Its name.
    pub name: String,
}

/// The native gang of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// Its `PodGroup`.
    pub pod_group_name: Option<String>,
}

/// The native gang of a pod, by its workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadRef {
    /// The workload.
    pub name: String,
    /// Its group of pods.
    pub pod_group: String,
    /// Which replica of that group.
    pub pod_group_replica_key: Option<String>,
}

/// A claim of a pod on devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaim {
    /// Its name in the pod.
    pub name: String,
    /// The claim.
    pub resource_claim_name: Option<String>,
    /// Or the template it is made from.
    pub resource_claim_template_name: Option<String>,
}

/// The claim that was made from the template of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaimStatus {
    /// Its name in the pod.
    pub name: String,
    /// The claim; none where none is needed.
    pub resource_claim_name: Option<String>,
}

/// Where a pod may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// With respect to nodes.
    pub node_affinity: Option<NodeAffinity>,
}

/// Nodes on which a pod may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// What has to hold.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// One of these terms has to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    #[serde(deserialize_with = "lenient")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All of these have to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// About labels.
    #[serde(deserialize_with = "lenient")]
    pub match_expressions: Vec<Requirement>,
    /// About fields, such as the name.
    #[serde(deserialize_with = "lenient")]
    pub match_fields: Vec<Requirement>,
}

/// A condition on a label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// To compare with.
    #[serde(deserialize_with = "lenient")]
    pub values: Vec<String>,
}

/// A taint a pod does not mind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// The taint; any where there is none.
    pub key: String,
    /// `Equal` or `Exists`.
    pub operator: String,
    /// Its value.
    pub value: String,
    /// Its effect; any where there is none.
    pub effect: String,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// What it needs.
    pub resources: Resources,
    /// `Always` on one that runs before: it runs on beside the others.
    pub restart_policy: Option<String>,
}

/// What a container needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// What is kept for it.
    #[serde(deserialize_with = "lenient")]
    pub requests: BTreeMap<String, String>,
    /// The most it gets.
    #[serde(deserialize_with = "lenient")]
    pub limits: BTreeMap<String, String>,
}

/// What is there of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// A word for why.
    pub reason: String,
    /// A sentence for why.
    pub message: String,
    /// Conditions.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
    /// How its containers are.
    #[serde(deserialize_with = "lenient")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Claims that were made from templates.
    #[serde(deserialize_with = "lenient")]
    pub resource_claim_statuses: Vec<PodClaimStatus>,
    /// When its node took it up.
    pub start_time: Option<String>,
    /// Its address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
}

/// A condition of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

/// How a container is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: ContainerState,
}

/// The state of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Set when it is over.
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: i32,
    /// Such as `OOMKilled`.
    pub reason: String,
    /// Its last words.
    pub message: String,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its name.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: NodeSpec,
    /// What is there.
    pub status: NodeStatus,
}

/// What is wanted of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// It takes no new pods.
    pub unschedulable: bool,
    /// Who may not be there.
    #[serde(deserialize_with = "lenient")]
    pub taints: Vec<Taint>,
}

/// Something about a node that keeps pods away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its name.
    pub key: String,
    /// Its value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What a node has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// In all.
    #[serde(deserialize_with = "lenient")]
    pub capacity: BTreeMap<String, String>,
    /// For pods.
    #[serde(deserialize_with = "lenient")]
    pub allocatable: BTreeMap<String, String>,
    /// Conditions.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
    /// Addresses.
    #[serde(deserialize_with = "lenient")]
    pub addresses: Vec<NodeAddress>,
}

/// An address of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// `InternalIP`, `Hostname`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Its name.
    pub metadata: Meta,
}

/// A pod and its node. Annotations of its metadata become the pod's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    api_version: &'static str,
    kind: &'static str,
    /// Name, namespace and uid of the pod.
    pub metadata: Meta,
    /// The node.
    pub target: Target,
}

impl Binding {
    /// Of the pod that has this metadata.
    pub fn new(pod: Meta, node: &str) -> Self {
        Self {
            api_version: "v1",
            kind: "Binding",
            metadata: pod,
            target: Target {
                api_version: "v1",
                kind: "Node",
                name: node.to_owned(),
            },
        }
    }
}

/// Where a pod is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    api_version: &'static str,
    kind: &'static str,
    /// The node.
    pub name: String,
}

/// Names an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Group and version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// A lease: who holds something, and until when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Its name.
    pub metadata: Meta,
    /// What it says.
    pub spec: LeaseSpec,
}

/// What a lease says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Who holds it.
    pub holder_identity: Option<String>,
    /// How long it is good for after it was renewed.
    pub lease_duration_seconds: Option<i64>,
    /// Since when.
    pub acquire_time: Option<String>,
    /// When it was renewed last.
    pub renew_time: Option<String>,
    /// How often it changed hands.
    pub lease_transitions: Option<i64>,
}
