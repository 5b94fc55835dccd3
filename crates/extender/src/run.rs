//! The whole process: the file, the socket, Kubernetes, and a new file while it runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dovetail_cells::{Config, Fate};
use dovetail_kubeapi::{Client, ConfigError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cluster::{connect, do_due, hear_nodes, hear_pods};
use crate::extender::{Extender, Rules};
use crate::settings::{Settings, SettingsError};
use crate::web::{Shell, router, serve};

/// How often it is looked whether the file has changed.
const LOOK: Duration = Duration::from_secs(2);

/// How the process is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// HiveD's configuration file.
    pub config: PathBuf,
    /// The kubeconfig, instead of what the file says.
    pub kubeconfig: Option<PathBuf>,
    /// Where to listen, instead of what the file says.
    pub listen: Option<String>,
    /// Victims are deleted by kube-scheduler alone.
    pub leave_eviction: bool,
}

/// Why the extender does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The file.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The way to Kubernetes.
    #[error(transparent)]
    Kubernetes(#[from] ConfigError),
    /// The socket.
    #[error("{address}: {reason}")]
    Listen {
        /// Where it was to be.
        address: String,
        /// What the system says.
        reason: std::io::Error,
    },
}

/// The extender, about to serve.
#[derive(Debug)]
pub struct Service {
    options: Options,
    shell: Arc<Shell>,
    client: Client,
    listener: TcpListener,
    config: Config,
    stamp: Option<Stamp>,
}

/// When a file was changed last, and its length.
type Stamp = (SystemTime, u64);

fn stamp(file: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

fn rules(settings: &Settings, options: &Options) -> Rules {
    let usual = Rules::default();
    Rules {
        force_bind_after: settings.force_bind_after,
        evict_after: usual.evict_after.filter(|_| !options.leave_eviction),
        ..usual
    }
}

impl Service {
    /// Reads the file and opens the socket.
    ///
    /// # Errors
    /// When one of them cannot be used, or there is no way to Kubernetes.
    pub async fn open(options: Options) -> Result<Self, RunError> {
        let stamp = stamp(&options.config);
        let settings = Settings::read(&options.config)?;
        let client = Client::new(connect(&settings, options.kubeconfig.as_deref())?);
        let listen = options.listen.as_ref().unwrap_or(&settings.listen);
        let address = Settings::listen_address(listen);
        let listener = TcpListener::bind(&address)
            .await
            .map_err(|reason| RunError::Listen { address, reason })?;
        let extender = Extender::new(settings.layout.clone(), rules(&settings, &options));
        let shell = Arc::new(Shell::new(extender, client.clone(), settings.block));
        Ok(Self {
            options,
            shell,
            client,
            listener,
            config: settings.config,
            stamp,
        })
    }

    /// The extender in it.
    pub fn shell(&self) -> &Arc<Shell> {
        &self.shell
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until told to end. `reload` asks to look at the file at once.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub async fn run(
        self,
        mut reload: mpsc::Receiver<()>,
        until: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let Self {
            options,
            shell,
            client,
            listener,
            mut config,
            mut stamp,
        } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(hear_nodes(client.clone(), Arc::clone(&shell)));
        tasks.spawn(hear_pods(client, Arc::clone(&shell)));
        tasks.spawn(do_due(Arc::clone(&shell)));
        let at_hand = Arc::clone(&shell);
        tasks.spawn(async move {
            let mut asked = true;
            loop {
                let told = tokio::select! {
                    told = reload.recv(), if asked => { asked = told.is_some(); asked }
                    () = tokio::time::sleep(LOOK) => false,
                };
                let now = self::stamp(&options.config);
                if told || now != stamp {
                    stamp = now;
                    take_file(&options, &at_hand, &mut config);
                }
            }
        });
        let address = listener.local_addr().map(|a| a.to_string()).unwrap_or_default();
        serve(listener, router(shell), until)
            .await
            .map_err(|reason| RunError::Listen { address, reason })
    }
}

/// Goes on with what the file says now. One that is wrong changes nothing.
fn take_file(options: &Options, shell: &Shell, config: &mut Config) {
    let settings = match Settings::read(&options.config) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!(%error, "the new configuration is not taken");
            return;
        }
    };
    shell.set_block(settings.block);
    let rules = rules(&settings, options);
    let is_same = settings.config == *config;
    let told = shell.with(|extender, now| {
        extender.set_rules(rules);
        match is_same {
            true => Vec::new(),
            false => extender.reconfigure(settings.layout, now),
        }
    });
    *config = settings.config;
    let changed = told.iter().filter(|(_, carried)| carried.fate != Fate::Kept);
    for (group, carried) in changed {
        tracing::warn!(group, fate = ?carried.fate, leaves_lost = carried.leaves_lost, "under the new configuration");
    }
    tracing::info!(groups = told.len(), is_same, "the configuration was read again");
}
