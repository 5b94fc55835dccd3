//! Pods as the extender knows them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use dovetail_cells::hived::PodSpec;
use dovetail_kubeapi::Pod;

use crate::annotation::ENABLE;

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub i64);

impl Moment {
    /// The time between two moments, in microseconds; none if it is the other way round.
    pub(crate) fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// Names one pod for ever.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl PodName {
    /// Of an object.
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

/// Whether a pod is for us: a container has the limit.
pub(crate) fn is_managed(pod: &Pod) -> bool {
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    containers
        .filter_map(|c| c.resources.limits.get(ENABLE))
        .any(|amount| amount != "0")
}

/// Whether a pod has ended.
pub(crate) fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

/// A pod that is to be bound, and what is written on it then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindOrder {
    /// The pod.
    pub pod: PodName,
    /// Its node.
    pub node: String,
    /// What is written on it.
    pub annotations: BTreeMap<String, String>,
}

/// Where a pod is on its way.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// Nothing was found for it.
    Waiting,
    /// Others have to go for it.
    Preempting,
    /// It has its place, and is counted as if it were there.
    Binding {
        order: Arc<BindOrder>,
        /// How often it was asked for since.
        attempts: u32,
    },
    /// It is there.
    Bound(String),
}

/// What a pod that has no place yet asked for last.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) spec: PodSpec,
    /// Nodes it may go to, if it matters.
    pub(crate) nodes: Vec<String>,
    /// Since when it waits for somebody to delete others, if it does.
    pub(crate) for_victims: Option<Moment>,
}

#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) name: PodName,
    pub(crate) state: State,
    /// It has been told to end.
    pub(crate) is_ending: bool,
    /// Kubernetes has told of it, not only kube-scheduler.
    pub(crate) is_heard: bool,
    /// When it was first heard of.
    pub(crate) first: Moment,
    /// When it was last asked for.
    pub(crate) touched: Moment,
    pub(crate) asked: Option<Asked>,
}

impl Known {
    pub(crate) fn new(name: PodName, now: Moment) -> Self {
        Self {
            name,
            state: State::Waiting,
            is_ending: false,
            is_heard: false,
            first: now,
            touched: now,
            asked: None,
        }
    }

    /// The node it is on, or will be.
    pub(crate) fn node(&self) -> Option<&str> {
        match &self.state {
            State::Binding { order, .. } => Some(&order.node),
            State::Bound(node) => Some(node),
            State::Waiting | State::Preempting => None,
        }
    }
}

/// Pods that were there: kube-scheduler may still ask for one it has not heard of the end of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gone {
    order: VecDeque<String>,
    all: BTreeSet<String>,
}

/// So many are remembered.
const REMEMBERED: usize = 16_384;

impl Gone {
    pub(crate) fn add(&mut self, uid: &str) {
        if self.all.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
        }
        while self.order.len() > REMEMBERED {
            if let Some(first) = self.order.pop_front() {
                self.all.remove(&first);
            }
        }
    }

    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.all.contains(uid)
    }
}
