//! The scheduler's face to people and scripts: jobs, nodes, logs and events over HTTP, each request by a known user.
//!
//! Everything is below `/api/v1` and speaks JSON; what goes wrong is a problem document (RFC 9457). A user sees all jobs
//! but those that are private to others, touches only its own, and reads only their logs; an administrator may all.

mod cell_views;
mod clusters;
mod events;
mod explain;
mod gpu_use;
mod hints;
mod job_file;
mod job_list;
mod jobs;
mod log_search;
mod logs;
mod metrics;
mod nodes;
mod notify;
mod oidc;
mod openpai;
mod operate;
mod page;
mod pages;
mod pai;
mod people;
mod problem;
mod roles;
mod routes;
mod serve;
mod slow;
mod templates;
mod usage;
pub mod views;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{map_request, map_response};
use axum::routing::get;
use dovetail_control::forecast::Foresight;
use dovetail_control::{Ask, Handle, JobNo, JobRequest, LoadPoint, LogPiece, LogRequest, Refusal};
use dovetail_model::{NodeId, Time};
use tokio::sync::{mpsc, oneshot, watch};

use people::Limits;

pub use job_file::{JobFile, JobFileError, SCHEMA};
pub use notify::{Notifier, NotifyConfig, Pace, SmtpConfig};
pub use oidc::{Oidc, OidcConfig};
pub use openpai::{Converted, convert};
pub use people::{Account, Audit, AuditError, Keep, Notify, Role, Scope, TokenInfo, User, Users, UsersError};
pub use problem::Problem;
pub use routes::openapi;
pub use serve::{ServeError, Tls, serve};

/// What the API needs of whatever runs the jobs, beside what is in the book.
pub trait Nodes: Send + Sync + 'static {
    /// Whether the node can be reached now.
    fn is_connected(&self, node: NodeId) -> bool;

    /// Reads a log where it is.
    ///
    /// # Errors
    /// When it cannot be reached.
    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, String>;

    /// The number of the last notice in the book, whenever it changes.
    fn notices(&self) -> watch::Receiver<u64>;

    /// How busy a node was since then, oldest first; nothing if nobody knows.
    fn loads(&self, _node: NodeId, _since: Time) -> Vec<LoadPoint> {
        Vec::new()
    }

    /// Why the journal cannot be written; none if it can.
    fn trouble(&self) -> Option<String>;
}

/// What comes of a request to whoever makes the parts of jobs.
pub type Making = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Whoever makes the parts of jobs, where they are not processes of agents: pods, for one.
pub trait Makes: std::fmt::Debug + Send + Sync + 'static {
    /// Whether it can make such a job; what is not quite the same.
    ///
    /// # Errors
    /// What it cannot make, and what would be accepted.
    fn check(
        &self,
        user: &str,
        job: &JobRequest,
        array: Option<&views::ArrayRequest>,
    ) -> Result<Vec<String>, String>;

    /// Makes the parts of a job that has this number; of an array, the first one has.
    fn make(&self, user: &str, first: JobNo, job: JobRequest, array: Option<views::ArrayRequest>) -> Making;

    /// Takes away the parts of a job that somebody has ended.
    fn unmake(&self, job: JobNo, by: &str) -> Making;
}

/// How the API deals with people.
#[derive(Debug, Clone, Default)]
pub struct ApiConfig {
    /// Jobs run under the account of whoever sent them, where the agent may; else under the agent's own.
    pub run_as_user: bool,
    /// Connections are encrypted, so cookies are sent over nothing else.
    pub tls: bool,
    /// Requests of one user in a minute; zero for any number.
    pub requests_per_minute: u32,
    /// Signing in elsewhere.
    pub oidc: Option<Arc<Oidc>>,
    /// The folder of templates, beside those that are built in.
    pub templates: Option<PathBuf>,
    /// What tells people of their jobs.
    pub notifier: Option<Arc<Notifier>>,
    /// Whoever makes the parts of jobs; none where agents run them.
    pub makes: Option<Arc<dyn Makes>>,
}

/// All a request may need.
#[derive(Clone)]
pub(crate) struct Api {
    handle: Handle,
    nodes: Arc<dyn Nodes>,
    users: Arc<Users>,
    audit: Arc<Audit>,
    limits: Arc<Limits>,
    foresight: Arc<Foresight>,
    config: ApiConfig,
}

/// Microseconds since 1970.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

impl Api {
    /// What only goes where agents run the jobs; elsewhere, what to do instead.
    fn needs_agents(&self, instead: &str) -> Result<(), Problem> {
        match self.config.makes {
            None => Ok(()),
            Some(_) => Err(Problem::invalid(format!(
                "this cannot be done here on Kubernetes; {instead}"
            ))),
        }
    }

    /// Waits for an answer of the driver without holding up other requests, and not for ever: while the journal cannot
    /// be written nothing is promised.
    async fn ask<T: Send + 'static>(&self, ask: Ask<'_, T>) -> Result<T, Problem> {
        let (sender, mut receiver) = oneshot::channel();
        ask.then(move |result| drop(sender.send(result)));
        loop {
            match tokio::time::timeout(PATIENCE, &mut receiver).await {
                Ok(answer) => {
                    return answer
                        .unwrap_or(Err(Refusal::ShuttingDown))
                        .map_err(Problem::from);
                }
                Err(_) => {
                    if let Some(why) = self.nodes.trouble() {
                        return Err(Problem::unavailable(format!(
                            "nothing can be promised now, because the journal cannot be written: {why}"
                        )));
                    }
                }
            }
        }
    }
}

/// How long an answer may take before it is looked why.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most a request may bring, in bytes.
const LARGEST_BODY: usize = 1 << 20;

/// All there is to be asked.
pub fn router(
    handle: Handle,
    nodes: Arc<dyn Nodes>,
    users: Arc<Users>,
    audit: Arc<Audit>,
    config: ApiConfig,
) -> Router {
    let api = Api {
        handle,
        nodes,
        users,
        audit,
        limits: Arc::new(Limits::new(config.requests_per_minute)),
        foresight: Arc::default(),
        config,
    };
    let (v1, _) = routes::v1().finish();
    Router::new()
        .route("/healthz", get(operate::health))
        .route("/readyz", get(operate::health))
        .route("/metrics", get(metrics::show))
        .nest(
            "/api/v1",
            v1.fallback(problem::no_such_page)
                .layer(map_response(problem::every_refusal)),
        )
        .nest(pai::BASE, pai::routes())
        .fallback(page::page)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(map_request(slow::in_time))
        .with_state(api)
}
