//! Caches of our own kinds of objects, and which kinds were listed.

use std::collections::BTreeMap;

use dovetail_kubeapi::{Change, Error, Object};
use serde_json::Value;

use crate::crds::{ClusterTopology, SchedulingPolicy, VirtualCluster};
use crate::watches::WatchEvent;

/// Objects of one kind, by name.
#[derive(Debug)]
pub(crate) struct ObjectCache<T> {
    pub(crate) objects: BTreeMap<String, T>,
    pub(crate) listed: bool,
}

impl<T> Default for ObjectCache<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listed: false,
        }
    }
}

impl<T: Object> ObjectCache<T> {
    pub(crate) fn apply(&mut self, change: Change<T>) {
        match change {
            Change::All(all) => {
                self.objects = all.into_iter().map(|o| (o.meta().name.clone(), o)).collect();
                self.listed = true;
            }
            Change::Put(one) => drop(self.objects.insert(one.meta().name.clone(), one)),
            Change::Gone(one) => drop(self.objects.remove(&one.meta().name)),
            // Without the CRD there are no objects.
            Change::Failed(error) => self.listed |= error.is_not_found(),
        }
    }
}

/// Checks whether all objects of a kind are known after a change: they were listed, or cannot be read here.
pub(crate) fn is_listed<T>(change: &Change<T>) -> bool {
    match change {
        Change::All(_) => true,
        Change::Failed(error) => error.is_not_found() || error.code() == Some(403),
        Change::Put(_) | Change::Gone(_) => false,
    }
}

/// Caches of our own kinds of objects, and which kinds were listed.
#[derive(Debug, Default)]
pub(crate) struct WatchedObjects {
    /// Whether nodes were listed.
    pub(crate) nodes_listed: bool,
    /// Whether ResourceSlices were listed, or are not served here.
    pub(crate) slices_listed: bool,
    /// Whether ResourceClaims were listed, or are not served here.
    pub(crate) claims_listed: bool,
    /// Whether progress reports were listed, or are not served here.
    pub(crate) progress_listed: bool,
    pub(crate) clusters: ObjectCache<VirtualCluster>,
    pub(crate) topologies: ObjectCache<ClusterTopology>,
    pub(crate) policies: ObjectCache<SchedulingPolicy>,
}

impl WatchedObjects {
    /// Checks whether everything was listed that must be known before pods are handled.
    pub(crate) fn are_listed(&self) -> bool {
        self.nodes_listed
            && self.slices_listed
            && self.claims_listed
            && self.progress_listed
            && self.clusters.listed
            && self.topologies.listed
            && self.policies.listed
    }

    /// Checks for an error that ends the scheduler: nodes or pods cannot be read. All other watches are retried.
    pub(crate) fn check_access(event: &WatchEvent) -> Result<(), Error> {
        let error = match event {
            WatchEvent::Nodes(Change::Failed(error)) => error,
            WatchEvent::Pods(changes) => match changes.last() {
                Some(Change::Failed(error)) => error,
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        tracing::warn!("{error}");
        match error {
            Error::Refused { what, status } if matches!(status.code, 401 | 403) => Err(Error::Refused {
                what: what.clone(),
                status: status.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns plural, name, generation and status of the objects that define virtual clusters.
    pub(crate) fn statuses(&self) -> Vec<(&'static str, String, Option<i64>, Value)> {
        let clusters = self.clusters.objects.values();
        let topologies = self.topologies.objects.values();
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
