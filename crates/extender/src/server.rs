//! Serves the extender over HTTP. The lock is held while a decision is made, and never across an `await`.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use dovetail_httpserver::{ServerOptions, Tls};
use dovetail_kubeapi::{Node, Pod};
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpListener;

use crate::error::ExtenderError;
use crate::extender::{Extender, FilterAnswer};
use crate::inspect::{self, CellSnapshot};
use crate::kubernetes::Cluster;
use crate::pods::{BindCommand, Timestamp};
use crate::wire::{BindCall, BindResult, FilterCall, FilterResult, PreemptCall};

/// Maximum size of a request body, in bytes: a pod with all its annotations, and the names of ten thousand nodes.
const MAX_BODY: usize = 8 << 20;
/// Time for a client to send the head of a request or the next request: longer than kube-scheduler keeps a connection open.
const HEADER_TIMEOUT: Duration = Duration::from_secs(150);
/// Answer until all nodes and pods were reported.
const NOT_READY: &str = "not all nodes and pods have been reported yet";

/// The extender behind a lock, with the cluster it acts on.
pub struct SharedExtender {
    extender: Mutex<Extender>,
    cluster: Box<dyn Cluster>,
    /// Delay of an answer that a pod must wait, in milliseconds.
    wait_delay_ms: AtomicU64,
    has_nodes: AtomicBool,
    has_pods: AtomicBool,
}

impl std::fmt::Debug for SharedExtender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedExtender").finish_non_exhaustive()
    }
}

fn now() -> Timestamp {
    Timestamp(dovetail_kubeapi::now_micros())
}

impl SharedExtender {
    /// Returns an extender that is not ready before nodes and pods are reported.
    pub fn new(extender: Extender, cluster: impl Cluster, wait_delay: Duration) -> Self {
        let shared = Self {
            extender: Mutex::new(extender),
            cluster: Box::new(cluster),
            wait_delay_ms: AtomicU64::new(0),
            has_nodes: AtomicBool::new(false),
            has_pods: AtomicBool::new(false),
        };
        shared.set_wait_delay(wait_delay);
        shared
    }

    /// Calls a function with the locked extender and the current time.
    pub fn with<T>(&self, act: impl FnOnce(&mut Extender, Timestamp) -> T) -> T {
        // A request that panicked while holding the lock left a placement that is rolled back, or nothing.
        let mut extender = self.extender.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut extender, now())
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> &dyn Cluster {
        &*self.cluster
    }

    /// Sets the delay of an answer that a pod must wait.
    pub fn set_wait_delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.wait_delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Takes over the list of all nodes.
    pub fn sync_nodes(&self, nodes: &[Node]) {
        self.with(|extender, now| extender.sync_nodes(nodes, now));
        self.has_nodes.store(true, Ordering::Release);
    }

    /// Takes over the list of all pods.
    pub fn sync_pods(&self, pods: &[Pod]) {
        self.with(|extender, now| extender.sync_pods(pods, now));
        self.has_pods.store(true, Ordering::Release);
    }

    /// Whether all nodes and pods have been reported once. Nothing is decided before.
    pub fn is_ready(&self) -> bool {
        self.has_nodes.load(Ordering::Acquire) && self.has_pods.load(Ordering::Acquire)
    }

    /// Binds a pod without kube-scheduler, in the background.
    pub fn bind_in_background(self: &Arc<Self>, command: Arc<BindCommand>) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            match shared.bind(&command).await {
                Ok(()) => {
                    tracing::info!(pod = %command.pod, node = command.node, "bound without kube-scheduler");
                }
                Err(error) => tracing::warn!(%error, "binding without kube-scheduler failed"),
            }
        });
    }

    /// Binds a pod to the node that was decided.
    async fn bind(&self, command: &BindCommand) -> Result<(), ExtenderError> {
        match self.cluster.bind(command).await {
            Ok(()) => {
                self.with(|extender, _| extender.set_bound(command));
                Ok(())
            }
            Err(error) => {
                let what = format!("binding to node {} failed: {error}", command.node);
                Err(ExtenderError::platform(what).about(&command.pod))
            }
        }
    }
}

/// Paths that `/` lists.
const PATHS: [&str; 9] = [
    "/healthz",
    "/v1/extender/bind",
    "/v1/extender/filter",
    "/v1/extender/preempt",
    "/v1/inspect/affinitygroups/",
    "/v1/inspect/clusterstatus",
    "/v1/inspect/clusterstatus/physicalcluster",
    "/v1/inspect/clusterstatus/virtualclusters/",
    "/",
];

/// Returns the routes of HiveD's API.
pub fn router(shared: Arc<SharedExtender>) -> Router {
    let groups = "/v1/inspect/affinitygroups";
    let vcs = "/v1/inspect/clusterstatus/virtualclusters";
    let ready = Router::new()
        .route("/v1/extender/filter", post(filter))
        .route("/v1/extender/preempt", post(preempt))
        .route("/v1/extender/bind", post(bind))
        .route(groups, get(affinity_groups))
        .route(&format!("{groups}/"), get(affinity_groups))
        .route(&format!("{groups}/{{*name}}"), get(affinity_group))
        .route("/v1/inspect/clusterstatus", get(cluster_status))
        .route("/v1/inspect/clusterstatus/", get(cluster_status))
        .route("/v1/inspect/clusterstatus/physicalcluster", get(physical_cluster))
        .route(vcs, get(virtual_clusters))
        .route(&format!("{vcs}/"), get(virtual_clusters))
        .route(&format!("{vcs}/{{*name}}"), get(virtual_cluster))
        .layer(from_fn_with_state(Arc::clone(&shared), only_when_ready));
    Router::new()
        .route("/", get(async || Json(json!({ "paths": PATHS }))))
        .route("/healthz", get(health))
        .merge(ready)
        .fallback(async || error_response(StatusCode::NOT_FOUND, "unknown path"))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(shared)
}

/// Returns an error in HiveD's form, a JSON string.
fn error_response(code: StatusCode, message: impl Into<String>) -> Response {
    (code, Json(message.into())).into_response()
}

impl IntoResponse for ExtenderError {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        error_response(code, self.to_string())
    }
}

async fn only_when_ready(
    State(shared): State<Arc<SharedExtender>>,
    request: Request,
    next: Next,
) -> Response {
    if !shared.is_ready() {
        let message = format!("Code: 503, Message: {NOT_READY}");
        return error_response(StatusCode::SERVICE_UNAVAILABLE, message);
    }
    next.run(request).await
}

async fn health(State(shared): State<Arc<SharedExtender>>) -> Response {
    match shared.is_ready() {
        true => Json("ok").into_response(),
        false => error_response(StatusCode::SERVICE_UNAVAILABLE, NOT_READY),
    }
}

async fn filter(State(shared): State<Arc<SharedExtender>>, body: Bytes) -> Json<FilterResult> {
    let call = FilterCall::read(&body);
    let answer = call.and_then(|call| {
        let answer = shared.with(|extender, now| extender.filter(&call, now));
        tracing::debug!(pod = %call.pod, ?answer, "filter");
        answer
    });
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            tracing::info!(%error, "filter failed");
            return Json(FilterResult {
                error: error.to_string(),
                ..FilterResult::default()
            });
        }
    };
    match &answer {
        FilterAnswer::Bind {
            force: Some(command), ..
        } => {
            shared.bind_in_background(Arc::clone(command));
        }
        FilterAnswer::Wait { .. } => {
            // Unlike HiveD, other requests are answered meanwhile.
            let delay = shared.wait_delay_ms.load(Ordering::Relaxed);
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
        }
        FilterAnswer::Bind { force: None, .. } | FilterAnswer::Preempt { .. } => {}
    }
    Json(answer.result())
}

async fn preempt(State(shared): State<Arc<SharedExtender>>, body: Bytes) -> Response {
    let call = PreemptCall::read(&body);
    let answer = call.and_then(|call| {
        let answer = shared.with(|extender, now| extender.preempt(&call, now));
        tracing::debug!(pod = %call.pod, ?answer, "preempt");
        answer
    });
    match answer {
        Ok(result) => Json(result).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn bind(State(shared): State<Arc<SharedExtender>>, body: Bytes) -> Json<BindResult> {
    let command = BindCall::read(&body).and_then(|call| shared.with(|extender, _| extender.bind(&call)));
    let result = match command {
        Ok(Some(command)) => shared.bind(&command).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    let error = result.err().map(|error| error.to_string()).unwrap_or_default();
    if !error.is_empty() {
        tracing::info!(error, "bind failed");
    }
    Json(BindResult { error })
}

async fn affinity_groups(State(shared): State<Arc<SharedExtender>>) -> Response {
    let items = shared.with(|extender, _| inspect::affinity_groups(extender));
    Json(json!({ "items": items })).into_response()
}

async fn affinity_group(State(shared): State<Arc<SharedExtender>>, Path(name): Path<String>) -> Response {
    match shared.with(|extender, _| inspect::affinity_group(extender, &name)) {
        Some(group) => Json(group).into_response(),
        None => {
            let what = "does not exist since it is not allocated or preempting";
            ExtenderError::user(format!("affinity group {name} {what}")).into_response()
        }
    }
}

/// Answers with the cells. They are copied under the lock, and rendered without it.
async fn render<T: Serialize>(
    shared: &SharedExtender,
    render: impl FnOnce(&CellSnapshot) -> Result<T, ExtenderError> + Send + 'static,
) -> Response {
    let snapshot = shared.with(|extender, _| CellSnapshot::new(extender));
    let rendered = tokio::task::spawn_blocking(move || {
        let status = render(&snapshot)?;
        serde_json::to_vec(&status).map_err(|e| ExtenderError::platform(e.to_string()))
    });
    match rendered.await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(Err(error)) => error.into_response(),
        Err(error) => ExtenderError::platform(error.to_string()).into_response(),
    }
}

async fn cluster_status(State(shared): State<Arc<SharedExtender>>) -> Response {
    render(&shared, |snapshot| Ok(snapshot.status())).await
}

async fn physical_cluster(State(shared): State<Arc<SharedExtender>>) -> Response {
    render(&shared, |snapshot| Ok(snapshot.physical())).await
}

async fn virtual_clusters(State(shared): State<Arc<SharedExtender>>) -> Response {
    render(&shared, |snapshot| Ok(snapshot.virtual_clusters())).await
}

async fn virtual_cluster(State(shared): State<Arc<SharedExtender>>, Path(name): Path<String>) -> Response {
    render(&shared, move |snapshot| {
        let cells = snapshot.virtual_cluster(&name);
        cells.ok_or_else(|| ExtenderError::user(format!("virtual cluster {name} does not exist")))
    })
    .await
}

/// Serves until `until` completes. Requests in progress are then aborted.
///
/// # Errors
/// When the socket fails permanently.
pub async fn serve(listener: TcpListener, router: Router, until: impl Future<Output = ()>) -> io::Result<()> {
    let options = ServerOptions {
        tls: Tls::Off,
        header_timeout: HEADER_TIMEOUT,
    };
    dovetail_httpserver::serve(listener, router, options, until).await
}
