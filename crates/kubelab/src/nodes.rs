//! Nodes that are an object and nothing else.

use std::collections::BTreeMap;

use dovetail_kubeapi::{Client, Error, Patch, now_micros, seconds_time};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// What a node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShape {
    /// GPUs.
    pub gpus: u32,
    /// What the GPUs are called.
    pub gpu_resource: String,
    /// Cores.
    pub cpu: u32,
    /// Memory.
    pub memory_gib: u32,
    /// How many pods it takes.
    pub pods: u32,
    /// Labels beside its name.
    pub labels: BTreeMap<String, String>,
    /// Where the API server reaches its kubelet, on loopback.
    pub kubelet_port: Option<u16>,
    /// Features its kubelet declares.
    pub features: Vec<String>,
}

impl NodeShape {
    /// So many GPUs, with 12 cores and 128 GiB for each, as servers of our time have them; a node without GPUs has as
    /// much as one with one.
    pub fn with_gpus(gpus: u32) -> Self {
        Self {
            gpus,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            cpu: 12 * gpus.max(1),
            memory_gib: 128 * gpus.max(1),
            pods: 110,
            labels: BTreeMap::new(),
            kubelet_port: None,
            features: Vec::new(),
        }
    }

    /// With a kubelet that the API server can ask for logs, and whose commands it leaves to it.
    #[must_use]
    pub fn with_kubelet(mut self, api: &crate::NodeApi) -> Self {
        self.kubelet_port = Some(api.port());
        self.features = vec!["ExtendWebSocketsToKubelet".to_owned()];
        self
    }

    /// With a label more.
    #[must_use]
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The node as an object, ready to take pods.
    pub fn node(&self, name: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        let mut has = json!({"cpu": self.cpu.to_string(), "memory": format!("{}Gi", self.memory_gib),
            "pods": self.pods.to_string()});
        if self.gpus > 0 {
            has[&self.gpu_resource] = json!(self.gpus.to_string());
        }
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": has, "allocatable": has, "conditions": [ready(true)],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]}});
        if let Some(port) = self.kubelet_port {
            node["status"]["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
            node["status"]["declaredFeatures"] = json!(self.features);
            // Nobody resolves names of nodes that do not exist.
            node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
        }
        node
    }
}

fn ready(is_ready: bool) -> Value {
    let now = seconds_time(now_micros());
    let (status, reason) = if is_ready {
        ("True", "KubeletReady")
    } else {
        ("False", "KubeletNotReady")
    };
    json!({"type": "Ready", "status": status, "reason": reason, "message": "kubelab", "lastHeartbeatTime": now,
        "lastTransitionTime": now})
}

/// How many nodes are made at the same time.
const AT_ONCE: usize = 16;

/// Makes these nodes, many at a time.
///
/// # Errors
/// When the API server refuses one.
pub async fn create_nodes(client: &Client, nodes: &[(String, NodeShape)]) -> Result<(), Error> {
    let mut tasks = JoinSet::new();
    for (name, shape) in nodes {
        let (client, node) = (client.clone(), shape.node(name));
        tasks.spawn(async move { client.post("/api/v1/nodes", &node).await });
        if tasks.len() >= AT_ONCE {
            joined(&mut tasks).await?;
        }
    }
    while !tasks.is_empty() {
        joined(&mut tasks).await?;
    }
    Ok(())
}

async fn joined(tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    match tasks.join_next().await {
        Some(Ok(made)) => made,
        Some(Err(e)) => panic!("making a node: {e}"),
        None => Ok(()),
    }
}

/// Says whether a node is ready, as its kubelet would.
///
/// # Errors
/// When the API server refuses.
pub async fn set_ready(client: &Client, node: &str, is_ready: bool) -> Result<(), Error> {
    let patch = json!({"status": {"conditions": [ready(is_ready)]}});
    client
        .patch::<IgnoredAny>(&format!("/api/v1/nodes/{node}/status"), Patch::Strategic, &patch)
        .await
        .map(drop)
}
