//! `dovetail server` and `dovetail up`: the scheduler; `up` also runs agents of this machine in the same process.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_server::{ConfigError, LocalAgents, Overrides, Server, ServerConfig, ServerError, join_token};
use tokio::signal::unix::{SignalKind, signal};

use crate::live::args::{ServeArgs, ServerArgs, UpArgs};

/// Virtual GPUs of `dovetail up` on a machine without GPUs.
const VIRTUAL_GPUS: u32 = 4;

/// Runs `dovetail server`.
///
/// # Errors
/// If a setting is invalid, or a file or socket is not usable.
pub fn server(args: &ServerArgs) -> Result<(), Failure> {
    let config = ServerConfig::read(overrides(&args.serve), args.config.as_deref());
    let config = config.map_err(config_failure)?;
    if args.print_join_token {
        return console::print(join_token(&config).map_err(failure)?);
    }
    run(&config, None)
}

/// Runs `dovetail up`.
///
/// # Errors
/// If a setting is invalid, or a file or socket is not usable.
pub fn up(args: &UpArgs) -> Result<(), Failure> {
    let mut config = ServerConfig::read(overrides(&args.serve), None).map_err(config_failure)?;
    config.checkpoints = Some(config.data.join("checkpoints"));
    let virtual_gpus = match args.virtual_gpus {
        Some(0) => return Err(Failure::request("--virtual-gpus: expected at least 1")),
        Some(slots) => Some(slots),
        None if dovetail_agent::gpu_count() > 0 => None,
        None => {
            console::print(format!(
                "no GPU found: using {VIRTUAL_GPUS} virtual GPUs (set the number with --virtual-gpus N)"
            ))?;
            Some(VIRTUAL_GPUS)
        }
    };
    let agents = LocalAgents {
        nodes: args.nodes,
        virtual_gpus,
        images: args.images.into(),
    };
    run(&config, Some(agents))
}

fn overrides(args: &ServeArgs) -> Overrides {
    Overrides {
        data: args.data.clone(),
        http: args.http,
        grpc: args.grpc,
        policy: args.policy.clone(),
        no_tls: args.no_tls,
    }
}

fn config_failure(error: ConfigError) -> Failure {
    match error {
        ConfigError::DataFolder(error) => error.into(),
        _ => Failure::Request(error.into()),
    }
}

fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::Setting(_) => Failure::Request(error.into()),
        ServerError::Listen { .. } => Failure::work(format!("--{error}")),
        _ => Failure::Work(error.into()),
    }
}

fn run(config: &ServerConfig, agents: Option<LocalAgents>) -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(log_level())
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_work()?;
    runtime.block_on(async {
        let repaired = &mut |repair: String| eprintln!("journal repaired: {repair}");
        let server = Server::start(config, agents, repaired).await.map_err(failure)?;
        // A failure to print is ignored: standard output may be closed.
        let _ = announce(config, &server);
        if let Some(received) = server.run_until(until_signal()).await.map_err(failure)? {
            received?;
        }
        eprintln!("Scheduler stopped. Jobs continue, and are adopted at the next start.");
        Ok(())
    })
}

/// Returns the log level in `DOVETAIL_LOG`: error, warn, info or debug.
fn log_level() -> tracing::Level {
    let level = std::env::var("DOVETAIL_LOG").ok();
    level
        .and_then(|level| level.parse().ok())
        .unwrap_or(tracing::Level::WARN)
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

fn announce(config: &ServerConfig, server: &Server) -> Result<(), Failure> {
    let (data, url, grpc) = (config.data.display(), &server.url, server.grpc);
    let headline = if server.restored {
        "Dovetail restarted; state restored."
    } else {
        "Dovetail is running."
    };
    let sign_in = server.first_user.as_ref().map(|user| {
        let (name, password) = (&user.name, &user.password);
        format!("\n  sign in as {name} with the password {password} (shown once)")
    });
    console::print(format!(
        "{headline}\n  page    {url}/{}\n  API     {url}/api/v1\n  agents  {grpc}\n  data    {data}\n  client  {data}/client.yaml\n\
         Try:  dovetail run --gpus 1 -- echo hello\n\
         More nodes:  dovetail agent --server HOST:{} --token-file {data}/join-token",
        sign_in.unwrap_or_default(),
        grpc.port()
    ))
}
