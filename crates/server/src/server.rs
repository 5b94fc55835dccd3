//! The running server: driver, hub, API and page, and agents of this process.

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dovetail_agent::AgentError;
use dovetail_cluster::{
    Capabilities, Driver, DriverConfig, Handle, LiveRuntime, PolicyText, Recovery, Runtime as _,
};
use dovetail_hub::{Authority, Hub, HubConfig};
use dovetail_web::{ApiConfig, Audit, Notifier, NotifyTiming, Oidc, Tls, Users};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::first_client::write_first_client;
use crate::{FirstUser, LocalAgents, ServerConfig, ServerError};

/// Number of records after which the journal writes a snapshot.
const SNAPSHOT_EVERY: u64 = 50_000;
/// How long local agents may delay the end of the server.
const AGENT_PATIENCE: Duration = Duration::from_secs(2);

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Base URL of the API and the page.
    pub url: String,
    /// Address that agents connect to.
    pub grpc: SocketAddr,
    /// Whether the journal had records of an earlier run.
    pub restored: bool,
    /// The administrator that was created because there was none with a client file.
    pub first_user: Option<FirstUser>,
    handle: Handle,
    driving: std::thread::JoinHandle<()>,
    stop: watch::Sender<bool>,
    web: JoinHandle<Result<(), dovetail_web::ServeError>>,
    agents_served: JoinHandle<Result<SocketAddr, dovetail_hub::ServeError>>,
    local: JoinSet<Result<(), AgentError>>,
}

/// The parts of a server whose files are open, before anything is served.
struct OpenParts {
    http: TcpListener,
    grpc: TcpListener,
    authority: Arc<Authority>,
    users: Users,
    notifier: Arc<Notifier>,
    oidc: Option<Arc<Oidc>>,
}

/// Returns the token that nodes join with.
///
/// # Errors
/// If the data folder is not usable.
pub fn join_token(config: &ServerConfig) -> Result<String, ServerError> {
    create_private_folder(&config.data)?;
    Ok(Authority::open(&config.data)?.join_token().to_string())
}

impl Server {
    /// Opens sockets and files, and starts serving in the background. `repaired` gets each repair of the journal.
    ///
    /// # Errors
    /// If a setting is invalid, or a file or socket is not usable.
    pub async fn start(
        config: &ServerConfig,
        agents: Option<LocalAgents>,
        repaired: &mut (dyn FnMut(String) + Send),
    ) -> Result<Self, ServerError> {
        create_private_folder(&config.data)?;
        if let Some(path) = &config.checkpoints {
            fs::create_dir_all(path).map_err(folder_error(path))?;
        }
        let parts = OpenParts::new(config).await?;
        let address = |listener: &TcpListener| listener.local_addr().map_err(ServerError::Address);
        let (http_at, grpc_at) = (address(&parts.http)?, address(&parts.grpc)?);
        let authority = Arc::clone(&parts.authority);
        let hub = Hub::new(hub_config(config));
        let (driver, handle, recovery) = open_driver(config, hub.capabilities(), repaired)?;
        let driving = driver.spawn(hub.clone());
        let scheme = if config.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", local_address(http_at));
        let first_user = write_first_client(config, &url, &authority, &parts.users)?;
        let (stop, stopped) = watch::channel(false);
        let (web, agents_served) = serve(config, parts, &hub, &handle, &stopped)?;
        let mut local = JoinSet::new();
        if let Some(agents) = agents {
            for agent in agents.configs(&config.data, &local_address(grpc_at), &authority)? {
                local.spawn(dovetail_agent::run(agent, until(&stopped)));
            }
        }
        Ok(Self {
            url,
            grpc: grpc_at,
            restored: recovery.records > 0 || recovery.snapshot,
            first_user,
            handle,
            driving,
            stop,
            web,
            agents_served,
            local,
        })
    }

    /// Serves until the future ends, and returns its result. The server also ends when one of its parts does. In any
    /// case the journal is closed; jobs continue, and are adopted at the next start.
    ///
    /// # Errors
    /// The error of the part that failed.
    pub async fn run_until<T>(mut self, end: impl Future<Output = T>) -> Result<Option<T>, ServerError> {
        let result = tokio::select! {
            ended = end => Ok(Some(ended)),
            ended = &mut self.web => flatten(ended),
            ended = &mut self.agents_served => flatten(ended.map(|r| r.map(drop))),
            Some(ended) = self.local.join_next() => flatten(ended),
        };
        self.stop.send_replace(true);
        // Local agents must not delay closing the journal for long.
        let local = &mut self.local;
        let _ = tokio::time::timeout(AGENT_PATIENCE, async {
            while local.join_next().await.is_some() {}
        })
        .await;
        let _ = self.handle.shut_down().wait();
        drop(self.handle);
        let driving = self.driving;
        let _ = tokio::task::spawn_blocking(move || driving.join()).await;
        result
    }
}

impl OpenParts {
    async fn new(config: &ServerConfig) -> Result<Self, ServerError> {
        let oidc = config.oidc.clone().map(Oidc::open).transpose()?;
        let notifier = Notifier::open(&config.notify, NotifyTiming::default())?;
        // Bind the sockets first: the process that holds them is the only one that writes the journal and the client
        // file.
        Ok(Self {
            http: bind(config.http, "http").await?,
            grpc: bind(config.grpc, "grpc").await?,
            authority: Arc::new(Authority::open(&config.data)?),
            users: Users::open(&config.data.join("users.json"))?,
            notifier,
            oidc: oidc.map(Arc::new),
        })
    }
}

type Served = (
    JoinHandle<Result<(), dovetail_web::ServeError>>,
    JoinHandle<Result<SocketAddr, dovetail_hub::ServeError>>,
);

/// Starts the API with the page, notifications, and the service for agents.
fn serve(
    config: &ServerConfig,
    parts: OpenParts,
    hub: &Hub,
    handle: &Handle,
    stopped: &watch::Receiver<bool>,
) -> Result<Served, ServerError> {
    let audit = Audit::open(&config.data)?;
    let tls = server_tls(config, &parts.authority)?;
    let api = ApiConfig {
        run_as_user: config.run_as_user,
        tls: config.tls,
        requests_per_minute: config.requests_per_minute,
        oidc: parts.oidc,
        templates: Some(config.templates.clone()),
        notifier: Some(Arc::clone(&parts.notifier)),
    };
    let (runtime, users) = (Arc::new(hub.clone()), Arc::new(parts.users));
    let router = dovetail_web::router(
        handle.clone(),
        Arc::clone(&runtime) as Arc<dyn LiveRuntime>,
        Arc::clone(&users),
        Arc::new(audit),
        api,
    );
    tokio::spawn(
        parts
            .notifier
            .watch(handle.clone(), runtime, users, until(stopped)),
    );
    let web = tokio::spawn(dovetail_web::serve(parts.http, tls, router, until(stopped)));
    let (names, authority, grpc) = (config.names.clone(), parts.authority, parts.grpc);
    let (hub, handle, ended) = (hub.clone(), handle.clone(), until(stopped));
    let agents_served =
        tokio::spawn(async move { dovetail_hub::serve(grpc, &names, authority, hub, handle, ended).await });
    Ok((web, agents_served))
}

/// Returns a future that ends when the server is stopped.
fn until(stopped: &watch::Receiver<bool>) -> impl Future<Output = ()> + Send + 'static {
    let mut stopped = stopped.clone();
    async move { drop(stopped.wait_for(|stop| *stop).await) }
}

/// Returns the error of a task, or nothing if it ended without one.
fn flatten<T, E>(ended: Result<Result<(), E>, tokio::task::JoinError>) -> Result<Option<T>, ServerError>
where
    ServerError: From<E>,
{
    ended??;
    Ok(None)
}

/// Creates a folder that only its owner can list and change.
fn create_private_folder(path: &Path) -> Result<(), ServerError> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o711)))
        .map_err(folder_error(path))
}

fn folder_error(path: &Path) -> impl FnOnce(std::io::Error) -> ServerError {
    let path = path.to_owned();
    move |source| ServerError::Folder { path, source }
}

async fn bind(address: SocketAddr, key: &'static str) -> Result<TcpListener, ServerError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ServerError::Listen { key, address, source })
}

fn open_driver(
    config: &ServerConfig,
    runtime: Capabilities,
    repaired: &mut (dyn FnMut(String) + Send),
) -> Result<(Driver, Handle, Recovery), ServerError> {
    let driver = DriverConfig {
        dir: config.data.join("journal"),
        policy: config.policy.clone(),
        clock: config.clock,
        snapshot_every: SNAPSHOT_EVERY,
        runtime,
    };
    let opened = Driver::open(&driver).map_err(|source| ServerError::Journal {
        folder: driver.dir.clone(),
        source,
    })?;
    for repair in &opened.2.repairs {
        repaired(repair.to_string());
    }
    if opened.2.imported > 0 {
        // It happens once, and a copy of many jobs takes a while: it is said at the default level.
        tracing::warn!(
            "{} ended jobs of the journal are being copied to the history database",
            opened.2.imported
        );
    }
    if opened.2.removed > 0 {
        tracing::warn!(
            "{} jobs were removed from the history database, which the journal does not have as ended",
            opened.2.removed
        );
    }
    let in_force = &opened.2.policy;
    if config.policy != *in_force && config.policy != PolicyText::default() {
        tracing::warn!(
            "policy {} is in force, as the journal has it, and not {} of the configuration; change it with \
             `dovetail operate policy {}`",
            in_force.policy,
            config.policy.policy,
            config.policy.policy
        );
    }
    for warning in opened.1.read(|state| state.data_warnings()) {
        tracing::warn!("{warning}");
    }
    Ok(opened)
}

fn hub_config(config: &ServerConfig) -> HubConfig {
    let checkpoints = config.checkpoints.as_ref();
    HubConfig {
        heartbeat: config.heartbeat,
        lease: config.lease,
        margin: config.margin,
        checkpoints: checkpoints.map(|p| p.display().to_string()).unwrap_or_default(),
    }
}

fn server_tls(config: &ServerConfig, authority: &Authority) -> Result<Tls, ServerError> {
    if !config.tls {
        return Ok(Tls::Off);
    }
    let (chain, key) = authority.server_identity(&config.names)?;
    Ok(Tls::from_pem(&chain, &key)?)
}

/// Returns `host:port` under which this machine reaches one of its own sockets.
fn local_address(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("127.0.0.1:{}", address.port()),
        false => address.to_string(),
    }
}
