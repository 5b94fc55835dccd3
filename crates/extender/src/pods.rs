//! Pods as the extender tracks them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use dovetail_hived::{ENABLE, PodSpec};
use dovetail_kubeapi::Pod;

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time since an earlier timestamp, in microseconds; 0 if that one is later.
    pub(crate) fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// Identifies one pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodName {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
}

impl PodName {
    /// Returns the name of a pod object.
    pub fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        }
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, uid } = self;
        write!(f, "{namespace}/{name}({uid})")
    }
}

/// Whether a pod opts in to the extender by a container limit.
pub(crate) fn is_managed(pod: &Pod) -> bool {
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    containers
        .filter_map(|c| c.resources.limits.get(ENABLE))
        .any(|amount| amount != "0")
}

/// Whether a pod has ended.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

/// A command to bind a pod, with the annotations to write on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindCommand {
    /// The pod.
    pub pod: PodName,
    /// Its node.
    pub node: String,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
}

/// State of a pod.
#[derive(Debug, Clone)]
pub(crate) enum PodState {
    /// No place was found for it.
    Waiting,
    /// Other pods must be deleted for it.
    Preempting,
    /// It has a place and counts as if it were there.
    Binding {
        command: Arc<BindCommand>,
        /// Number of further requests for it.
        attempts: u32,
    },
    /// It is bound to this node.
    Bound(String),
}

/// The last request of a pod that has no place yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingRequest {
    pub(crate) spec: PodSpec,
    /// Nodes that Kubernetes suggests; empty if the pod ignores them.
    pub(crate) nodes: Vec<String>,
    /// Since when it waits for victims to be deleted.
    pub(crate) victims_since: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(crate) struct PodRecord {
    pub(crate) name: PodName,
    pub(crate) state: PodState,
    /// Whether it is being deleted.
    pub(crate) is_ending: bool,
    /// Whether the API server has reported it, not only kube-scheduler.
    pub(crate) is_reported: bool,
    /// When it was first seen.
    pub(crate) first_seen: Timestamp,
    /// When kube-scheduler last asked for it.
    pub(crate) last_asked: Timestamp,
    pub(crate) pending: Option<PendingRequest>,
}

impl PodRecord {
    pub(crate) fn new(name: PodName, now: Timestamp) -> Self {
        Self {
            name,
            state: PodState::Waiting,
            is_ending: false,
            is_reported: false,
            first_seen: now,
            last_asked: now,
            pending: None,
        }
    }

    /// Returns the node that it is or will be bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        match &self.state {
            PodState::Binding { command, .. } => Some(&command.node),
            PodState::Bound(node) => Some(node),
            PodState::Waiting | PodState::Preempting => None,
        }
    }
}

/// Maximum number of deleted pods that are remembered.
const MAX_DELETED: usize = 16_384;

/// Pods that were deleted or have ended. kube-scheduler may still ask for one of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeletedPods {
    order: VecDeque<String>,
    uids: BTreeSet<String>,
}

impl DeletedPods {
    pub(crate) fn add(&mut self, uid: &str) {
        if self.uids.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
        }
        while self.order.len() > MAX_DELETED {
            if let Some(first) = self.order.pop_front() {
                self.uids.remove(&first);
            }
        }
    }

    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}
