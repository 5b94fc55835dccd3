//! Node objects without machines.

use std::collections::BTreeMap;

use dovetail_kubeapi::{Client, Error, Patch, now_micros, seconds_time};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Resources, labels and kubelet address of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShape {
    /// Number of GPUs.
    pub gpus: u32,
    /// Resource name of the GPUs.
    pub gpu_resource: String,
    /// CPU cores.
    pub cpu: u32,
    /// Memory, in GiB.
    pub memory_gib: u32,
    /// Maximum number of pods.
    pub pods: u32,
    /// Labels besides its hostname.
    pub labels: BTreeMap<String, String>,
    /// Port of its kubelet on loopback, for the API server.
    pub kubelet_port: Option<u16>,
    /// Features that its kubelet declares.
    pub features: Vec<String>,
}

impl NodeShape {
    /// Returns a shape with this many GPUs and 12 cores and 128 GiB of memory for each. A node without GPUs has the cores and
    /// memory of a node with one.
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

    /// Sets the kubelet that the API server connects to for logs and commands.
    #[must_use]
    pub fn with_kubelet(mut self, api: &crate::NodeApi) -> Self {
        self.kubelet_port = Some(api.port());
        self.features = vec!["ExtendWebSocketsToKubelet".to_owned()];
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Returns the node object, ready for pods.
    pub fn node(&self, name: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
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
            // Names of nodes without machines do not resolve.
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

/// Number of concurrent requests.
const AT_ONCE: usize = 16;

/// Creates nodes with concurrent requests.
///
/// # Errors
/// If the API server rejects one.
pub async fn create_nodes(client: &Client, nodes: &[(String, NodeShape)]) -> Result<(), Error> {
    let mut tasks = JoinSet::new();
    for (name, shape) in nodes {
        let (client, node) = (client.clone(), shape.node(name));
        tasks.spawn(async move { client.post("/api/v1/nodes", &node).await });
        if tasks.len() >= AT_ONCE {
            join_one(&mut tasks).await?;
        }
    }
    while !tasks.is_empty() {
        join_one(&mut tasks).await?;
    }
    Ok(())
}

async fn join_one(tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    match tasks.join_next().await {
        Some(Ok(result)) => result,
        Some(Err(e)) => panic!("create node: {e}"),
        None => Ok(()),
    }
}

/// Sets the `Ready` condition of a node, like its kubelet.
///
/// # Errors
/// If the API server rejects it.
pub async fn set_ready(client: &Client, node: &str, is_ready: bool) -> Result<(), Error> {
    let patch = json!({"status": {"conditions": [ready(is_ready)]}});
    client
        .patch::<IgnoredAny>(&format!("/api/v1/nodes/{node}/status"), Patch::Strategic, &patch)
        .await
        .map(drop)
}
