//! `dovetail server` and `dovetail up`: the scheduler, and with `up` agents of this machine in the same process.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use dovetail_agents::{Authority, Hub, HubConfig};
use dovetail_control::{Driver, DriverConfig, LoadPoint, LogPiece, LogRequest, write_private};
use dovetail_model::{NodeId, Time};
use dovetail_node::{AgentConfig, Images};
use dovetail_web::{ApiConfig, Audit, Nodes, Notifier, Oidc, Pace, Tls, Users};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::failure::{Blame, Failure};
use crate::live::args::{ServerArgs, UpArgs};
use crate::live::client::ClientFile;
use crate::live::settings::{Settings, host_name, user_name};
use crate::show;

/// What the API needs of the agents.
struct OverHub(Hub);

impl Nodes for OverHub {
    fn is_connected(&self, node: NodeId) -> bool {
        self.0.is_connected(node)
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, String> {
        self.0.read_log(request)
    }

    fn notices(&self) -> watch::Receiver<u64> {
        self.0.notices()
    }

    fn loads(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        self.0.loads(node, since)
    }

    fn trouble(&self) -> Option<String> {
        self.0.trouble().borrow().clone()
    }
}

/// Runs `dovetail server`.
///
/// # Errors
/// When a setting is wrong, or a file or socket cannot be used.
pub fn server(args: &ServerArgs) -> Result<(), Failure> {
    let settings = Settings::read(&args.serve, args.config.as_deref())?;
    if args.print_join_token {
        private_folder(&settings.data)?;
        let authority = Authority::open(&settings.data).or_work()?;
        return show::print(authority.join_token());
    }
    run(settings, Vec::new)
}

/// Runs `dovetail up`.
///
/// # Errors
/// When a setting is wrong, or a file or socket cannot be used.
pub fn up(args: &UpArgs) -> Result<(), Failure> {
    let mut settings = Settings::read(&args.serve, None)?;
    settings.checkpoints = Some(settings.data.join("checkpoints"));
    let slots = match args.virtual_gpus {
        Some(0) => return Err(Failure::request("--virtual-gpus: at least one is needed")),
        Some(slots) => Some(slots),
        None if dovetail_node::gpu_count() > 0 => None,
        None => {
            const SLOTS: u32 = 4;
            show::print(format!(
                "This machine has no GPU: jobs get {SLOTS} virtual ones (say how many with --virtual-gpus N)."
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

/// A folder that only its owner can look into.
fn private_folder(path: &Path) -> Result<(), Failure> {
    let made =
        fs::create_dir_all(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o711)));
    made.with_context(|| format!("{}", path.display())).or_work()
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

/// `DOVETAIL_LOG`: error, warn, info or debug.
fn log_level() -> tracing::Level {
    let said = std::env::var("DOVETAIL_LOG").ok();
    said.and_then(|level| level.parse().ok())
        .unwrap_or(tracing::Level::WARN)
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    bound
        .with_context(|| format!("{key} {address}: cannot listen (port 0 picks a free one)"))
        .or_work()
}

async fn serve(settings: Settings, agents: Vec<LocalAgent>) -> Result<(), Failure> {
    let oidc = settings.oidc.clone().map(Oidc::open).transpose();
    let oidc = oidc.map_err(Failure::request)?.map(Arc::new);
    let notifier = Notifier::open(&settings.notify, Pace::default()).map_err(Failure::request)?;
    // First the sockets: whoever has them is the only one that writes to the journal and the client's file.
    let (http, grpc) = (
        bind(settings.http, "--http").await?,
        bind(settings.grpc, "--grpc").await?,
    );
    let (http_at, grpc_at) = (http.local_addr().or_work()?, grpc.local_addr().or_work()?);
    let authority = Arc::new(Authority::open(&settings.data).or_work()?);
    let users = Users::open(&settings.data.join("users.json")).or_work()?;
    let config = DriverConfig {
        dir: settings.data.join("journal"),
        policy: settings.policy.clone(),
        clock: settings.clock,
        snapshot_every: 50_000,
    };
    let (driver, handle, start) = Driver::open(&config)
        .with_context(|| format!("{}", config.dir.display()))
        .or_work()?;
    for repair in &start.repairs {
        eprintln!("The journal was mended: {repair}");
    }
    let hub = Hub::new(HubConfig {
        heartbeat: settings.heartbeat,
        lease: settings.lease,
        margin: settings.margin,
        checkpoints: settings
            .checkpoints
            .as_ref()
            .map(|p| p.display().to_string())
            .unwrap_or_default(),
    });
    let driving = driver.spawn(hub.clone());
    let (url, first) = first_client(&settings, http_at, &authority, &users)?;
    let audit = Audit::open(&settings.data.join("audit.jsonl")).or_work()?;

    let (stop, stopped) = watch::channel(false);
    let until = || {
        let mut stopped = stopped.clone();
        async move { drop(stopped.wait_for(|stop| *stop).await) }
    };
    let tls = match settings.tls {
        true => {
            let (chain, key) = authority.server_identity(&settings.names).or_work()?;
            Tls::from_pem(&chain, &key).or_work()?
        }
        false => Tls::Off,
    };
    let api = ApiConfig {
        run_as_user: settings.run_as_user,
        tls: settings.tls,
        requests_per_minute: settings.requests_per_minute,
        oidc,
        templates: Some(settings.templates.clone()),
        notifier: Some(Arc::clone(&notifier)),
        makes: None,
    };
    let (nodes, users) = (Arc::new(OverHub(hub.clone())), Arc::new(users));
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
    let (for_agents, at_hub, to_driver, ended) =
        (Arc::clone(&authority), hub.clone(), handle.clone(), until());
    let mut agents_served = tokio::spawn(async move {
        dovetail_agents::serve(grpc, &names, for_agents, at_hub, to_driver, ended).await
    });
    let mut local = tokio::task::JoinSet::new();
    for agent in agents {
        let mut config = AgentConfig::new(&agent.name, &reach(grpc_at), agent.folder)
            .with_join_token(&authority.join_token().to_string())
            .or_work()?;
        config.virtual_gpus = agent.slots;
        config.images = agent.images;
        local.spawn(dovetail_node::run(config, until()));
    }
    // Whoever started it may not be there to read this.
    let again = start.records > 0 || start.snapshot;
    let _ = announce(&settings, &url, grpc_at, again, first.as_ref());

    let mut terminate = signal(SignalKind::terminate()).or_work()?;
    let mut interrupt = signal(SignalKind::interrupt()).or_work()?;
    let result = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        ended = &mut web => ended.or_work().and_then(|r| r.or_work()),
        ended = &mut agents_served => ended.or_work().and_then(|r| r.map(drop).or_work()),
        Some(ended) = local.join_next() => ended.or_work().and_then(|r| r.or_work()),
    };
    stop.send_replace(true);
    // Agents and clients that hang on must not keep the journal from being closed.
    let patience = std::time::Duration::from_secs(2);
    let _ = tokio::time::timeout(patience, async { while local.join_next().await.is_some() {} }).await;
    let _ = handle.shut_down().wait();
    drop(handle);
    let _ = tokio::task::spawn_blocking(move || driving.join()).await;
    if result.is_ok() {
        eprintln!("The scheduler has ended. Jobs run on, and are taken up again at the next start.");
    }
    result
}

/// `host:port` by which this machine reaches one of its own sockets.
fn reach(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("127.0.0.1:{}", address.port()),
        false => address.to_string(),
    }
}

/// Writes `client.yaml` for whoever starts this, with a token of its own if there is none.
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
    let word = if again { "goes on" } else { "is up" };
    let sign_in = match first {
        Some((name, password)) => format!("\n  sign in as {name} with the password {password} (shown once)"),
        None => String::new(),
    };
    show::print(format!(
        "Dovetail {word}.\n  page    {url}/{sign_in}\n  API     {url}/api/v1\n  agents  {grpc}\n  data    {data}\n  client  {data}/client.yaml\n\
         Try:  dovetail run --gpus 1 -- echo hello\n\
         More nodes:  dovetail agent --server HOST:{} --token-file {data}/join-token",
        grpc.port()
    ))
}
