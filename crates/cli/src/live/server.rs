//! `dovetail server` and `dovetail up`: the scheduler; `up` also runs agents of this machine in the same process.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use dovetail_agent::{AgentConfig, Images};
use dovetail_client::ClientFile;
use dovetail_cluster::{
    Driver, DriverConfig, Handle, LoadPoint, LogPiece, LogRequest, Recovery, write_private,
};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_engine::Runtime;
use dovetail_hub::{Agents, Authority, Hub, HubConfig};
use dovetail_model::{NodeId, Time};
use dovetail_web::{ApiConfig, Audit, LogError, Nodes, Notifier, NotifyTiming, Oidc, Tls, Users};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::live::args::{ServerArgs, UpArgs};
use crate::live::settings::{Settings, host_name, user_name};

/// The API's access to agents.
struct HubNodes(Hub);

impl Nodes for HubNodes {
    fn is_connected(&self, node: NodeId) -> bool {
        self.0.is_connected(node)
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError> {
        self.0.read_log(request).map_err(|e| LogError(e.to_string()))
    }

    fn last_event(&self) -> watch::Receiver<u64> {
        self.0.last_event()
    }

    fn loads(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        self.0.loads(node, since)
    }

    fn journal_error(&self) -> Option<String> {
        self.0.journal_error().borrow().clone()
    }
}

/// Runs `dovetail server`.
///
/// # Errors
/// If a setting is invalid, or a file or socket is not usable.
pub fn server(args: &ServerArgs) -> Result<(), Failure> {
    let settings = Settings::read(&args.serve, args.config.as_deref())?;
    if args.print_join_token {
        private_folder(&settings.data)?;
        let authority = Authority::open(&settings.data).or_work()?;
        return console::print(authority.join_token());
    }
    run(settings, Vec::new)
}

/// Runs `dovetail up`.
///
/// # Errors
/// If a setting is invalid, or a file or socket is not usable.
pub fn up(args: &UpArgs) -> Result<(), Failure> {
    let mut settings = Settings::read(&args.serve, None)?;
    settings.checkpoints = Some(settings.data.join("checkpoints"));
    let slots = match args.virtual_gpus {
        Some(0) => return Err(Failure::request("--virtual-gpus: expected at least 1")),
        Some(slots) => Some(slots),
        None if dovetail_agent::gpu_count() > 0 => None,
        None => {
            const SLOTS: u32 = 4;
            console::print(format!(
                "no GPU found: using {SLOTS} virtual GPUs (set the number with --virtual-gpus N)"
            ))?;
            Some(SLOTS)
        }
    };
    let (data, nodes, images) = (settings.data.clone(), args.nodes.max(1), args.images.into());
    run(settings, move || {
        let host = host_name().unwrap_or_else(|| "local".to_owned());
        let named = |i: u32| match nodes {
            1 => (host.clone(), data.join("agent")),
            _ => (format!("{host}-{i}"), data.join(format!("agent-{i}"))),
        };
        let local = |i| {
            let (name, folder) = named(i);
            LocalAgent {
                name,
                folder,
                slots,
                images,
            }
        };
        (0..nodes).map(local).collect()
    })
}

/// An agent in this process.
struct LocalAgent {
    name: String,
    folder: std::path::PathBuf,
    slots: Option<u32>,
    images: Images,
}

/// Creates a folder that only its owner can list and change.
fn private_folder(path: &Path) -> Result<(), Failure> {
    let result =
        fs::create_dir_all(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o711)));
    result.with_context(|| format!("{}", path.display())).or_work()
}

fn run(settings: Settings, agents: impl FnOnce() -> Vec<LocalAgent>) -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(log_level())
        .init();
    private_folder(&settings.data)?;
    if let Some(checkpoints) = &settings.checkpoints {
        fs::create_dir_all(checkpoints)
            .with_context(|| format!("{}", checkpoints.display()))
            .or_work()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_work()?;
    runtime.block_on(serve(settings, agents()))
}

/// Returns the log level in `DOVETAIL_LOG`: error, warn, info or debug.
fn log_level() -> tracing::Level {
    let level = std::env::var("DOVETAIL_LOG").ok();
    level
        .and_then(|level| level.parse().ok())
        .unwrap_or(tracing::Level::WARN)
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    bound
        .with_context(|| format!("{key} {address}: cannot listen (port 0 picks a free one)"))
        .or_work()
}

fn open_driver(settings: &Settings) -> Result<(Driver, Handle, Recovery), Failure> {
    let config = DriverConfig {
        dir: settings.data.join("journal"),
        policy: settings.policy.clone(),
        clock: settings.clock,
        snapshot_every: 50_000,
        runtime: Agents.capabilities(),
    };
    let opened = Driver::open(&config)
        .with_context(|| format!("{}", config.dir.display()))
        .or_work()?;
    for repair in &opened.2.repairs {
        eprintln!("journal repaired: {repair}");
    }
    for warning in opened.1.read(|state| state.data_warnings()) {
        tracing::warn!("{warning}");
    }
    Ok(opened)
}

fn hub_config(settings: &Settings) -> HubConfig {
    let checkpoints = settings.checkpoints.as_ref();
    HubConfig {
        heartbeat: settings.heartbeat,
        lease: settings.lease,
        margin: settings.margin,
        checkpoints: checkpoints.map(|p| p.display().to_string()).unwrap_or_default(),
    }
}

fn server_tls(settings: &Settings, authority: &Authority) -> Result<Tls, Failure> {
    if !settings.tls {
        return Ok(Tls::Off);
    }
    let (chain, key) = authority.server_identity(&settings.names).or_work()?;
    Tls::from_pem(&chain, &key).or_work()
}

/// Waits for local agents to end, but not for long: they must not delay closing the journal.
async fn join_briefly<T: 'static>(agents: &mut tokio::task::JoinSet<T>) {
    let patience = std::time::Duration::from_secs(2);
    let _ = tokio::time::timeout(patience, async { while agents.join_next().await.is_some() {} }).await;
}

/// Waits for SIGTERM or SIGINT.
async fn until_signal() -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).or_work()?;
    let mut interrupt = signal(SignalKind::interrupt()).or_work()?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

impl LocalAgent {
    /// Returns the configuration of the agent, which joins the server at this address.
    fn config(self, server: &str, authority: &Authority) -> Result<AgentConfig, Failure> {
        let mut config = AgentConfig::new(&self.name, server, self.folder)
            .with_join_token(&authority.join_token().to_string())
            .or_work()?;
        config.virtual_gpus = self.slots;
        config.images = self.images;
        Ok(config)
    }
}

async fn serve(settings: Settings, agents: Vec<LocalAgent>) -> Result<(), Failure> {
    let oidc = settings.oidc.clone().map(Oidc::open).transpose();
    let oidc = oidc.map_err(Failure::request)?.map(Arc::new);
    let notifier = Notifier::open(&settings.notify, NotifyTiming::default()).map_err(Failure::request)?;
    // Bind the sockets first: the process that holds them is the only one that writes the journal and the client file.
    let http = bind(settings.http, "--http").await?;
    let grpc = bind(settings.grpc, "--grpc").await?;
    let (http_at, grpc_at) = (http.local_addr().or_work()?, grpc.local_addr().or_work()?);
    let authority = Arc::new(Authority::open(&settings.data).or_work()?);
    let users = Users::open(&settings.data.join("users.json")).or_work()?;
    let (driver, handle, start) = open_driver(&settings)?;
    let hub = Hub::new(hub_config(&settings));
    let driving = driver.spawn(hub.clone());
    let (url, first) = first_client(&settings, http_at, &authority, &users)?;
    let audit = Audit::open(&settings.data.join("audit.jsonl")).or_work()?;

    let (stop, stopped) = watch::channel(false);
    let until = || {
        let mut stopped = stopped.clone();
        async move { drop(stopped.wait_for(|stop| *stop).await) }
    };
    let tls = server_tls(&settings, &authority)?;
    let api = ApiConfig {
        run_as_user: settings.run_as_user,
        tls: settings.tls,
        requests_per_minute: settings.requests_per_minute,
        oidc,
        templates: Some(settings.templates.clone()),
        notifier: Some(Arc::clone(&notifier)),
        workloads: None,
    };
    let (nodes, users) = (Arc::new(HubNodes(hub.clone())), Arc::new(users));
    let router = dovetail_web::router(
        handle.clone(),
        Arc::clone(&nodes) as Arc<dyn Nodes>,
        Arc::clone(&users),
        Arc::new(audit),
        api,
    );
    tokio::spawn(notifier.watch(handle.clone(), nodes, users, until()));
    let mut web = tokio::spawn(dovetail_web::serve(http, tls, router, until()));
    let names = settings.names.clone();
    let (ca, to_hub, to_driver, ended) = (Arc::clone(&authority), hub.clone(), handle.clone(), until());
    let serve_agents = async move { dovetail_hub::serve(grpc, &names, ca, to_hub, to_driver, ended).await };
    let mut agents_served = tokio::spawn(serve_agents);
    let mut local = tokio::task::JoinSet::new();
    for agent in agents {
        let config = agent.config(&reach(grpc_at), &authority)?;
        local.spawn(dovetail_agent::run(config, until()));
    }
    // A failure to print is ignored: standard output may be closed.
    let again = start.records > 0 || start.snapshot;
    let _ = announce(&settings, &url, grpc_at, again, first.as_ref());

    let result = tokio::select! {
        received = until_signal() => received,
        ended = &mut web => ended.or_work().and_then(|r| r.or_work()),
        ended = &mut agents_served => ended.or_work().and_then(|r| r.map(drop).or_work()),
        Some(ended) = local.join_next() => ended.or_work().and_then(|r| r.or_work()),
    };
    stop.send_replace(true);
    join_briefly(&mut local).await;
    let _ = handle.shut_down().wait();
    drop(handle);
    let _ = tokio::task::spawn_blocking(move || driving.join()).await;
    if result.is_ok() {
        eprintln!("Scheduler stopped. Jobs continue, and are adopted at the next start.");
    }
    result
}

/// Returns `host:port` under which this machine reaches one of its own sockets.
fn reach(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("127.0.0.1:{}", address.port()),
        false => address.to_string(),
    }
}

/// Writes `client.yaml` for the user who starts the server, with a new token if the file is missing.
fn first_client(
    settings: &Settings,
    http: SocketAddr,
    authority: &Authority,
    users: &Users,
) -> Result<(String, Option<(String, String)>), Failure> {
    let mut first = None;
    let path = settings.data.join("client.yaml");
    let scheme = if settings.tls { "https" } else { "http" };
    let url = format!("{scheme}://{}", reach(http));
    let known = fs::read_to_string(&path)
        .ok()
        .and_then(|text| serde_saphyr::from_str::<ClientFile>(&text).ok())
        .filter(|file| users.of_token(&file.token, crate::live::show::now()).is_some());
    let token = match known {
        Some(file) => file.token,
        None => {
            let mut name = user_name();
            if users.account(&name).is_some() {
                name = format!("{name}-{:x}", crate::live::show::now().0);
            }
            let token = users.add(&name, true).or_work()?;
            let password = users.set_password(&name, None, true).or_work()?;
            first = Some((name, password));
            token
        }
    };
    let file = ClientFile {
        server: url.clone(),
        ca: match settings.tls {
            true => authority.certificate().to_owned(),
            false => String::new(),
        },
        token,
    };
    let text = serde_saphyr::to_string(&file).or_work()?;
    write_private(&path, text.as_bytes())
        .with_context(|| format!("{}", path.display()))
        .or_work()?;
    Ok((url, first))
}

fn announce(
    settings: &Settings,
    url: &str,
    grpc: SocketAddr,
    again: bool,
    first: Option<&(String, String)>,
) -> Result<(), Failure> {
    let data = settings.data.display();
    let headline = if again {
        "Dovetail restarted; state restored."
    } else {
        "Dovetail is running."
    };
    let sign_in = match first {
        Some((name, password)) => format!("\n  sign in as {name} with the password {password} (shown once)"),
        None => String::new(),
    };
    console::print(format!(
        "{headline}\n  page    {url}/{sign_in}\n  API     {url}/api/v1\n  agents  {grpc}\n  data    {data}\n  client  {data}/client.yaml\n\
         Try:  dovetail run --gpus 1 -- echo hello\n\
         More nodes:  dovetail agent --server HOST:{} --token-file {data}/join-token",
        grpc.port()
    ))
}
