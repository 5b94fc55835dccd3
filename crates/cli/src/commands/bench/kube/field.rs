//! A control plane with nodes and pods.

use std::path::PathBuf;

use anyhow::anyhow;
use dovetail_kubeapi::{Client, Patch};
use dovetail_kubelab::{Lab, NodeShape, Part, Scheduler, Settings};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::rival::Rival;
use crate::failure::{Blame, Failure};

/// A control plane that has just been started, with nodes of eight GPUs.
pub(super) struct Field {
    pub(super) lab: Lab,
    pub(super) client: Client,
    scheduler: &'static str,
}

/// Requests at the same time while things are made.
const AT_ONCE: usize = 32;
const NAMESPACE: &str = "default";

impl Field {
    /// With so many nodes, for one who binds.
    pub(super) fn new(rival: Rival, nodes: usize) -> Result<Self, Failure> {
        let mut settings = Settings::default();
        if rival == Rival::KubeScheduler {
            settings = settings.with_scheduler(Scheduler::default());
        }
        let lab = Lab::start(&settings).or_work()?;
        if rival == Rival::KubeScheduler {
            lab.stop(Part::Scheduler);
        }
        lab.create_nodes("node-", nodes, &NodeShape::with_gpus(8))
            .or_work()?;
        let scheduler = match rival {
            Rival::KubeScheduler => "default-scheduler",
            _ => "dovetail",
        };
        let client = lab.client();
        Ok(Self {
            lab,
            client,
            scheduler,
        })
    }

    pub(super) fn node(number: usize) -> String {
        format!("node-{number}")
    }

    pub(super) fn kubeconfig(&self) -> Result<PathBuf, Failure> {
        self.lab.kubeconfig(self.lab.admin()).or_work()
    }

    /// A pod of one GPU.
    pub(super) fn pod(&self, name: &str, gang: Option<(usize, usize)>) -> Value {
        let annotations = match gang {
            Some((number, size)) => json!({"dovetail.io/gang": format!("gang-{number}"),
                "dovetail.io/gang-size": size.to_string()}),
            None => json!({}),
        };
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
            "spec": {"schedulerName": self.scheduler, "restartPolicy": "Never", "containers": [{
                "name": "train", "image": "train", "resources": {
                    "requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": "1"}}}]}})
    }

    /// Makes pods, many at a time; in gangs of so many where that is wanted.
    pub(super) async fn create_pods(&self, count: usize, gang: Option<usize>) -> Result<(), Failure> {
        let pods: Vec<Value> = (0..count)
            .map(|i| self.pod(&format!("pod-{i}"), gang.map(|size| (i / size, size))))
            .collect();
        self.for_all(pods, |client, pod| async move {
            client.post(&pods_path(), &pod).await.map_err(|e| e.to_string())
        })
        .await
    }

    /// Makes one pod.
    pub(super) async fn create_pod(&self, name: &str) -> Result<(), Failure> {
        self.client
            .post(&pods_path(), &self.pod(name, None))
            .await
            .or_work()
    }

    /// How many events there are.
    pub(super) async fn count_events(&self) -> Result<usize, Failure> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events?limit=1");
        let list: Value = self.client.get(&path).await.or_work()?;
        let first = list["items"].as_array().map_or(0, Vec::len);
        let others = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        Ok(first + others as usize)
    }

    /// Says of all pods that they run, as their kubelets would.
    pub(super) async fn all_run(&self, count: usize) -> Result<(), Failure> {
        let names = (0..count).map(|i| format!("pod-{i}")).collect();
        self.for_all(names, |client, name: String| async move {
            let patch = json!({"status": {"phase": "Running"}});
            let path = format!("{}/{name}/status", pods_path());
            let done = client.patch::<Value>(&path, Patch::Merge, &patch).await;
            done.map(drop).map_err(|e| e.to_string())
        })
        .await
    }

    async fn for_all<T, F>(&self, all: Vec<T>, work: impl Fn(Client, T) -> F) -> Result<(), Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut all = all.into_iter();
        loop {
            while tasks.len() < AT_ONCE {
                let Some(one) = all.next() else { break };
                tasks.spawn(work(self.client.clone(), one));
            }
            match tasks.join_next().await {
                None => return Ok(()),
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(why))) => return Err(Failure::Work(anyhow!(why))),
                Some(Err(e)) => return Err(Failure::Work(anyhow!(e))),
            }
        }
    }
}

fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}
