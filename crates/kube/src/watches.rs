//! Watches of the objects that the scheduler needs.

use dovetail_kubeapi::{Change, Client, Node, Object, Pod, ResourceClaim, ResourceSlice, Watcher};
use tokio::sync::mpsc;

use crate::crds::{self, ClusterTopology, SchedulingPolicy, VirtualCluster};
use crate::pod_progress::PodProgress;

/// A change of watched objects.
pub(crate) enum WatchEvent {
    Nodes(Change<Node>),
    Pods(Vec<Change<Pod>>),
    VirtualClusters(Change<VirtualCluster>),
    Topologies(Change<ClusterTopology>),
    Policies(Change<SchedulingPolicy>),
    Slices(Change<ResourceSlice>),
    Claims(Change<ResourceClaim>),
    Progress(Change<PodProgress>),
}

/// Tasks that watch; they end when the value is dropped.
#[derive(Debug, Default)]
pub(crate) struct Watches(Vec<tokio::task::JoinHandle<()>>);

impl Watches {
    /// Starts to watch.
    pub(crate) fn start(client: &Client, events: &mpsc::Sender<WatchEvent>) -> Self {
        let mut watches = Self::default();
        watches
            .0
            .push(one_by_one(client, "/api/v1/nodes", events, WatchEvent::Nodes));
        watches.0.push(in_batches(client, "/api/v1/pods", events));
        let path = |plural: &str| format!("{}/{plural}", crds::API);
        watches.0.push(one_by_one(
            client,
            &path("virtualclusters"),
            events,
            WatchEvent::VirtualClusters,
        ));
        watches.0.push(one_by_one(
            client,
            &path("clustertopologies"),
            events,
            WatchEvent::Topologies,
        ));
        watches.0.push(one_by_one(
            client,
            &path("schedulingpolicies"),
            events,
            WatchEvent::Policies,
        ));
        watches.0.push(one_by_one(
            client,
            &path("podprogresses"),
            events,
            WatchEvent::Progress,
        ));
        let devices = |plural: &str| format!("/apis/resource.k8s.io/v1/{plural}");
        watches.0.push(one_by_one(
            client,
            &devices("resourceslices"),
            events,
            WatchEvent::Slices,
        ));
        watches.0.push(one_by_one(
            client,
            &devices("resourceclaims"),
            events,
            WatchEvent::Claims,
        ));
        watches
    }

    /// Adds a task that ends with the watches.
    pub(crate) fn add_task(&mut self, task: tokio::task::JoinHandle<()>) {
        self.0.push(task);
    }

    pub(crate) fn abort_all(&self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.abort_all();
    }
}

fn one_by_one<T: Object>(
    client: &Client,
    path: &str,
    events: &mpsc::Sender<WatchEvent>,
    event: fn(Change<T>) -> WatchEvent,
) -> tokio::task::JoinHandle<()> {
    let (mut watcher, events) = (Watcher::<T>::new(client, path, ""), events.clone());
    tokio::spawn(async move { while events.send(event(watcher.next().await)).await.is_ok() {} })
}

/// Watches pods. They change by the hundred, so all changes that are ready are sent together.
fn in_batches(client: &Client, path: &str, events: &mpsc::Sender<WatchEvent>) -> tokio::task::JoinHandle<()> {
    const MAX_BATCH: usize = 512;
    let (mut watcher, events) = (Watcher::<Pod>::new(client, path, ""), events.clone());
    tokio::spawn(async move {
        loop {
            let mut batch = vec![watcher.next().await];
            while batch.len() < MAX_BATCH && watcher.is_ready() {
                batch.push(watcher.next().await);
            }
            if events.send(WatchEvent::Pods(batch)).await.is_err() {
                return;
            }
        }
    })
}
