//! The running process: configuration file, socket and Kubernetes, with reload of a changed file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dovetail_cells::{Config, Fate};
use dovetail_kubeapi::{Client, ConfigError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::extender::{Extender, Rules};
use crate::kubernetes::{connect, run_overdue_commands, watch_nodes, watch_pods};
use crate::server::{SharedExtender, router, serve};
use crate::settings::{Settings, SettingsError};

/// Interval between checks whether the file has changed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// Options of the process.
#[derive(Debug, Clone)]
pub struct Options {
    /// HiveD's configuration file.
    pub config: PathBuf,
    /// The kubeconfig, in place of the one in the file.
    pub kubeconfig: Option<PathBuf>,
    /// The address to listen on, in place of the one in the file.
    pub listen: Option<String>,
    /// Whether only kube-scheduler deletes victims.
    pub leave_eviction: bool,
}

/// An extender that cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration file is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The connection to Kubernetes is not configured.
    #[error(transparent)]
    Kubernetes(#[from] ConfigError),
    /// The socket cannot be used.
    #[error("listening on {address} failed: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the operating system.
        reason: std::io::Error,
    },
}

/// An extender that is ready to serve.
#[derive(Debug)]
pub struct Service {
    options: Options,
    shared: Arc<SharedExtender>,
    client: Client,
    listener: TcpListener,
    config: Config,
    stamp: Option<FileStamp>,
}

/// Modification time and length of a file.
type FileStamp = (SystemTime, u64);

fn file_stamp(file: &Path) -> Option<FileStamp> {
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

fn rules(settings: &Settings, options: &Options) -> Rules {
    let defaults = Rules::default();
    Rules {
        force_bind_after: settings.force_bind_after,
        evict_after: defaults.evict_after.filter(|_| !options.leave_eviction),
        ..defaults
    }
}

impl Service {
    /// Reads the file and opens the socket.
    ///
    /// # Errors
    /// When one of them cannot be used, or the connection to Kubernetes is not configured.
    pub async fn open(options: Options) -> Result<Self, RunError> {
        let stamp = file_stamp(&options.config);
        let settings = Settings::read(&options.config)?;
        let client = Client::new(connect(&settings, options.kubeconfig.as_deref())?);
        let listen = options.listen.as_ref().unwrap_or(&settings.listen);
        let address = Settings::listen_address(listen);
        let listener = TcpListener::bind(&address)
            .await
            .map_err(|reason| RunError::Listen { address, reason })?;
        let extender = Extender::new(settings.layout.clone(), rules(&settings, &options));
        let shared = Arc::new(SharedExtender::new(extender, client.clone(), settings.wait_delay));
        Ok(Self {
            options,
            shared,
            client,
            listener,
            config: settings.config,
            stamp,
        })
    }

    /// Returns the extender.
    pub fn extender(&self) -> &Arc<SharedExtender> {
        &self.shared
    }

    /// Returns the address it listens on.
    ///
    /// # Errors
    /// When the operating system does not report it.
    pub fn address(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `until` completes. A message on `reload` reads the file again at once.
    ///
    /// # Errors
    /// When the socket fails permanently.
    pub async fn run(
        self,
        mut reload: mpsc::Receiver<()>,
        until: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let Self {
            options,
            shared,
            client,
            listener,
            mut config,
            mut stamp,
        } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_nodes(client.clone(), Arc::clone(&shared)));
        tasks.spawn(watch_pods(client, Arc::clone(&shared)));
        tasks.spawn(run_overdue_commands(Arc::clone(&shared)));
        let reloaded = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut is_open = true;
            loop {
                let is_requested = tokio::select! {
                    message = reload.recv(), if is_open => { is_open = message.is_some(); is_open }
                    () = tokio::time::sleep(RELOAD_INTERVAL) => false,
                };
                let now = file_stamp(&options.config);
                if is_requested || now != stamp {
                    stamp = now;
                    reload_config(&options, &reloaded, &mut config);
                }
            }
        });
        let address = listener.local_addr().map(|a| a.to_string()).unwrap_or_default();
        serve(listener, router(shared), until)
            .await
            .map_err(|reason| RunError::Listen { address, reason })
    }
}

/// Applies the current content of the file. An invalid file changes nothing.
fn reload_config(options: &Options, shared: &SharedExtender, config: &mut Config) {
    let settings = match Settings::read(&options.config) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!(%error, "the new configuration is invalid and was not applied");
            return;
        }
    };
    shared.set_wait_delay(settings.wait_delay);
    let rules = rules(&settings, options);
    let is_same = settings.config == *config;
    let groups = shared.with(|extender, now| {
        extender.set_rules(rules);
        match is_same {
            true => Vec::new(),
            false => extender.reconfigure(settings.layout, now),
        }
    });
    *config = settings.config;
    let changed = groups.iter().filter(|(_, carried)| carried.fate != Fate::Kept);
    for (group, carried) in changed {
        tracing::warn!(group, fate = ?carried.fate, leaves_lost = carried.leaves_lost, "group changed by the new configuration");
    }
    tracing::info!(groups = groups.len(), is_same, "configuration reloaded");
}
