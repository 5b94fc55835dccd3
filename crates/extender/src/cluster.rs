//! Kubernetes behind the extender: it binds and deletes pods there, and hears of nodes and pods.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dovetail_kubeapi::{
    Binding, Change, Client, Config, ConfigError, DeleteOptions, Meta, Node, Pod, Watcher,
};
use tokio::time::MissedTickBehavior;

use crate::due::{Command, Eviction};
use crate::pods::BindOrder;
use crate::settings::Settings;
use crate::web::Shell;

/// What becomes of something Kubernetes was asked for.
pub type Done<'a> = Pin<Box<dyn Future<Output = Result<(), ClusterError>> + Send + 'a>>;

/// Kubernetes did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClusterError {
    /// The HTTP status, where there was an answer: 409 if the pod is bound already or is another one by now.
    pub code: Option<u16>,
    /// What it says.
    pub message: String,
}

/// All that is asked of Kubernetes.
pub trait Cluster: Send + Sync + 'static {
    /// Binds a pod, once: a second time is a conflict.
    fn bind<'a>(&'a self, order: &'a BindOrder) -> Done<'a>;

    /// Deletes a pod. One that is not there is fine.
    fn evict<'a>(&'a self, eviction: &'a Eviction) -> Done<'a>;
}

impl Cluster for Client {
    fn bind<'a>(&'a self, order: &'a BindOrder) -> Done<'a> {
        Box::pin(async move {
            let meta = Meta {
                name: order.pod.name.clone(),
                namespace: order.pod.namespace.clone(),
                uid: order.pod.uid.clone(),
                annotations: order.annotations.clone(),
                ..Meta::default()
            };
            let bound = Client::bind(self, &Binding::new(meta, &order.node)).await;
            bound.map_err(|e| error(&e))
        })
    }

    fn evict<'a>(&'a self, eviction: &'a Eviction) -> Done<'a> {
        Box::pin(async move {
            let pod = &eviction.pod;
            let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
            let deleted = self.delete(&path, &DeleteOptions::of(&pod.uid)).await;
            deleted.map_err(|e| error(&e))
        })
    }
}

fn error(error: &dovetail_kubeapi::Error) -> ClusterError {
    ClusterError {
        code: error.code(),
        message: error.to_string(),
    }
}

/// The way to the API server, as HiveD finds it: an address alone is spoken to as it is; with a kubeconfig, the address
/// takes the place of its server; without either there are the environment and the account of the pod.
///
/// # Errors
/// When there is none, or it is not what it should be.
pub fn connect(settings: &Settings, kubeconfig: Option<&Path>) -> Result<Config, ConfigError> {
    let named = match kubeconfig {
        Some(path) => Some(path.to_owned()),
        None => Some(settings.kubeconfig.as_str())
            .filter(|p| !p.is_empty())
            .map(PathBuf::from),
    };
    let address = settings.api_server.as_str();
    match (named, address) {
        (named, "") => Config::find(named.as_deref(), None),
        (named, address) => {
            let Some(path) = named.or_else(usual_kubeconfig) else {
                return Config::new(address, None, None);
            };
            let mut config = Config::from_kubeconfig(&path, None)?;
            // Read as an address in the clear: the certificates are those of the file.
            let rest = address.strip_prefix("https://").map(|rest| {
                let has_port = rest
                    .rsplit_once(':')
                    .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                match has_port {
                    true => format!("http://{rest}"),
                    false => format!("http://{rest}:443"),
                }
            });
            let other = Config::new(rest.as_deref().unwrap_or(address), None, None)?;
            config.host = other.host;
            config.port = other.port;
            config.prefix = other.prefix;
            if address.starts_with("http://") {
                config.tls = None;
            }
            Ok(config)
        }
    }
}

/// The kubeconfig of the environment, if it is there.
fn usual_kubeconfig() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let named = set("KUBECONFIG").map(PathBuf::from);
    let path = named.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".kube/config")))?;
    path.is_file().then_some(path)
}

/// Hears of nodes for ever.
pub async fn hear_nodes(client: Client, shell: Arc<Shell>) {
    let mut watcher = Watcher::<Node>::new(&client, "/api/v1/nodes", "");
    loop {
        match watcher.next().await {
            Change::All(nodes) => shell.nodes_all(&nodes),
            Change::Put(node) => shell.with(|extender, now| extender.node_put(&node, now)),
            Change::Gone(node) => shell.with(|extender, now| extender.node_gone(&node.metadata.name, now)),
            Change::Trouble(error) => tracing::warn!(%error, "nothing is heard of nodes"),
        }
    }
}

/// Hears of pods for ever.
pub async fn hear_pods(client: Client, shell: Arc<Shell>) {
    let mut watcher = Watcher::<Pod>::new(&client, "/api/v1/pods", "");
    loop {
        match watcher.next().await {
            Change::All(pods) => shell.pods_all(&pods),
            Change::Put(pod) => shell.with(|extender, now| extender.pod_put(&pod, now)),
            Change::Gone(pod) => shell.with(|extender, now| extender.pod_gone(&pod.metadata.uid, now)),
            Change::Trouble(error) => tracing::warn!(%error, "nothing is heard of pods"),
        }
    }
}

/// Does what is due, for ever.
pub async fn do_due(shell: Arc<Shell>) {
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if !shell.is_ready() {
            continue;
        }
        for command in shell.with(|extender, now| extender.due(now)) {
            match command {
                Command::Bind(order) => shell.force(order),
                Command::Evict(eviction) => {
                    let (pod, preemptor) = (&eviction.pod, &eviction.preemptor);
                    match shell.cluster().evict(&eviction).await {
                        Ok(()) => tracing::info!(%pod, %preemptor, "deleted: its place is needed"),
                        Err(error) => tracing::warn!(%pod, %preemptor, %error, "cannot be deleted"),
                    }
                }
            }
        }
    }
}
