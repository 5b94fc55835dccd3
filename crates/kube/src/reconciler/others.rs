//! Pods that are not ours, and what they use of the nodes.

use std::collections::BTreeMap;

use crate::ask::Needs;

/// What a pod of somebody else uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) node: String,
    pub(crate) needs: Needs,
}

/// All pods of others that use a node.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// By uid.
    pods: BTreeMap<String, Other>,
    /// The same by node: a change on one node has nothing to do with the pods of all others.
    on: BTreeMap<String, BTreeMap<String, Needs>>,
}

impl Others {
    pub(crate) fn get(&self, uid: &str) -> Option<&Other> {
        self.pods.get(uid)
    }

    pub(crate) fn uids(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }

    pub(crate) fn insert(&mut self, uid: &str, other: Other) {
        self.remove(uid);
        let there = self.on.entry(other.node.clone()).or_default();
        there.insert(uid.to_owned(), other.needs);
        self.pods.insert(uid.to_owned(), other);
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Option<Other> {
        let other = self.pods.remove(uid)?;
        if let Some(there) = self.on.get_mut(&other.node) {
            there.remove(uid);
            if there.is_empty() {
                self.on.remove(&other.node);
            }
        }
        Some(other)
    }

    /// What all of them use of a node.
    pub(crate) fn use_of(&self, node: &str) -> Needs {
        let there = self.on.get(node).into_iter().flatten();
        there.fold(Needs::default(), |sum, (_, needs)| sum.plus(*needs))
    }
}
