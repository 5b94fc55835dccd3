//! What is known of nodes and of our own objects.

use std::collections::BTreeMap;

use dovetail_kubeapi::{Change, Error, Object};
use serde_json::Value;

use crate::resources::{ClusterTopology, SchedulingPolicy, VirtualCluster};
use crate::watching::Heard;

/// Objects of one of our kinds.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    pub(crate) known: BTreeMap<String, T>,
    pub(crate) listed: bool,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            listed: false,
        }
    }
}

impl<T: Object> Kept<T> {
    pub(crate) fn hear(&mut self, change: Change<T>) {
        match change {
            Change::All(all) => {
                self.known = all.into_iter().map(|o| (o.meta().name.clone(), o)).collect();
                self.listed = true;
            }
            Change::Put(one) => drop(self.known.insert(one.meta().name.clone(), one)),
            Change::Gone(one) => drop(self.known.remove(&one.meta().name)),
            // Where the kinds were never made, there are none.
            Change::Trouble(error) => self.listed |= error.is_not_found(),
        }
    }
}

/// Whether all objects of a kind are known: they were listed, or there are none that we may see.
pub(crate) fn are_listed<T>(change: &Change<T>) -> bool {
    match change {
        Change::All(_) => true,
        Change::Trouble(error) => error.is_not_found() || error.code() == Some(403),
        Change::Put(_) | Change::Gone(_) => false,
    }
}

/// What is known of nodes and of our own objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) nodes: bool,
    /// Devices and claims on them were listed, where there are such things.
    pub(crate) slices: bool,
    pub(crate) claims: bool,
    pub(crate) clusters: Kept<VirtualCluster>,
    pub(crate) topologies: Kept<ClusterTopology>,
    pub(crate) policies: Kept<SchedulingPolicy>,
}

impl Objects {
    pub(crate) fn are_known(&self) -> bool {
        self.nodes
            && self.slices
            && self.claims
            && self.clusters.listed
            && self.topologies.listed
            && self.policies.listed
    }

    /// Whether something is refused without which nothing works; all else is tried again.
    pub(crate) fn complains(&self, said: &Heard) -> Result<(), Error> {
        let trouble = match said {
            Heard::Nodes(Change::Trouble(error)) => error,
            Heard::Pods(changes) => match changes.last() {
                Some(Change::Trouble(error)) => error,
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        tracing::warn!("{trouble}");
        match trouble {
            Error::Refused { what, status } if matches!(status.code, 401 | 403) => Err(Error::Refused {
                what: what.clone(),
                status: status.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Objects that say what is promised: kind, name, generation and status.
    pub(crate) fn promised(&self) -> Vec<(&'static str, String, Option<i64>, Value)> {
        let clusters = self.clusters.known.values();
        let topologies = self.topologies.known.values();
        let cluster = |c: &VirtualCluster| {
            (
                "virtualclusters",
                c.metadata.name.clone(),
                c.metadata.generation,
                c.status.clone(),
            )
        };
        let topology = |t: &ClusterTopology| {
            (
                "clustertopologies",
                t.metadata.name.clone(),
                t.metadata.generation,
                t.status.clone(),
            )
        };
        clusters.map(cluster).chain(topologies.map(topology)).collect()
    }
}
