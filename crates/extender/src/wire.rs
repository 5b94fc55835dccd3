//! Requests and answers of kube-scheduler. The keys are the names of Go's fields, and are read in any usual case.

use std::collections::BTreeMap;

use dovetail_hived::{ENABLE, PodSpec};
use dovetail_kubeapi::Pod;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

use crate::annotation::read_spec;
use crate::error::ExtenderError;
use crate::pods::{PodName, is_managed};

/// Reads `null` as the default.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

fn json<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, ExtenderError> {
    serde_json::from_slice(body).map_err(|e| ExtenderError::user(format!("the request is not {what}: {e}")))
}

#[derive(Deserialize)]
struct RawFilter {
    #[serde(default, rename = "Pod", alias = "pod")]
    pod: Option<Pod>,
    #[serde(default, rename = "NodeNames", alias = "nodeNames", alias = "nodenames")]
    node_names: Option<Vec<String>>,
    #[serde(default, rename = "Nodes", alias = "nodes")]
    nodes: Option<IgnoredAny>,
}

/// A `filter` request: where may this pod run?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCall {
    /// The pod.
    pub pod: PodName,
    /// Its request.
    pub spec: PodSpec,
    /// Nodes that Kubernetes suggests.
    pub nodes: Vec<String>,
}

impl FilterCall {
    /// Parses a request.
    ///
    /// # Errors
    /// When a field is missing or invalid.
    pub fn read(body: &[u8]) -> Result<Self, ExtenderError> {
        let raw: RawFilter = json(body, "ExtenderArgs")?;
        let (pod, spec) = pod_and_spec(raw.pod)?;
        let Some(nodes) = raw.node_names else {
            let hint = match raw.nodes {
                Some(_) => {
                    "NodeNames is missing but Nodes is set: set nodeCacheCapable to true for this extender"
                }
                None => "NodeNames is missing",
            };
            return Err(ExtenderError::user(hint).about(&pod));
        };
        Ok(Self { pod, spec, nodes })
    }
}

fn pod_and_spec(pod: Option<Pod>) -> Result<(PodName, PodSpec), ExtenderError> {
    let pod = pod.ok_or_else(|| ExtenderError::user("Pod is missing"))?;
    let name = PodName::of(&pod);
    if name.uid.is_empty() || name.name.is_empty() {
        return Err(ExtenderError::user("Pod has no name or no uid").about(&name));
    }
    if !is_managed(&pod) {
        let what = format!("no container has the limit {ENABLE}");
        return Err(ExtenderError::user(what).about(&name));
    }
    let spec = read_spec(&pod).map_err(|fault| fault.about(&name))?;
    Ok((name, spec))
}

/// The answer to `filter`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FilterResult {
    /// Node of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_names: Option<Vec<String>>,
    /// Reasons why the pod gets no node, by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_nodes: BTreeMap<String, String>,
    /// Error message; empty if the request succeeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

#[derive(Deserialize)]
struct RawPreempt {
    #[serde(default, rename = "Pod", alias = "pod")]
    pod: Option<Pod>,
    #[serde(
        default,
        deserialize_with = "null_as_default",
        rename = "NodeNameToMetaVictims",
        alias = "nodeNameToMetaVictims",
        alias = "nodenametometavictims"
    )]
    victims: BTreeMap<String, IgnoredAny>,
}

/// A `preempt` request: which pods must be deleted for this one?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptCall {
    /// The pod.
    pub pod: PodName,
    /// Its request.
    pub spec: PodSpec,
    /// Nodes on which Kubernetes would delete pods for it.
    pub nodes: Vec<String>,
}

impl PreemptCall {
    /// Parses a request.
    ///
    /// # Errors
    /// When a field is missing or invalid.
    pub fn read(body: &[u8]) -> Result<Self, ExtenderError> {
        let raw: RawPreempt = json(body, "ExtenderPreemptionArgs")?;
        let (pod, spec) = pod_and_spec(raw.pod)?;
        Ok(Self {
            pod,
            spec,
            nodes: raw.victims.into_keys().collect(),
        })
    }
}

/// The answer to `preempt`: pods to delete, by node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PreemptResult {
    /// The pods to delete.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_name_to_meta_victims: BTreeMap<String, MetaVictims>,
}

/// Pods to delete on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetaVictims {
    /// The pods.
    #[serde(rename = "Pods")]
    pub pods: Vec<MetaPod>,
    /// Violated disruption budgets; always 0.
    #[serde(rename = "NumPDBViolations")]
    pub violations: i64,
}

/// A pod by its uid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaPod {
    /// Its uid.
    #[serde(rename = "UID", alias = "uid")]
    pub uid: String,
}

/// A `bind` request: bind this pod to this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BindCall {
    /// Name of the pod.
    #[serde(rename = "PodName", alias = "podName", alias = "podname")]
    pub name: String,
    /// Its namespace.
    #[serde(rename = "PodNamespace", alias = "podNamespace", alias = "podnamespace")]
    pub namespace: String,
    /// Its uid.
    #[serde(rename = "PodUID", alias = "podUID", alias = "podUid", alias = "poduid")]
    pub uid: String,
    /// The node.
    #[serde(rename = "Node", alias = "node")]
    pub node: String,
}

impl BindCall {
    /// Parses a request.
    ///
    /// # Errors
    /// When a field is missing or invalid.
    pub fn read(body: &[u8]) -> Result<Self, ExtenderError> {
        let call: Self = json(body, "ExtenderBindingArgs")?;
        for (what, value) in [
            ("PodName", &call.name),
            ("PodNamespace", &call.namespace),
            ("PodUID", &call.uid),
            ("Node", &call.node),
        ] {
            if value.is_empty() {
                return Err(ExtenderError::user(format!("{what} is empty")));
            }
        }
        Ok(call)
    }

    /// Returns the pod.
    pub fn pod(&self) -> PodName {
        PodName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}

/// The answer to `bind`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindResult {
    /// Error message; empty if the pod was bound.
    pub error: String,
}
