//! The page and its API over a scheduler on Kubernetes: jobs that are sent become Jobs, logs come from the API server.

mod logs;
mod makes;
mod people;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use dovetail_control::Handle;
use dovetail_kube::{Mirror, Scheduler};
use dovetail_kubeapi::Client;
use dovetail_web::{ApiConfig, Audit, Nodes, Tls};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::failure::{Blame, Failure};
use crate::show;

/// How the page works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageSettings {
    /// Where it listens.
    pub(super) listen: SocketAddr,
    /// The namespace of jobs that are sent to it.
    pub(super) namespace: String,
    /// The namespace of the Secret with its users.
    pub(super) home: String,
    /// The image of whatever names none.
    pub(super) image: Option<String>,
    /// Who looks after pods.
    pub(super) scheduler_name: String,
    /// The resource that is a GPU.
    pub(super) gpu_resource: Option<String>,
}

/// What the page looks at.
pub(super) struct Page {
    settings: PageSettings,
    listener: TcpListener,
    client: Client,
    handle: Handle,
    mirror: Arc<Mutex<Mirror>>,
    noticed: watch::Receiver<u64>,
    ready: watch::Receiver<bool>,
}

impl Page {
    /// Takes the address; nothing is answered yet.
    pub(super) async fn open(
        settings: PageSettings,
        client: &Client,
        scheduler: &Scheduler,
    ) -> Result<Self, Failure> {
        let listener = TcpListener::bind(settings.listen)
            .await
            .with_context(|| {
                format!(
                    "--page {}: cannot listen (port 0 picks a free one)",
                    settings.listen
                )
            })
            .or_work()?;
        Ok(Self {
            listener,
            client: client.clone(),
            handle: scheduler.handle(),
            mirror: scheduler.mirror(),
            noticed: scheduler.noticed(),
            ready: scheduler.ready(),
            settings,
        })
    }

    /// Answers for ever, once everything is known: before that the book is empty.
    pub(super) async fn serve(mut self) -> Result<(), Failure> {
        let users = people::open(&self.client, &self.settings.home).await?;
        if self.ready.wait_for(|ready| *ready).await.is_err() {
            return Ok(());
        }
        let makes = makes::PodMaker {
            client: self.client.clone(),
            handle: self.handle.clone(),
            settings: self.settings.clone(),
        };
        let nodes = logs::OverPods {
            client: self.client,
            handle: self.handle.clone(),
            mirror: self.mirror,
            noticed: self.noticed,
        };
        let api = ApiConfig {
            makes: Some(Arc::new(makes)),
            ..ApiConfig::default()
        };
        let nodes: Arc<dyn Nodes> = Arc::new(nodes);
        let router = dovetail_web::router(
            self.handle,
            nodes,
            Arc::new(users),
            Arc::new(Audit::in_memory()),
            api,
        );
        show::print(format!("Page: http://{}/", self.listener.local_addr().or_work()?))?;
        dovetail_web::serve(self.listener, Tls::Off, router, std::future::pending())
            .await
            .or_work()
    }
}
