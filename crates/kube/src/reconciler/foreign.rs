//! Resources that pods of other schedulers use.

use std::collections::BTreeMap;

use crate::pod_resources::PodResources;

/// What a pod of another scheduler uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForeignPod {
    pub(crate) node: String,
    pub(crate) resources: PodResources,
}

/// Pods of other schedulers that use a node.
#[derive(Debug, Default)]
pub(crate) struct ForeignPods {
    /// By uid.
    pods: BTreeMap<String, ForeignPod>,
    /// By node and uid, so that a change on one node does not visit the pods of all others.
    by_node: BTreeMap<String, BTreeMap<String, PodResources>>,
}

impl ForeignPods {
    pub(crate) fn get(&self, uid: &str) -> Option<&ForeignPod> {
        self.pods.get(uid)
    }

    pub(crate) fn uids(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }

    pub(crate) fn insert(&mut self, uid: &str, pod: ForeignPod) {
        self.remove(uid);
        let on_node = self.by_node.entry(pod.node.clone()).or_default();
        on_node.insert(uid.to_owned(), pod.resources);
        self.pods.insert(uid.to_owned(), pod);
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Option<ForeignPod> {
        let pod = self.pods.remove(uid)?;
        if let Some(on_node) = self.by_node.get_mut(&pod.node) {
            on_node.remove(uid);
            if on_node.is_empty() {
                self.by_node.remove(&pod.node);
            }
        }
        Some(pod)
    }

    /// Returns the resources that these pods use on a node.
    pub(crate) fn used_on(&self, node: &str) -> PodResources {
        let pods = self.by_node.get(node).into_iter().flatten();
        pods.fold(PodResources::default(), |sum, (_, resources)| {
            sum.plus(*resources)
        })
    }
}
