//! What is watched, and how it is told to the loop.

use dovetail_kubeapi::{Change, Client, Node, Object, Pod, ResourceClaim, ResourceSlice, Watcher};
use tokio::sync::mpsc;

use crate::resources::{self, ClusterTopology, SchedulingPolicy, VirtualCluster};

/// What is heard.
pub(crate) enum Heard {
    Nodes(Change<Node>),
    Pods(Vec<Change<Pod>>),
    VirtualClusters(Change<VirtualCluster>),
    Topologies(Change<ClusterTopology>),
    Policies(Change<SchedulingPolicy>),
    Slices(Change<ResourceSlice>),
    Claims(Change<ResourceClaim>),
}

/// Tasks that watch.
#[derive(Debug, Default)]
pub(crate) struct Watching(Vec<tokio::task::JoinHandle<()>>);

impl Watching {
    /// Watches everything that matters.
    pub(crate) fn over(client: &Client, tell: &mpsc::Sender<Heard>) -> Self {
        let mut all = Self::default();
        all.0
            .push(one_by_one(client, "/api/v1/nodes", tell, Heard::Nodes));
        all.0.push(in_batches(client, "/api/v1/pods", tell));
        let path = |plural: &str| format!("{}/{plural}", resources::API);
        all.0.push(one_by_one(
            client,
            &path("virtualclusters"),
            tell,
            Heard::VirtualClusters,
        ));
        all.0.push(one_by_one(
            client,
            &path("clustertopologies"),
            tell,
            Heard::Topologies,
        ));
        all.0.push(one_by_one(
            client,
            &path("schedulingpolicies"),
            tell,
            Heard::Policies,
        ));
        let devices = |plural: &str| format!("/apis/resource.k8s.io/v1/{plural}");
        all.0.push(one_by_one(
            client,
            &devices("resourceslices"),
            tell,
            Heard::Slices,
        ));
        all.0.push(one_by_one(
            client,
            &devices("resourceclaims"),
            tell,
            Heard::Claims,
        ));
        all
    }

    /// Ends with the others.
    pub(crate) fn also(&mut self, task: tokio::task::JoinHandle<()>) {
        self.0.push(task);
    }

    pub(crate) fn abort_all(&self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.abort_all();
    }
}

fn one_by_one<T: Object>(
    client: &Client,
    path: &str,
    tell: &mpsc::Sender<Heard>,
    said: fn(Change<T>) -> Heard,
) -> tokio::task::JoinHandle<()> {
    let (mut watcher, tell) = (Watcher::<T>::new(client, path, ""), tell.clone());
    tokio::spawn(async move { while tell.send(said(watcher.next().await)).await.is_ok() {} })
}

/// Pods change by the hundred: whatever is there is told together.
fn in_batches(client: &Client, path: &str, tell: &mpsc::Sender<Heard>) -> tokio::task::JoinHandle<()> {
    const MOST: usize = 512;
    let (mut watcher, tell) = (Watcher::<Pod>::new(client, path, ""), tell.clone());
    tokio::spawn(async move {
        loop {
            let mut batch = vec![watcher.next().await];
            while batch.len() < MOST && watcher.is_ready() {
                batch.push(watcher.next().await);
            }
            if tell.send(Heard::Pods(batch)).await.is_err() {
                return;
            }
        }
    })
}
