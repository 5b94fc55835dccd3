//! Observes from outside when pods appear and when they are bound, in the same way for every contender.

use std::collections::BTreeMap;
use std::time::Instant;

use dovetail_kubeapi::{Change, Client, Meta, Object, Watcher};
use serde::Deserialize;

use super::{TIMEOUT, timeout};
use crate::BenchError;

/// The fields of a pod that are observed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Meta,
    spec: PodSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: String,
}

impl Object for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// When a pod was observed for the first time, and when it was observed as bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodTimes {
    pub(super) created: Instant,
    pub(super) bound: Option<Instant>,
}

/// Watches all pods.
#[derive(Debug)]
pub(super) struct Observer {
    watcher: Watcher<Pod>,
    /// Times of the pods by name.
    pub(super) pods: BTreeMap<String, PodTimes>,
    /// Number of pods that are bound.
    pub(super) bound: usize,
}

impl Observer {
    /// Starts watching, and returns the pods that exist already.
    pub(super) async fn start(client: &Client) -> Result<(Self, Vec<Pod>), BenchError> {
        let mut observer = Self {
            watcher: Watcher::new(client, "/api/v1/pods", ""),
            pods: BTreeMap::new(),
            bound: 0,
        };
        match tokio::time::timeout(TIMEOUT, observer.watcher.next()).await {
            Ok(Change::All(pods)) => {
                pods.iter().for_each(|pod| observer.record(pod));
                Ok((observer, pods))
            }
            _ => Err(timeout("pods are listed")),
        }
    }

    /// Waits until this many pods are bound.
    pub(super) async fn wait_for_bound(&mut self, count: usize) -> Result<(), BenchError> {
        while self.bound < count {
            match tokio::time::timeout(TIMEOUT, self.watcher.next()).await {
                Ok(Change::Put(pod)) => self.record(&pod),
                Ok(Change::All(pods)) => pods.iter().for_each(|pod| self.record(pod)),
                Ok(Change::Gone(_) | Change::Failed(_)) => {}
                Err(_) => return Err(timeout(&format!("{count} pods are bound (now {})", self.bound))),
            }
        }
        Ok(())
    }

    /// Returns when pods were observed as bound.
    pub(super) fn bound_times(&self) -> impl Iterator<Item = Instant> {
        self.pods.values().filter_map(|times| times.bound)
    }

    fn record(&mut self, pod: &Pod) {
        let now = Instant::now();
        let times = self.pods.entry(pod.metadata.name.clone()).or_insert(PodTimes {
            created: now,
            bound: None,
        });
        if times.bound.is_none() && !pod.spec.node_name.is_empty() {
            times.bound = Some(now);
            self.bound += 1;
        }
    }
}
