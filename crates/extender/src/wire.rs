//! What kube-scheduler sends and gets. The names are those of Go's fields; they are read in any of the usual cases.

use std::collections::BTreeMap;

use dovetail_cells::hived::PodSpec;
use dovetail_kubeapi::Pod;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

use crate::annotation::read_spec;
use crate::pods::{PodName, is_managed};

/// Why a request gets no answer: 400 is the fault of whoever asks, 500 is ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Code: {code}, Message: {message}")]
pub struct Fault {
    /// The HTTP status.
    pub code: u16,
    /// What is wrong.
    pub message: String,
}

impl Fault {
    /// The request is wrong.
    pub fn user(message: impl Into<String>) -> Self {
        Self {
            code: 400,
            message: message.into(),
        }
    }

    /// Something is wrong here.
    pub fn platform(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            message: message.into(),
        }
    }

    /// The same, about this pod.
    pub(crate) fn about(mut self, pod: &PodName) -> Self {
        self.message = format!("Pod {pod}: {}", self.message);
        self
    }
}

fn lenient<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

fn json<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|e| Fault::user(format!("the request is not {what}: {e}")))
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

/// `filter`: where may this pod go?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCall {
    /// The pod.
    pub pod: PodName,
    /// What it asks for.
    pub spec: PodSpec,
    /// The nodes Kubernetes would take.
    pub nodes: Vec<String>,
}

impl FilterCall {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let raw: RawFilter = json(body, "ExtenderArgs")?;
        let (pod, spec) = asked(raw.pod)?;
        let Some(nodes) = raw.node_names else {
            let hint = match raw.nodes {
                Some(_) => {
                    "NodeNames is missing and Nodes is there: set nodeCacheCapable to true for this extender"
                }
                None => "NodeNames is missing",
            };
            return Err(Fault::user(hint).about(&pod));
        };
        Ok(Self { pod, spec, nodes })
    }
}

fn asked(pod: Option<Pod>) -> Result<(PodName, PodSpec), Fault> {
    let pod = pod.ok_or_else(|| Fault::user("Pod is missing"))?;
    let name = PodName::of(&pod);
    if name.uid.is_empty() || name.name.is_empty() {
        return Err(Fault::user("Pod has no name or no uid").about(&name));
    }
    if !is_managed(&pod) {
        let what = format!("no container has the limit {}", crate::ENABLE);
        return Err(Fault::user(what).about(&name));
    }
    let spec = read_spec(&pod).map_err(|fault| fault.about(&name))?;
    Ok((name, spec))
}

/// The answer to `filter`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FilterResult {
    /// The node the pod goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_names: Option<Vec<String>>,
    /// Why it goes to none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_nodes: BTreeMap<String, String>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

#[derive(Deserialize)]
struct RawPreempt {
    #[serde(default, rename = "Pod", alias = "pod")]
    pod: Option<Pod>,
    #[serde(
        default,
        deserialize_with = "lenient",
        rename = "NodeNameToMetaVictims",
        alias = "nodeNameToMetaVictims",
        alias = "nodenametometavictims"
    )]
    victims: BTreeMap<String, IgnoredAny>,
}

/// `preempt`: which pods have to go for this one?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptCall {
    /// The pod.
    pub pod: PodName,
    /// What it asks for.
    pub spec: PodSpec,
    /// The nodes where Kubernetes would delete pods for it.
    pub nodes: Vec<String>,
}

impl PreemptCall {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let raw: RawPreempt = json(body, "ExtenderPreemptionArgs")?;
        let (pod, spec) = asked(raw.pod)?;
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
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_name_to_meta_victims: BTreeMap<String, MetaVictims>,
}

/// Pods to delete on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetaVictims {
    /// The pods.
    #[serde(rename = "Pods")]
    pub pods: Vec<MetaPod>,
    /// Disruption budgets that would be broken; none are looked at.
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

/// `bind`: put this pod on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BindCall {
    /// Its name.
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
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let call: Self = json(body, "ExtenderBindingArgs")?;
        for (what, value) in [
            ("PodName", &call.name),
            ("PodNamespace", &call.namespace),
            ("PodUID", &call.uid),
            ("Node", &call.node),
        ] {
            if value.is_empty() {
                return Err(Fault::user(format!("{what} is empty")));
            }
        }
        Ok(call)
    }

    /// The pod.
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
    /// Why the pod is not bound; empty if it is.
    pub error: String,
}
