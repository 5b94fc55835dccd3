//! CPU and memory of a pod as its object shows them, and how they are changed in place.

use std::collections::BTreeMap;

use dovetail_kubeapi::{Container, Pod, cpu_milli, memory_mib};
use dovetail_model::Share;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::annotations;
use crate::pod_resources::{PodResources, PodResourcesError};

/// Least CPU and memory that a container is given, whatever the other containers of its pod request.
const LEAST: Share = Share::new(10, 16);
/// Differences that come from rounding, between what a pod requests and what its node reports.
const TOLERANCE: Share = Share::new(10, 4);

/// CPU and memory of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodSize {
    /// What the pod requests now.
    pub desired: Share,
    /// What it has on its node, which may be more while it is resized.
    pub held: Share,
    /// What its manifest requested, if the pod was resized.
    pub requested: Option<Share>,
    /// Why its node does not give it what it requests.
    pub trouble: Option<ResizeTrouble>,
    /// The container that is resized.
    container: ResizableContainer,
}

/// The container with the GPUs of a pod, and what can be changed of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ResizableContainer {
    name: String,
    cpu: Option<Resizable>,
    memory: Option<Resizable>,
    /// What the other containers of the pod request.
    beside: Share,
}

/// An amount that a container requests: CPU in milli-cores or memory in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resizable {
    request: u64,
    /// By how much its limit is larger; none without a limit.
    headroom: Option<u64>,
    /// Whether the container is restarted by a change.
    restarts: bool,
}

/// Why a node does not give a pod what it requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeTrouble {
    /// The node can never do it.
    Infeasible(String),
    /// The node cannot do it now.
    Deferred(String),
    /// The node tried, and failed.
    Failed(String),
}

/// What the manifest of a pod requested, as it is written on the pod before it is resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestedText {
    cpu_milli: u32,
    memory_mib: u64,
}

/// New amounts of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAmounts {
    container: String,
    cpu: Option<NewAmount>,
    memory: Option<NewAmount>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NewAmount {
    request: u64,
    limit: Option<u64>,
}

impl PodSize {
    /// Reads the size of a pod.
    ///
    /// # Errors
    /// If an amount cannot be parsed.
    pub fn of(pod: &Pod, gpu_resources: &[String]) -> Result<Self, PodResourcesError> {
        Ok(Self {
            desired: PodResources::of(pod, gpu_resources)?.share(),
            held: PodResources::held(pod, gpu_resources)?.share(),
            requested: requested(pod),
            trouble: trouble(pod),
            container: ResizableContainer::of(pod, gpu_resources)?,
        })
    }

    /// Returns the change of the pod to this size; none if nothing can be changed. A running container that would be
    /// restarted by a change keeps what it has.
    pub fn change_to(&self, target: Share, is_bound: bool) -> Option<NewAmounts> {
        let own = self.container.own(target);
        let change = |resource: Option<Resizable>, amount: u64| {
            let now = resource.filter(|now| now.request != amount && !(now.restarts && is_bound))?;
            Some(NewAmount {
                request: amount,
                limit: now.headroom.map(|headroom| amount.saturating_add(headroom)),
            })
        };
        let cpu = change(self.container.cpu, u64::from(own.cpu_milli));
        let memory = change(self.container.memory, own.memory_mib);
        (cpu.is_some() || memory.is_some()).then(|| NewAmounts {
            container: self.container.name.clone(),
            cpu,
            memory,
        })
    }

    /// Returns the name of the container and the resource that a running pod keeps, because a change to this size would
    /// restart it.
    pub fn kept(&self, target: Share) -> Option<(&str, &'static str)> {
        let (container, own) = (&self.container, self.container.own(target));
        let keeps = |resource: Option<Resizable>, amount: u64| {
            resource.is_some_and(|now| now.restarts && now.request != amount)
        };
        let cpu = keeps(container.cpu, u64::from(own.cpu_milli)).then_some("cpu");
        let kept = cpu.or_else(|| keeps(container.memory, own.memory_mib).then_some("memory"))?;
        Some((&container.name, kept))
    }

    /// Returns what the pod has on its node beyond this.
    pub fn held_beyond(&self, granted: Share) -> Share {
        let over = self.held.minus(granted);
        Share::new(
            if over.cpu_milli > TOLERANCE.cpu_milli {
                over.cpu_milli
            } else {
                0
            },
            if over.memory_mib > TOLERANCE.memory_mib {
                over.memory_mib
            } else {
                0
            },
        )
    }

    /// Returns the text of the annotation with what the manifest of the pod requested; none if it has the annotation.
    pub(crate) fn requested_text(&self) -> Option<String> {
        if self.requested.is_some() {
            return None;
        }
        let Share {
            cpu_milli,
            memory_mib,
        } = self.desired;
        serde_json::to_string(&RequestedText {
            cpu_milli,
            memory_mib,
        })
        .ok()
    }
}

impl ResizableContainer {
    fn of(pod: &Pod, gpu_resources: &[String]) -> Result<Self, PodResourcesError> {
        let containers = &pod.spec.containers;
        let has_gpus = |c: &&Container| {
            let amounts = c.resources.limits.keys().chain(c.resources.requests.keys());
            amounts.into_iter().any(|name| gpu_resources.contains(name))
        };
        let Some(container) = containers.iter().find(has_gpus).or(containers.first()) else {
            return Ok(Self::default());
        };
        let own = PodResources::of_container(container, gpu_resources)?.share();
        let all = PodResources::of(pod, gpu_resources)?.share();
        let resizable = |resource: &str, amount: u64, parse: &dyn Fn(&str) -> Option<u64>| {
            let resources = &container.resources;
            let limit = resources.limits.get(resource).and_then(|text| parse(text));
            let is_requested = resources.requests.contains_key(resource) || limit.is_some();
            let mut policies = container.resize_policy.iter();
            is_requested.then(|| Resizable {
                request: amount,
                headroom: limit.map(|limit| limit.saturating_sub(amount)),
                restarts: policies
                    .any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer"),
            })
        };
        Ok(Self {
            name: container.name.clone(),
            cpu: resizable("cpu", u64::from(own.cpu_milli), &|text| {
                cpu_milli(text).map(u64::from)
            }),
            memory: resizable("memory", own.memory_mib, &memory_mib),
            beside: all.minus(own),
        })
    }

    /// Returns what the container gets if its pod gets this.
    fn own(&self, target: Share) -> Share {
        target.minus(self.beside).at_least(LEAST)
    }
}

impl ResizeTrouble {
    /// Returns what the node reported.
    pub fn message(&self) -> &str {
        match self {
            Self::Infeasible(message) | Self::Deferred(message) | Self::Failed(message) => message,
        }
    }

    /// Returns the reason of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Infeasible(_) => "ResizeInfeasible",
            Self::Deferred(_) => "ResizeDeferred",
            Self::Failed(_) => "ResizeFailed",
        }
    }
}

impl NewAmounts {
    /// Returns the patch of the subresource `resize`.
    pub fn patch(&self) -> Value {
        let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
        for (resource, unit, amount) in [("cpu", "m", self.cpu), ("memory", "Mi", self.memory)] {
            let Some(amount) = amount else { continue };
            requests.insert(resource, format!("{}{unit}", amount.request));
            if let Some(limit) = amount.limit {
                limits.insert(resource, format!("{limit}{unit}"));
            }
        }
        let mut resources = json!({"requests": requests});
        if !limits.is_empty() {
            resources["limits"] = json!(limits);
        }
        json!({"spec": {"containers": [{"name": self.container, "resources": resources}]}})
    }

    /// Returns changes of one resource each; none if it is only one.
    pub(crate) fn split(&self) -> Option<[Self; 2]> {
        let (_, _) = (self.cpu?, self.memory?);
        let cpu = Self {
            memory: None,
            ..self.clone()
        };
        let memory = Self {
            cpu: None,
            ..self.clone()
        };
        Some([cpu, memory])
    }
}

fn requested(pod: &Pod) -> Option<Share> {
    let text = pod.metadata.annotations.get(annotations::REQUESTED)?;
    let requested: RequestedText = serde_json::from_str(text).ok()?;
    Some(Share::new(requested.cpu_milli, requested.memory_mib))
}

/// Returns why a node does not give a pod what it requests.
fn trouble(pod: &Pod) -> Option<ResizeTrouble> {
    let of_condition = |kind: &str, status: &str, reason: &str, message: &String| match (kind, status, reason)
    {
        ("PodResizePending", "True", "Infeasible") => Some(ResizeTrouble::Infeasible(message.clone())),
        ("PodResizePending", "True", "Deferred") => Some(ResizeTrouble::Deferred(message.clone())),
        ("PodResizeInProgress", "True", "Error") => Some(ResizeTrouble::Failed(message.clone())),
        _ => None,
    };
    let mut conditions = pod.status.conditions.iter();
    conditions.find_map(|c| of_condition(&c.kind, &c.status, &c.reason, &c.message))
}

/// Returns what a container that requests this has on its node: the largest of what it requests, what the node has accepted, and
/// what it has now. What a node can never give is not counted.
pub(crate) fn node_amounts(pod: &Pod, container: &Container, requested: Share) -> Share {
    let mut statuses = pod.status.container_statuses.iter();
    let Some(status) = statuses.find(|status| status.name == container.name) else {
        return requested;
    };
    let share = |amounts: &BTreeMap<String, String>| {
        let cpu = amounts.get("cpu").and_then(|text| cpu_milli(text));
        let memory = amounts.get("memory").and_then(|text| memory_mib(text));
        (cpu, memory)
    };
    let (accepted_cpu, accepted_memory) = share(&status.allocated_resources);
    let (cpu_now, memory_now) = status
        .resources
        .as_ref()
        .map_or((None, None), |now| share(&now.requests));
    let on_node = (accepted_cpu.max(cpu_now), accepted_memory.max(memory_now));
    let known = Share::new(
        on_node.0.unwrap_or(requested.cpu_milli),
        on_node.1.unwrap_or(requested.memory_mib),
    );
    match trouble(pod) {
        Some(ResizeTrouble::Infeasible(_)) => known,
        _ => known.at_least(requested),
    }
}

#[cfg(test)]
mod tests;
