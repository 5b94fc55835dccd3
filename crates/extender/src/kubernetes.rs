//! Connects the extender to Kubernetes: it watches nodes and pods, and binds and deletes pods.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dovetail_kubeapi::{
    Binding, Change, Client, Config, ConfigError, DeleteOptions, Meta, Node, Pod, Watcher,
};
use tokio::time::MissedTickBehavior;

use crate::overdue::{Command, Eviction, overdue_commands};
use crate::pods::BindCommand;
use crate::server::SharedExtender;
use crate::settings::Settings;

/// Interval between checks for overdue commands.
const OVERDUE_INTERVAL: Duration = Duration::from_millis(500);

/// Result of a command.
pub type CommandFuture<'a> = Pin<Box<dyn Future<Output = Result<(), ClusterError>> + Send + 'a>>;

/// A command that Kubernetes refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClusterError {
    /// The HTTP status if there was an answer: 409 if the pod is bound already or was replaced by another one.
    pub code: Option<u16>,
    /// The message.
    pub message: String,
}

/// Commands that a cluster carries out.
pub trait Cluster: Send + Sync + 'static {
    /// Binds a pod. Binding it a second time is a conflict.
    fn bind<'a>(&'a self, command: &'a BindCommand) -> CommandFuture<'a>;

    /// Deletes a pod. A pod that does not exist is not an error.
    fn evict<'a>(&'a self, eviction: &'a Eviction) -> CommandFuture<'a>;
}

impl Cluster for Client {
    fn bind<'a>(&'a self, command: &'a BindCommand) -> CommandFuture<'a> {
        Box::pin(async move {
            let meta = Meta {
                name: command.pod.name.clone(),
                namespace: command.pod.namespace.clone(),
                uid: command.pod.uid.clone(),
                annotations: command.annotations.clone(),
                ..Meta::default()
            };
            let bound = Client::bind(self, &Binding::new(meta, &command.node)).await;
            bound.map_err(|e| cluster_error(&e))
        })
    }

    fn evict<'a>(&'a self, eviction: &'a Eviction) -> CommandFuture<'a> {
        Box::pin(async move {
            let pod = &eviction.pod;
            let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
            let deleted = self.delete(&path, &DeleteOptions::of(&pod.uid)).await;
            deleted.map_err(|e| cluster_error(&e))
        })
    }
}

fn cluster_error(error: &dovetail_kubeapi::Error) -> ClusterError {
    ClusterError {
        code: error.code(),
        message: error.to_string(),
    }
}

/// Finds the API server as HiveD does. An address alone is used as it is; with a kubeconfig, the address replaces its
/// server; without either, the environment and the service account of the pod are used.
///
/// # Errors
/// When no API server is configured, or its configuration is invalid.
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
            let Some(path) = named.or_else(default_kubeconfig) else {
                return Config::new(address, None, None);
            };
            let mut config = Config::from_kubeconfig(&path, None)?;
            // Only host, port and path are taken from the address; certificates are those of the kubeconfig.
            let plain = address.strip_prefix("https://").map(|rest| {
                let has_port = rest
                    .rsplit_once(':')
                    .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                match has_port {
                    true => format!("http://{rest}"),
                    false => format!("http://{rest}:443"),
                }
            });
            let other = Config::new(plain.as_deref().unwrap_or(address), None, None)?;
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

/// Returns the kubeconfig of the environment, if the file exists.
fn default_kubeconfig() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let named = set("KUBECONFIG").map(PathBuf::from);
    let path = named.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".kube/config")))?;
    path.is_file().then_some(path)
}

/// Watches nodes forever.
pub async fn watch_nodes(client: Client, shared: Arc<SharedExtender>) {
    let mut watcher = Watcher::<Node>::new(&client, "/api/v1/nodes", "");
    loop {
        match watcher.next().await {
            Change::All(nodes) => shared.sync_nodes(&nodes),
            Change::Put(node) => shared.with(|extender, now| extender.update_node(&node, now)),
            Change::Gone(node) => {
                shared.with(|extender, now| extender.remove_node(&node.metadata.name, now));
            }
            Change::Failed(error) => tracing::warn!(%error, "watching nodes failed"),
        }
    }
}

/// Watches pods forever.
pub async fn watch_pods(client: Client, shared: Arc<SharedExtender>) {
    let mut watcher = Watcher::<Pod>::new(&client, "/api/v1/pods", "");
    loop {
        match watcher.next().await {
            Change::All(pods) => shared.sync_pods(&pods),
            Change::Put(pod) => shared.with(|extender, now| extender.update_pod(&pod, now)),
            Change::Gone(pod) => shared.with(|extender, now| extender.remove_pod(&pod.metadata.uid, now)),
            Change::Failed(error) => tracing::warn!(%error, "watching pods failed"),
        }
    }
}

/// Carries out overdue commands forever.
pub async fn run_overdue_commands(shared: Arc<SharedExtender>) {
    let mut tick = tokio::time::interval(OVERDUE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if !shared.is_ready() {
            continue;
        }
        for command in shared.with(overdue_commands) {
            match command {
                Command::Bind(command) => shared.bind_in_background(command),
                Command::Evict(eviction) => {
                    let (pod, preemptor) = (&eviction.pod, &eviction.preemptor);
                    match shared.cluster().evict(&eviction).await {
                        Ok(()) => {
                            tracing::info!(%pod, %preemptor, "pod deleted: another pod needs its cells")
                        }
                        Err(error) => tracing::warn!(%pod, %preemptor, %error, "deleting a victim failed"),
                    }
                }
            }
        }
    }
}
