//! HTTP in front of the extender. The lock is held while something is decided, and never while anybody waits.

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
use dovetail_kubeapi::{Node, Pod};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::extender::{Extender, Filtered};
use crate::inspect::Picture;
use crate::pods::{BindOrder, Moment};
use crate::wire::{BindCall, BindResult, Fault, FilterCall, FilterResult, PreemptCall};

/// The most a request may bring, in bytes: a pod with all its annotations, and the names of ten thousand nodes.
const LARGEST_BODY: usize = 8 << 20;
/// So long a client may take to send the head of a request, or the next one: longer than kube-scheduler keeps a connection.
const PATIENCE: Duration = Duration::from_secs(150);

/// The extender with what it needs of the world.
pub struct Shell {
    extender: Mutex<Extender>,
    cluster: Box<dyn Cluster>,
    /// How long kube-scheduler is kept waiting after "wait", in milliseconds.
    block_ms: AtomicU64,
    nodes_heard: AtomicBool,
    pods_heard: AtomicBool,
}

impl std::fmt::Debug for Shell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shell").finish_non_exhaustive()
    }
}

/// The time.
fn now() -> Moment {
    Moment(dovetail_kubeapi::now_micros())
}

impl Shell {
    /// Nothing was heard of yet.
    pub fn new(extender: Extender, cluster: impl Cluster, block: Duration) -> Self {
        let shell = Self {
            extender: Mutex::new(extender),
            cluster: Box::new(cluster),
            block_ms: AtomicU64::new(0),
            nodes_heard: AtomicBool::new(false),
            pods_heard: AtomicBool::new(false),
        };
        shell.set_block(block);
        shell
    }

    /// Does something with the extender.
    pub fn with<T>(&self, act: impl FnOnce(&mut Extender, Moment) -> T) -> T {
        // Whoever panicked while holding it was a request: what it had not finished is undone or harmless.
        let mut extender = self.extender.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut extender, now())
    }

    /// Kubernetes.
    pub fn cluster(&self) -> &dyn Cluster {
        &*self.cluster
    }

    /// How long kube-scheduler is kept waiting after it was told that a pod has to wait.
    pub fn set_block(&self, block: Duration) {
        let ms = u64::try_from(block.as_millis()).unwrap_or(u64::MAX);
        self.block_ms.store(ms, Ordering::Relaxed);
    }

    /// All nodes there are.
    pub fn nodes_all(&self, nodes: &[Node]) {
        self.with(|extender, now| extender.nodes_all(nodes, now));
        self.nodes_heard.store(true, Ordering::Release);
    }

    /// All pods there are.
    pub fn pods_all(&self, pods: &[Pod]) {
        self.with(|extender, now| extender.pods_all(pods, now));
        self.pods_heard.store(true, Ordering::Release);
    }

    /// Whether all nodes and pods have been heard of once: before that nothing is decided.
    pub fn is_ready(&self) -> bool {
        self.nodes_heard.load(Ordering::Acquire) && self.pods_heard.load(Ordering::Acquire)
    }

    /// Binds a pod without kube-scheduler.
    pub fn force(self: &Arc<Self>, order: Arc<BindOrder>) {
        let shell = Arc::clone(self);
        tokio::spawn(async move {
            match shell.carry_out(&order).await {
                Ok(()) => tracing::info!(pod = %order.pod, node = order.node, "bound without kube-scheduler"),
                Err(fault) => tracing::warn!(%fault, "not bound"),
            }
        });
    }

    /// Binds a pod as it was decided.
    async fn carry_out(&self, order: &BindOrder) -> Result<(), Fault> {
        match self.cluster.bind(order).await {
            Ok(()) => {
                self.with(|extender, _| extender.bound(order));
                Ok(())
            }
            Err(error) => {
                Err(Fault::platform(format!("cannot be bound to {}: {error}", order.node)).about(&order.pod))
            }
        }
    }
}

/// Paths that are told at the root.
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

/// All there is to be asked.
pub fn router(shell: Arc<Shell>) -> Router {
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
        .layer(from_fn_with_state(Arc::clone(&shell), only_when_ready));
    Router::new()
        .route("/", get(async || Json(json!({ "paths": PATHS }))))
        .route("/healthz", get(health))
        .merge(ready)
        .fallback(async || refusal(StatusCode::NOT_FOUND, "there is no such path"))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(shell)
}

/// An error as HiveD says it: a JSON string.
fn refusal(code: StatusCode, message: impl Into<String>) -> Response {
    (code, Json(message.into())).into_response()
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        refusal(code, self.to_string())
    }
}

async fn only_when_ready(State(shell): State<Arc<Shell>>, request: Request, next: Next) -> Response {
    if !shell.is_ready() {
        let why = "Code: 503, Message: not all nodes and pods have been heard of yet";
        return refusal(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    next.run(request).await
}

async fn health(State(shell): State<Arc<Shell>>) -> Response {
    match shell.is_ready() {
        true => Json("ok").into_response(),
        false => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "not all nodes and pods have been heard of yet",
        ),
    }
}

async fn filter(State(shell): State<Arc<Shell>>, body: Bytes) -> Json<FilterResult> {
    let call = FilterCall::read(&body);
    let answer = call.and_then(|call| {
        let answer = shell.with(|extender, now| extender.filter(&call, now));
        tracing::debug!(pod = %call.pod, ?answer, "filter");
        answer
    });
    let filtered = match answer {
        Ok(filtered) => filtered,
        Err(fault) => {
            tracing::info!(%fault, "filter");
            return Json(FilterResult {
                error: fault.to_string(),
                ..FilterResult::default()
            });
        }
    };
    match &filtered {
        Filtered::Bind {
            force: Some(order), ..
        } => {
            shell.force(Arc::clone(order));
        }
        Filtered::Wait { .. } => {
            // Other requests are answered meanwhile.
            let block = shell.block_ms.load(Ordering::Relaxed);
            if block > 0 {
                tokio::time::sleep(Duration::from_millis(block)).await;
            }
        }
        Filtered::Bind { force: None, .. } | Filtered::Preempt { .. } => {}
    }
    Json(filtered.result())
}

async fn preempt(State(shell): State<Arc<Shell>>, body: Bytes) -> Response {
    let call = PreemptCall::read(&body);
    let answer = call.and_then(|call| {
        let answer = shell.with(|extender, now| extender.preempt(&call, now));
        tracing::debug!(pod = %call.pod, ?answer, "preempt");
        answer
    });
    match answer {
        Ok(result) => Json(result).into_response(),
        Err(fault) => fault.into_response(),
    }
}

async fn bind(State(shell): State<Arc<Shell>>, body: Bytes) -> Json<BindResult> {
    let order = BindCall::read(&body).and_then(|call| shell.with(|extender, _| extender.bind(&call)));
    let done = match order {
        Ok(Some(order)) => shell.carry_out(&order).await,
        Ok(None) => Ok(()),
        Err(fault) => Err(fault),
    };
    let error = done.err().map(|fault| fault.to_string()).unwrap_or_default();
    if !error.is_empty() {
        tracing::info!(error, "bind");
    }
    Json(BindResult { error })
}

async fn affinity_groups(State(shell): State<Arc<Shell>>) -> Response {
    let items = shell.with(|extender, _| extender.affinity_groups());
    Json(json!({ "items": items })).into_response()
}

async fn affinity_group(State(shell): State<Arc<Shell>>, Path(name): Path<String>) -> Response {
    match shell.with(|extender, _| extender.affinity_group(&name)) {
        Some(group) => Json(group).into_response(),
        None => {
            let what = "does not exist since it is not allocated or preempting";
            Fault::user(format!("affinity group {name} {what}")).into_response()
        }
    }
}

/// Shows the cells; the picture is taken under the lock, and drawn without it.
async fn show<T: Serialize>(
    shell: &Shell,
    draw: impl FnOnce(&Picture) -> Result<T, Fault> + Send + 'static,
) -> Response {
    let picture = shell.with(|extender, _| extender.picture());
    let drawn = tokio::task::spawn_blocking(move || {
        let drawn = draw(&picture)?;
        serde_json::to_vec(&drawn).map_err(|e| Fault::platform(e.to_string()))
    });
    match drawn.await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(Err(fault)) => fault.into_response(),
        Err(error) => Fault::platform(error.to_string()).into_response(),
    }
}

async fn cluster_status(State(shell): State<Arc<Shell>>) -> Response {
    show(&shell, |picture| Ok(picture.status())).await
}

async fn physical_cluster(State(shell): State<Arc<Shell>>) -> Response {
    show(&shell, |picture| Ok(picture.physical())).await
}

async fn virtual_clusters(State(shell): State<Arc<Shell>>) -> Response {
    show(&shell, |picture| Ok(picture.virtual_clusters())).await
}

async fn virtual_cluster(State(shell): State<Arc<Shell>>, Path(name): Path<String>) -> Response {
    show(&shell, move |picture| {
        let cells = picture.virtual_cluster(&name);
        cells.ok_or_else(|| Fault::user(format!("virtual cluster {name} does not exist")))
    })
    .await
}

/// Serves until the signal comes; requests that are under way then are broken off.
///
/// # Errors
/// When the socket fails for good.
pub async fn serve(listener: TcpListener, router: Router, until: impl Future<Output = ()>) -> io::Result<()> {
    let (ended, end) = watch::channel(());
    let mut until = std::pin::pin!(until);
    loop {
        let accepted = tokio::select! {
            () = &mut until => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, mut end) = (router.clone(), end.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = talk(stream, router) => {}
                        _ = end.changed() => {}
                    }
                });
            }
            // Too many open files, or a client that is gone already: others may still come.
            Err(error) => {
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(ended);
    Ok(())
}

async fn talk(stream: TcpStream, router: Router) {
    let _ = stream.set_nodelay(true);
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}
