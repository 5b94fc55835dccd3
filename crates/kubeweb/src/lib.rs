//! The web page and its HTTP API over a scheduler on Kubernetes.
//!
//! Jobs that are submitted become Jobs of Kubernetes, logs are read from the API server, and users are kept in a
//! Secret.

mod error;
mod users;

use std::net::SocketAddr;
use std::sync::Arc;

use dovetail_cluster::Handle;
use dovetail_kube::{KubernetesRuntime, Scheduler, WorkloadSettings};
use dovetail_kubeapi::Client;
use dovetail_web::{ApiConfig, Audit, Tls};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use error::PageError;

/// Settings of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Namespace of the Secret with the users.
    pub home: String,
    /// Jobs that are created for submitted jobs.
    pub workloads: WorkloadSettings,
}

/// The page, listening but not yet answering.
pub struct Page {
    home: String,
    listener: TcpListener,
    client: Client,
    handle: Handle,
    runtime: KubernetesRuntime,
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
            runtime: scheduler.runtime().with_workloads(settings.workloads),
            ready: scheduler.ready(),
            home: settings.home,
        })
    }

    /// Answers requests until the future is dropped. Before nodes and pods have been listed the cluster state is
    /// empty, so it waits for that first, then calls `announce` with its address.
    ///
    /// # Errors
    /// Fails when the users cannot be read, or the socket fails.
    pub async fn serve(mut self, announce: impl FnOnce(SocketAddr)) -> Result<(), PageError> {
        let users = users::open(&self.client, &self.home).await?;
        if self.ready.wait_for(|ready| *ready).await.is_err() {
            return Ok(());
        }
        let audit = Arc::new(Audit::in_memory()?);
        let router = dovetail_web::router(
            self.handle,
            Arc::new(self.runtime),
            Arc::new(users),
            audit,
            ApiConfig::default(),
        );
        announce(self.listener.local_addr()?);
        dovetail_web::serve(self.listener, Tls::Off, router, std::future::pending()).await?;
        Ok(())
    }
}
