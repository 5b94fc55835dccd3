//! The scheduler's face to people and scripts: jobs, nodes, logs and events over HTTP, each request by a known user.
//!
//! Everything is below `/api/v1` and speaks JSON; what goes wrong is a problem document (RFC 9457). A user sees all jobs
//! but those that are private to others, touches only its own, and reads only their logs; an administrator may all.

mod auth;
mod events;
mod job_file;
mod jobs;
mod logs;
mod nodes;
mod operate;
mod page;
mod problem;
mod serve;
mod users;
pub mod views;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use dovetail_control::{Ask, Handle, LogPiece, LogRequest, Refusal};
use dovetail_model::NodeId;
use tokio::sync::{mpsc, oneshot, watch};

pub use job_file::{JobFile, JobFileError, SCHEMA};
pub use problem::Problem;
pub use serve::{ServeError, Tls, serve};
pub use users::{User, Users, UsersError};

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

    /// Why the journal cannot be written; none if it can.
    fn trouble(&self) -> Option<String>;
}

/// How the API deals with people.
#[derive(Debug, Clone, Default)]
pub struct ApiConfig {
    /// Jobs run under the account of whoever sent them, where the agent may; else under the agent's own.
    pub run_as_user: bool,
}

/// All a request may need.
#[derive(Clone)]
pub(crate) struct Api {
    handle: Handle,
    nodes: Arc<dyn Nodes>,
    users: Arc<Users>,
    config: ApiConfig,
}

impl Api {
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
pub fn router(handle: Handle, nodes: Arc<dyn Nodes>, users: Arc<Users>, config: ApiConfig) -> Router {
    let api = Api {
        handle,
        nodes,
        users,
        config,
    };
    let v1 = Router::new()
        .route("/me", get(auth::me))
        .route("/jobs", get(jobs::list).post(jobs::submit))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/explain", get(jobs::explain))
        .route("/jobs/{id}/logs", get(logs::read))
        .route("/jobs/{id}/{action}", post(jobs::act))
        .route("/nodes", get(nodes::list))
        .route("/nodes/{name}/{action}", post(nodes::act))
        .route("/events", get(events::stream))
        .route("/usage", get(jobs::usage))
        .route("/cluster", get(operate::cluster))
        .route("/operate", post(operate::operate))
        .route("/users", get(auth::list).post(auth::add))
        .route("/users/{name}", axum::routing::delete(auth::remove))
        .fallback(problem::no_such_page);
    Router::new()
        .route("/healthz", get(operate::health))
        .nest("/api/v1", v1)
        .fallback(page::page)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(api)
}
