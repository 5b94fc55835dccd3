//! A control plane with nodes and pods.

use std::path::PathBuf;

use dovetail_kubeapi::{Client, Patch};
use dovetail_kubelab::{Component, Lab, NodeShape, Scheduler, Settings};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::contender::Contender;
use crate::BenchError;
use crate::error::StepResult;

/// GPUs of a node.
pub(super) const GPUS_PER_NODE: usize = 8;
/// Concurrent requests while objects are created.
const CONCURRENT_REQUESTS: usize = 32;
const NAMESPACE: &str = "default";

/// A control plane that has just been started, with nodes of eight GPUs.
pub(super) struct Testbed {
    pub(super) lab: Lab,
    pub(super) client: Client,
    /// `schedulerName` of the pods.
    scheduler_name: &'static str,
}

impl Testbed {
    /// Starts a control plane with this many nodes, for this contender.
    pub(super) fn new(contender: Contender, nodes: usize) -> Result<Self, BenchError> {
        let is_upstream = contender == Contender::KubeScheduler;
        let mut settings = Settings::default();
        if is_upstream {
            settings = settings.with_scheduler(Scheduler::default());
        }
        let lab = Lab::start(&settings)?;
        if is_upstream {
            lab.stop(Component::Scheduler);
        }
        lab.create_nodes("node-", nodes, &NodeShape::with_gpus(GPUS_PER_NODE as u32))?;
        let client = lab.client();
        Ok(Self {
            lab,
            client,
            scheduler_name: if is_upstream {
                "default-scheduler"
            } else {
                "dovetail"
            },
        })
    }

    pub(super) fn node_name(index: usize) -> String {
        format!("node-{index}")
    }

    pub(super) fn kubeconfig(&self) -> Result<PathBuf, BenchError> {
        Ok(self.lab.kubeconfig(self.lab.admin())?)
    }

    /// Returns a pod with one GPU, in a gang if an index and a size are given.
    fn pod(&self, name: &str, gang: Option<(usize, usize)>) -> Value {
        let annotations = match gang {
            Some((index, size)) => json!({"dovetail.io/gang": format!("gang-{index}"),
                "dovetail.io/gang-size": size.to_string()}),
            None => json!({}),
        };
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
            "spec": {"schedulerName": self.scheduler_name, "restartPolicy": "Never", "containers": [{
                "name": "train", "image": "train", "resources": {
                    "requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": "1"}}}]}})
    }

    /// Creates pods concurrently, in gangs if a size is given.
    pub(super) async fn create_pods(&self, count: usize, gang_size: Option<usize>) -> Result<(), BenchError> {
        let pods: Vec<Value> = (0..count)
            .map(|i| self.pod(&format!("pod-{i}"), gang_size.map(|size| (i / size, size))))
            .collect();
        self.for_all(pods, |client, pod| async move {
            client.post(&pods_path(), &pod).await
        })
        .await
    }

    /// Creates one pod.
    pub(super) async fn create_pod(&self, name: &str) -> Result<(), BenchError> {
        Ok(self.client.post(&pods_path(), &self.pod(name, None)).await?)
    }

    /// Returns the number of events.
    pub(super) async fn count_events(&self) -> Result<usize, BenchError> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events?limit=1");
        let list: Value = self.client.get(&path).await?;
        let first = list["items"].as_array().map_or(0, Vec::len);
        let remaining = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        Ok(first + remaining as usize)
    }

    /// Sets the phase of all pods to `Running`, as their kubelets would.
    pub(super) async fn mark_running(&self, pods: usize) -> Result<(), BenchError> {
        let names = (0..pods).map(|i| format!("pod-{i}")).collect();
        self.for_all(names, |client, name: String| async move {
            let patch = json!({"status": {"phase": "Running"}});
            let path = format!("{}/{name}/status", pods_path());
            let patched = client.patch::<Value>(&path, Patch::Merge, &patch).await;
            patched.map(drop)
        })
        .await
    }

    /// Makes a request for each item, several at a time.
    async fn for_all<T, F>(&self, items: Vec<T>, request: impl Fn(Client, T) -> F) -> Result<(), BenchError>
    where
        T: Send + 'static,
        F: Future<Output = Result<(), dovetail_kubeapi::Error>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut items = items.into_iter();
        loop {
            while tasks.len() < CONCURRENT_REQUESTS {
                let Some(item) = items.next() else { break };
                tasks.spawn(request(self.client.clone(), item));
            }
            match tasks.join_next().await {
                None => return Ok(()),
                Some(finished) => finished.step("make a request")??,
            }
        }
    }
}

fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}
