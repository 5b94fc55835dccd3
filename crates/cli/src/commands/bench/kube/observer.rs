//! Sees from outside when pods are there and when they are bound, for every rival in the same way.

use std::collections::BTreeMap;
use std::time::Instant;

use dovetail_kubeapi::{Change, Client, Meta, Object, Watcher};
use serde::Deserialize;
use tokio::time::timeout;

use super::{PATIENCE, stuck};
use crate::failure::Failure;

/// As much of a pod as is looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Seen {
    pub(super) metadata: Meta,
    spec: SeenSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenSpec {
    node_name: String,
}

impl Object for Seen {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// When a pod was seen first, and when it was seen bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) seen: Instant,
    pub(super) bound: Option<Instant>,
}

/// Watches all pods.
#[derive(Debug)]
pub(super) struct Observer {
    watcher: Watcher<Seen>,
    /// By name.
    pub(super) pods: BTreeMap<String, Times>,
    pub(super) bound: usize,
}

impl Observer {
    /// Watches from now on; also says what there is.
    pub(super) async fn start(client: &Client) -> Result<(Self, Vec<Seen>), Failure> {
        let mut observer = Self {
            watcher: Watcher::new(client, "/api/v1/pods", ""),
            pods: BTreeMap::new(),
            bound: 0,
        };
        match timeout(PATIENCE, observer.watcher.next()).await {
            Ok(Change::All(all)) => {
                all.iter().for_each(|pod| observer.note(pod));
                Ok((observer, all))
            }
            _ => Err(stuck("listing pods")),
        }
    }

    /// The next change; whether it was a pod that got its node.
    pub(super) async fn next(&mut self) -> Result<bool, Failure> {
        let before = self.bound;
        match timeout(PATIENCE, self.watcher.next()).await {
            Ok(Change::Put(pod)) => self.note(&pod),
            Ok(Change::All(all)) => all.iter().for_each(|pod| self.note(pod)),
            Ok(Change::Gone(_) | Change::Trouble(_)) => {}
            Err(_) => return Err(stuck("waiting for pods to be bound")),
        }
        Ok(self.bound > before)
    }

    /// Waits until so many are bound.
    pub(super) async fn until_bound(&mut self, count: usize) -> Result<(), Failure> {
        while self.bound < count {
            self.next().await?;
        }
        Ok(())
    }

    fn note(&mut self, pod: &Seen) {
        let now = Instant::now();
        let new = Times {
            seen: now,
            bound: None,
        };
        let times = self.pods.entry(pod.metadata.name.clone()).or_insert(new);
        if times.bound.is_none() && !pod.spec.node_name.is_empty() {
            times.bound = Some(now);
            self.bound += 1;
        }
    }
}
