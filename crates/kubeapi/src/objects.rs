//! Kubernetes objects with the fields that a scheduler needs.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// Reads `null` as the default.
pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// A Kubernetes object.
pub trait Object: DeserializeOwned + Send + 'static {
    /// Returns its metadata.
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

/// Metadata of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Prefix of a generated name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Its namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Identifier that is unique over the lifetime of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Version, which changes whenever the object does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Number of changes of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Labels.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// Set while it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Its owners.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<Owner>,
    /// Controllers that must agree before it is deleted.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// The owner of an object.
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
    /// Whether it manages the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
}

impl Meta {
    /// Returns the owner that recreates the object when it is deleted.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|o| o.controller == Some(true))
    }
}

/// A list of objects at one version.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub struct List<T> {
    /// Its version.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default = "Vec::new", deserialize_with = "null_as_default")]
    pub items: Vec<T>,
}

/// The version of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// The version from which to watch.
    pub resource_version: String,
    /// Token for the next page; empty on the last one.
    #[serde(rename = "continue")]
    pub more: String,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Name, namespace and labels.
    pub metadata: Meta,
    /// Desired state.
    pub spec: PodSpec,
    /// Observed state.
    pub status: PodStatus,
}

/// Desired state of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: String,
    /// The scheduler that binds it.
    pub scheduler_name: String,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Containers that run one by one before the others.
    #[serde(deserialize_with = "null_as_default")]
    pub init_containers: Vec<Container>,
    /// Its priority; higher values are more important.
    pub priority: Option<i32>,
    /// The priority class.
    pub priority_class_name: String,
    /// `Never` if it must not preempt other pods.
    pub preemption_policy: Option<String>,
    /// Labels that its node must have.
    #[serde(deserialize_with = "null_as_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Constraints on its node.
    pub affinity: Option<Affinity>,
    /// Taints that it tolerates.
    #[serde(deserialize_with = "null_as_default")]
    pub tolerations: Vec<Toleration>,
    /// Gates; it must not be bound while there is one.
    #[serde(deserialize_with = "null_as_default")]
    pub scheduling_gates: Vec<Gate>,
    /// Grace period for its termination, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// Resources for running it beside those of its containers.
    #[serde(deserialize_with = "null_as_default")]
    pub overhead: BTreeMap<String, String>,
    /// Devices it claims.
    #[serde(deserialize_with = "null_as_default")]
    pub resource_claims: Vec<PodClaim>,
    /// The native gang it belongs to.
    pub scheduling_group: Option<SchedulingGroup>,
    /// The native gang in older versions of the API.
    pub workload_ref: Option<WorkloadRef>,
}

/// A gate that keeps a pod from being bound.
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
    /// The replica of that group.
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
    /// The template from which the claim is created.
    pub resource_claim_template_name: Option<String>,
}

/// The claim that was created from a template of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaimStatus {
    /// Its name in the pod.
    pub name: String,
    /// The claim; `None` if none is needed.
    pub resource_claim_name: Option<String>,
}

/// Constraints on the node of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Node affinity.
    pub node_affinity: Option<NodeAffinity>,
}

/// Node affinity of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Terms that must match.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// Terms of which one must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    #[serde(deserialize_with = "null_as_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that must all match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(deserialize_with = "null_as_default")]
    pub match_expressions: Vec<Requirement>,
    /// Requirements on fields, such as the name.
    #[serde(deserialize_with = "null_as_default")]
    pub match_fields: Vec<Requirement>,
}

/// A requirement on a label or field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values to compare with.
    #[serde(deserialize_with = "null_as_default")]
    pub values: Vec<String>,
}

/// A taint that a pod tolerates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// Key of the taint; empty for any.
    pub key: String,
    /// `Equal` or `Exists`.
    pub operator: String,
    /// Its value.
    pub value: String,
    /// Effect of the taint; empty for any.
    pub effect: String,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its resources.
    pub resources: Resources,
    /// `Always` on an init container that keeps running beside the others.
    pub restart_policy: Option<String>,
    /// What a change of its resources does to it.
    #[serde(deserialize_with = "null_as_default")]
    pub resize_policy: Vec<ResizePolicy>,
}

/// What a change of a resource does to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResizePolicy {
    /// `cpu` or `memory`.
    pub resource_name: String,
    /// `NotRequired` or `RestartContainer`.
    pub restart_policy: String,
}

/// Resources of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Reserved amounts.
    #[serde(deserialize_with = "null_as_default")]
    pub requests: BTreeMap<String, String>,
    /// Upper limits.
    #[serde(deserialize_with = "null_as_default")]
    pub limits: BTreeMap<String, String>,
}

/// Observed state of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Machine-readable reason.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// Conditions.
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
    /// States of its containers.
    #[serde(deserialize_with = "null_as_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Claims that were created from templates.
    #[serde(deserialize_with = "null_as_default")]
    pub resource_claim_statuses: Vec<PodClaimStatus>,
    /// When its node accepted it.
    pub start_time: Option<String>,
    /// Its address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
}

/// A condition of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Machine-readable reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

/// Status of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: ContainerState,
    /// What the node has accepted to give it.
    #[serde(deserialize_with = "null_as_default")]
    pub allocated_resources: BTreeMap<String, String>,
    /// What it has now.
    pub resources: Option<Resources>,
}

/// State of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Set while it runs.
    pub running: Option<RunningContainer>,
    /// Set when it has terminated.
    pub terminated: Option<Terminated>,
}

/// A container that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunningContainer {
    /// When it started.
    pub started_at: Option<String>,
}

/// The termination of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: i32,
    /// Machine-readable reason, such as `OOMKilled`.
    pub reason: String,
    /// Its termination message.
    pub message: String,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Name, namespace and labels.
    pub metadata: Meta,
    /// Desired state.
    pub spec: NodeSpec,
    /// Observed state.
    pub status: NodeStatus,
}

/// Desired state of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it accepts no new pods.
    pub unschedulable: bool,
    /// Taints that repel pods.
    #[serde(deserialize_with = "null_as_default")]
    pub taints: Vec<Taint>,
}

/// A property of a node that repels pods.
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

/// Observed state of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Total resources.
    #[serde(deserialize_with = "null_as_default")]
    pub capacity: BTreeMap<String, String>,
    /// Resources available to pods.
    #[serde(deserialize_with = "null_as_default")]
    pub allocatable: BTreeMap<String, String>,
    /// Conditions.
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
    /// Addresses.
    #[serde(deserialize_with = "null_as_default")]
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
    /// Name, namespace and labels.
    pub metadata: Meta,
}

/// A binding of a pod to a node. Annotations in its metadata are added to the pod.
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
    /// Returns a binding of the pod with this metadata.
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

/// The node that a pod is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    api_version: &'static str,
    kind: &'static str,
    /// The node.
    pub name: String,
}

/// A reference to an object.
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

/// A lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Name, namespace and labels.
    pub metadata: Meta,
    /// Its content.
    pub spec: LeaseSpec,
}

/// Content of a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// The holder.
    pub holder_identity: Option<String>,
    /// How long it is valid after a renewal, in seconds.
    pub lease_duration_seconds: Option<i64>,
    /// When the holder acquired it.
    pub acquire_time: Option<String>,
    /// When it was last renewed.
    pub renew_time: Option<String>,
    /// How often its holder changed.
    pub lease_transitions: Option<i64>,
}
