//! The HTTP API and the web page of the scheduler.
//!
//! The API is below `/api/v1` and uses JSON; errors are problem documents (RFC 9457). Every request is made by an
//! authenticated user. Users see all jobs except private ones of other users, and control only their own. Operators of a
//! virtual cluster control its jobs, and administrators everything.

mod accounts;
mod body_timeout;
mod cells;
mod cluster;
mod events;
mod explain;
mod failure_hints;
mod gpu_utilization;
mod job_list;
mod jobs;
mod log_search;
mod logs;
mod metrics;
mod nodes;
mod notify;
mod oidc;
mod openapi;
mod page;
mod pai;
mod past;
mod problem;
mod profiles;
mod query;
mod routes;
mod serve;
mod setting_error;
mod submit;
mod templates;
mod usage;
mod utilization;
pub mod views;
mod virtual_clusters;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{map_request, map_response};
use axum::routing::get;
use dovetail_cluster::{DriverCall, Handle, LiveRuntime, Refusal};
use dovetail_forecast::Forecaster;
use dovetail_model::Time;
use tokio::sync::oneshot;

use accounts::Limits;

pub use accounts::{
    Account, Audit, AuditError, Notify, PasswordError, Role, SaveUsers, Scope, TokenInfo, User, Users,
    UsersError,
};
pub use dovetail_httpserver::{Tls, TlsError};
pub use notify::{Notifier, NotifyConfig, NotifyTiming, SmtpConfig};
pub use oidc::{Oidc, OidcConfig};
pub use problem::Problem;
pub use routes::openapi;
pub use serve::{ServeError, serve};
pub use setting_error::SettingError;

/// Settings of the API.
#[derive(Debug, Clone, Default)]
pub struct ApiConfig {
    /// Whether jobs run under the account of the user who submitted them, where the agent may switch accounts; otherwise
    /// they run under that of the agent.
    pub run_as_user: bool,
    /// Whether connections are encrypted. Cookies are then sent only over TLS.
    pub tls: bool,
    /// Maximum number of requests per user and minute; 0 for no limit.
    pub requests_per_minute: u32,
    /// OpenID Connect provider.
    pub oidc: Option<Arc<Oidc>>,
    /// Directory of templates, in addition to the built-in ones.
    pub templates: Option<PathBuf>,
    /// Sender of notifications.
    pub notifier: Option<Arc<Notifier>>,
}

/// The state that all routes share.
#[derive(Clone)]
pub(crate) struct Api {
    handle: Handle,
    runtime: Arc<dyn LiveRuntime>,
    users: Arc<Users>,
    audit: Arc<Audit>,
    limits: Arc<Limits>,
    forecaster: Arc<Forecaster>,
    config: ApiConfig,
}

/// Returns the current time.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

impl Api {
    /// Returns an error, with what to do instead, unless agents run the jobs.
    fn require_agents(&self, instead: &str) -> Result<(), Problem> {
        match self.runtime.has_workloads() {
            false => Ok(()),
            true => Err(Problem::invalid(format!(
                "not supported on Kubernetes; {instead}"
            ))),
        }
    }

    /// Waits for an answer of the driver without blocking other requests. The driver answers every request, also when the
    /// journal cannot be written: then the request was not recorded and never will be.
    async fn call<T: Send + 'static>(&self, call: DriverCall<'_, T>) -> Result<T, Problem> {
        self.ask(call).await.map_err(Problem::from)
    }

    /// Like [`Api::call`], with the driver's own answer.
    async fn ask<T: Send + 'static>(&self, call: DriverCall<'_, T>) -> Result<T, Refusal> {
        let (sender, receiver) = oneshot::channel();
        call.then(move |result| drop(sender.send(result)));
        receiver.await.unwrap_or(Err(Refusal::ShuttingDown))
    }
}

/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 1 << 20;

/// Returns the router of the API, the page, metrics and health checks.
pub fn router(
    handle: Handle,
    runtime: Arc<dyn LiveRuntime>,
    users: Arc<Users>,
    audit: Arc<Audit>,
    config: ApiConfig,
) -> Router {
    let forecaster = Forecaster::watching(handle.clone()).unwrap_or_else(|error| {
        tracing::warn!(%error, "forecasts learn only from jobs that clients ask about");
        Arc::default()
    });
    let api = Api {
        handle,
        runtime,
        users,
        audit,
        limits: Arc::new(Limits::new(config.requests_per_minute)),
        forecaster,
        config,
    };
    let (v1, _) = routes::v1().finish();
    Router::new()
        .route("/healthz", get(cluster::health))
        .route("/readyz", get(cluster::health))
        .route("/metrics", get(metrics::show))
        .nest(
            "/api/v1",
            v1.fallback(problem::unknown_path)
                .layer(map_response(problem::to_problem)),
        )
        .nest(pai::BASE, pai::routes())
        .fallback(page::page)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(map_request(body_timeout::limit_body_time))
        .with_state(api)
}
