//! `dovetail kube scheduler`: the same scheduler on Kubernetes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use dovetail_cluster::{Handle, JobState, Support};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_kube::{ClusterFeatures, Elector, Leadership, Reconciler, Scheduler, SchedulerError};
use dovetail_kubeapi::{Client, Config};
use dovetail_kubeweb::Page;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::args::SchedulerArgs;
use super::health::{self, Answers, Readiness};
use super::settings::KubeSettings;

/// Runs the scheduler until a signal arrives or the lease is lost; pods continue.
pub(super) fn run(args: &SchedulerArgs) -> Result<(), Failure> {
    let level = std::env::var("DOVETAIL_LOG")
        .ok()
        .and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(level.unwrap_or(tracing::Level::INFO))
        .init();
    let config = Config::find(args.kubeconfig.as_deref(), args.context.as_deref()).or_request()?;
    let settings = KubeSettings::read(args, &config.namespace)?;
    // Without a page a single thread is enough, and avoids handing work between threads.
    let mut builder = match settings.page {
        None => tokio::runtime::Builder::new_current_thread(),
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().or_work()?;
    runtime.block_on(lead(Client::new(config), settings))
}

/// Health and metrics of the running scheduler.
struct State {
    handle: Handle,
    reconciler: Arc<Mutex<Reconciler>>,
    client: Client,
    leadership: Leadership,
    ready: watch::Receiver<bool>,
}

impl Answers for State {
    fn readiness(&self) -> Readiness {
        match (self.leadership.holds(), *self.ready.borrow()) {
            (false, _) => Readiness::Ready("standing by"),
            (true, true) => Readiness::Ready("leading"),
            (true, false) => Readiness::NotReady("nodes and pods have not been listed yet"),
        }
    }

    fn metrics(&self) -> String {
        let (pods, gangs) = self
            .reconciler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .counts();
        let (running, waiting) = self.handle.read(|state| {
            let running = state.unfinished_jobs().filter(|j| j.state.holds_gpus()).count();
            let queued = state
                .unfinished_jobs()
                .filter(|j| j.state == JobState::Queued)
                .count();
            (running, queued)
        });
        let mut text = String::new();
        let leads = u64::from(self.leadership.holds());
        let rows: [(&str, &str, &str, u64); 6] = [
            (
                "dovetail_kube_leader",
                "gauge",
                "Whether this replica is the leader.",
                leads,
            ),
            (
                "dovetail_kube_pods",
                "gauge",
                "Known pods of this scheduler.",
                pods as u64,
            ),
            ("dovetail_kube_gangs", "gauge", "Known gangs.", gangs as u64),
            (
                "dovetail_kube_jobs_running",
                "gauge",
                "Jobs that hold GPUs.",
                running as u64,
            ),
            (
                "dovetail_kube_jobs_waiting",
                "gauge",
                "Queued jobs.",
                waiting as u64,
            ),
            (
                "dovetail_kube_requests_total",
                "counter",
                "Requests to the API server.",
                self.client.requests(),
            ),
        ];
        for (name, kind, help, value) in rows {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        text
    }
}

/// Serves health and metrics in the background.
async fn serve_health(address: SocketAddr, state: State) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--http {address}: cannot listen (port 0 picks a free one)"))
        .or_work()?;
    let address = listener.local_addr().or_work()?;
    console::print(format!("Health and metrics: http://{address}/"))?;
    tokio::spawn(health::serve(listener, Arc::new(state)));
    Ok(())
}

/// How long the start waits for an API server that cannot be reached.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// Finds out what the cluster lets the scheduler do with pods, and writes that to the log.
async fn discover(client: &Client) -> Result<ClusterFeatures, Failure> {
    let started = Instant::now();
    let features = loop {
        match ClusterFeatures::discover(client).await {
            Ok(features) => break features,
            Err(error) if error.is_transient() && started.elapsed() < DISCOVERY_TIMEOUT => {
                tracing::warn!("{error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => {
                return Err(error)
                    .context("cannot find out what the cluster supports")
                    .or_work();
            }
        }
    };
    let capabilities = features.capabilities();
    let mechanisms = [
        ("GPU sharing", capabilities.sharing),
        ("resizing of CPU and memory", capabilities.resize),
        ("change of width", capabilities.width),
    ];
    for (mechanism, support) in mechanisms {
        match support {
            Support::Yes(how) => tracing::info!("{mechanism}: {how}"),
            Support::No(reason) => tracing::info!("{mechanism}: not supported: {reason}"),
        }
    }
    Ok(features)
}

async fn lead(client: Client, settings: KubeSettings) -> Result<(), Failure> {
    Scheduler::check(&settings.scheduler).or_request()?;
    let features = discover(&client).await?;
    let scheduler = Scheduler::new(client.clone(), settings.scheduler, features).or_request()?;
    let mut elector = settings.lease.map(|lease| Elector::new(client.clone(), lease));
    let leadership = elector
        .as_ref()
        .map_or_else(Leadership::alone, Elector::leadership);
    if let Some(address) = settings.http {
        let state = State {
            handle: scheduler.handle(),
            reconciler: scheduler.reconciler(),
            client: client.clone(),
            leadership: leadership.clone(),
            ready: scheduler.ready(),
        };
        serve_health(address, state).await?;
    }
    let page = match settings.page {
        Some(page) => Some(Page::open(page, &client, &scheduler).await.or_work()?),
        None => None,
    };
    let mut terminate = signal(SignalKind::terminate()).or_work()?;
    let mut interrupt = signal(SignalKind::interrupt()).or_work()?;
    let mut ready = scheduler.ready();
    let work = async {
        if let Some(elector) = &mut elector {
            console::print("Waiting for the leader lease.")?;
            elector.win().await;
        }
        console::print("Leading.")?;
        let keep = async {
            match &mut elector {
                Some(elector) => elector.keep().await,
                None => std::future::pending().await,
            }
        };
        let pages = async {
            match page {
                Some(page) => {
                    let announce = |address| drop(console::print(format!("Page: http://{address}/")));
                    page.serve(announce).await.or_work()
                }
                None => std::future::pending().await,
            }
        };
        tokio::spawn(async move {
            if ready.wait_for(|ready| *ready).await.is_ok() {
                let _ = console::print("Nodes and pods listed; scheduling.");
            }
        });
        tokio::select! {
            ended = scheduler.run(leadership) => ended.map_err(|error| match error {
                SchedulerError::Driver(_) => Failure::Request(error.into()),
                SchedulerError::Refused(_) | SchedulerError::Ended => Failure::Work(error.into()),
            }),
            ended = pages => ended,
            why = keep => Err(Failure::Work(anyhow::anyhow!(why))),
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if let Some(elector) = &mut elector {
        elector.release().await;
    }
    ended
}
