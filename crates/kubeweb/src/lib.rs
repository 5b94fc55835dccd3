//! The web page and its HTTP API over a scheduler on Kubernetes.
//!
//! Jobs that are submitted become Jobs of Kubernetes, logs are read from the API server, and users are kept in a
//! Secret.

mod error;
mod jobs;
mod logs;
mod users;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use dovetail_cluster::Handle;
use dovetail_kube::{Reconciler, Scheduler};
use dovetail_kubeapi::Client;
use dovetail_web::{ApiConfig, Audit, Nodes, Tls};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use error::PageError;

/// Settings of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Namespace of the Jobs that are created for submitted jobs.
    pub namespace: String,
    /// Namespace of the Secret with the users.
    pub home: String,
    /// Image of jobs that name none.
    pub image: Option<String>,
    /// `schedulerName` of the pods.
    pub scheduler_name: String,
    /// Name of the GPU resource.
    pub gpu_resource: Option<String>,
}

/// The page, listening but not yet answering.
pub struct Page {
    settings: PageSettings,
    listener: TcpListener,
    client: Client,
    handle: Handle,
    reconciler: Arc<Mutex<Reconciler>>,
    last_event: watch::Receiver<u64>,
    ready: watch::Receiver<bool>,
}

impl Page {
    /// Binds the address. Requests are answered once [`Page::serve`] runs.
    ///
    /// # Errors
    /// Fails when the address cannot be bound.
    pub async fn open(
        settings: PageSettings,
        client: &Client,
        scheduler: &Scheduler,
    ) -> Result<Self, PageError> {
        let address = settings.listen;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| PageError::Listen { address, source })?;
        Ok(Self {
            listener,
            client: client.clone(),
            handle: scheduler.handle(),
            reconciler: scheduler.reconciler(),
            last_event: scheduler.last_event(),
            ready: scheduler.ready(),
            settings,
        })
    }

    /// Answers requests until the future is dropped. Before nodes and pods have been listed the cluster state is
    /// empty, so it waits for that first, then calls `announce` with its address.
    ///
    /// # Errors
    /// Fails when the users cannot be read, or the socket fails.
    pub async fn serve(mut self, announce: impl FnOnce(SocketAddr)) -> Result<(), PageError> {
        let users = users::open(&self.client, &self.settings.home).await?;
        if self.ready.wait_for(|ready| *ready).await.is_err() {
            return Ok(());
        }
        let jobs = jobs::KubernetesJobs {
            client: self.client.clone(),
            handle: self.handle.clone(),
            settings: self.settings,
        };
        let nodes = logs::KubernetesNodes {
            client: self.client,
            handle: self.handle.clone(),
            reconciler: self.reconciler,
            last_event: self.last_event,
        };
        let api = ApiConfig {
            workloads: Some(Arc::new(jobs)),
            ..ApiConfig::default()
        };
        let nodes: Arc<dyn Nodes> = Arc::new(nodes);
        let audit = Arc::new(Audit::in_memory());
        let router = dovetail_web::router(self.handle, nodes, Arc::new(users), audit, api);
        announce(self.listener.local_addr()?);
        dovetail_web::serve(self.listener, Tls::Off, router, std::future::pending()).await?;
        Ok(())
    }
}
