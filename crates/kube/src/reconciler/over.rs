//! Pods that have more CPU and memory on their node than they were granted.

use std::collections::BTreeMap;

use dovetail_model::{Share, Time};

/// Pods that have more CPU and memory on their node than they were granted.
#[derive(Debug, Default)]
pub(super) struct OverTable {
    /// By node and uid.
    nodes: BTreeMap<String, BTreeMap<String, Over>>,
    /// Node of each of them.
    pods: BTreeMap<String, String>,
}

/// What a pod has too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) share: Share,
    pub(super) since: Time,
    /// Whether it counts as unavailable: the pod does not give it back.
    pub(super) is_kept: bool,
}

impl OverTable {
    /// Returns all of them, with the uids of the pods.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Over)> {
        self.nodes.values().flatten()
    }

    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &Over> {
        self.nodes.get(node).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn of(&self, uid: &str) -> Option<Over> {
        self.nodes.get(self.pods.get(uid)?)?.get(uid).copied()
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<String> {
        let node = self.pods.remove(uid)?;
        if let Some(pods) = self.nodes.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
        Some(node)
    }

    pub(super) fn insert(&mut self, node: &str, uid: &str, over: Over) {
        self.pods.insert(uid.to_owned(), node.to_owned());
        let pods = self.nodes.entry(node.to_owned()).or_default();
        pods.insert(uid.to_owned(), over);
    }

    /// Returns what pods of a node keep.
    pub(super) fn kept_on(&self, node: &str) -> Share {
        let kept = self.on(node).filter(|over| over.is_kept);
        kept.fold(Share::default(), |sum, over| sum.plus(over.share))
    }
}
