//! `dovetail kube scheduler`: watches objects, schedules gangs and binds pods.

mod objects;
mod session;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dovetail_cluster::{
    ClusterState, Driver, DriverError, Fact, GangRequest, Handle, NodeCommand, PolicyText, Refusal,
    Transaction,
};
use dovetail_kubeapi::{Client, Error};
use tokio::sync::{mpsc, watch};

use crate::annotations;
use crate::crds;
use crate::executor::Events;
use crate::features::ClusterFeatures;
use crate::finished::{SubmittedJob, finished_jobs};
use crate::forecast::StartForecasts;
use crate::gang_history::GangHistory;
use crate::lease::Leadership;
use crate::reconciler::{ClusterTransaction, Reconciler, Settings};
use crate::runtime::KubernetesRuntime;
use session::Session;

/// Settings of the scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerSettings {
    /// Which pods Dovetail schedules, and which resources are GPUs.
    pub reconciler: Settings,
    /// The policy, unless a SchedulingPolicy object sets one.
    pub policy: PolicyText,
    /// Maximum number of concurrent requests that change something.
    pub at_once: usize,
    /// Which Kubernetes events are written.
    pub events: Events,
    /// Time after which a node that is not ready counts as lost.
    pub lost_after: Duration,
    /// Time after which a job is cancelled whose pods are not recreated.
    pub missing_timeout: Duration,
    /// Time between two updates of the explanations on pending pods.
    pub explain_every: Duration,
    /// Time between two forecasts of when jobs start.
    pub forecast_every: Duration,
    /// Namespace of submitted Jobs, to find those that have ended.
    pub finished_in: Option<String>,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            reconciler: Settings::default(),
            policy: PolicyText::default(),
            at_once: 32,
            events: Events::default(),
            lost_after: Duration::from_secs(300),
            missing_timeout: Duration::from_secs(24 * 3600),
            explain_every: Duration::from_secs(3),
            forecast_every: Duration::from_secs(15),
            finished_in: None,
        }
    }
}

/// Why the scheduler ended.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// The policy is not valid.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The API server does not permit to read nodes or pods.
    #[error("{0}")]
    Refused(Error),
    /// The driver of the cluster state has ended.
    #[error("the scheduler is shutting down")]
    Ended,
}

/// The scheduler on Kubernetes.
#[derive(Debug)]
pub struct Scheduler {
    client: Client,
    settings: SchedulerSettings,
    handle: Handle,
    reconciler: Arc<Mutex<Reconciler>>,
    runtime: KubernetesRuntime,
    commands: mpsc::UnboundedReceiver<Vec<NodeCommand>>,
    ready: watch::Sender<bool>,
    forecasts: Arc<StartForecasts>,
}

impl ClusterTransaction for Transaction<'_> {
    fn state(&self) -> &ClusterState {
        Transaction::state(self)
    }

    fn record(&mut self, fact: Fact) {
        Transaction::record(self, fact);
    }

    fn check(&self, request: &GangRequest) -> Result<(), Refusal> {
        Transaction::check_gang(self, request)
    }
}

impl Drop for Scheduler {
    /// Ends the driver, whose runtime has a handle of it.
    fn drop(&mut self) {
        self.handle.shut_down().then(|_| {});
    }
}

fn lock(reconciler: &Mutex<Reconciler>) -> MutexGuard<'_, Reconciler> {
    reconciler.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scheduler {
    /// Checks what does not depend on the cluster.
    ///
    /// # Errors
    /// If the policy is not valid, or no cluster can carry it out.
    pub fn check(settings: &SchedulerSettings) -> Result<(), SchedulerError> {
        let capabilities = ClusterFeatures::ALL.capabilities();
        Driver::without_journal(
            settings.policy.clone(),
            dovetail_cluster::Clock::Events,
            capabilities,
        )?;
        Ok(())
    }

    /// Creates a scheduler that does not watch yet, for a cluster with these features.
    ///
    /// # Errors
    /// If the policy is not valid, or the cluster cannot carry it out.
    pub fn new(
        client: Client,
        settings: SchedulerSettings,
        features: ClusterFeatures,
    ) -> Result<Self, SchedulerError> {
        let clock = dovetail_cluster::Clock::Events;
        let capabilities = features.capabilities();
        let (driver, handle) = Driver::without_journal(settings.policy.clone(), clock, capabilities)?;
        let (sender, commands) = mpsc::unbounded_channel();
        let reconciler = Reconciler::new(settings.reconciler.clone(), features);
        let reconciler = Arc::new(Mutex::new(reconciler));
        let runtime = KubernetesRuntime {
            client: client.clone(),
            features,
            handle: handle.clone(),
            reconciler: Arc::clone(&reconciler),
            commands: sender,
            workloads: None,
        };
        driver.spawn(runtime.clone());
        Ok(Self {
            reconciler,
            client,
            settings,
            handle,
            runtime,
            commands,
            ready: watch::Sender::new(false),
            forecasts: Arc::default(),
        })
    }

    /// Returns a handle of the cluster state.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the reconciler.
    pub fn reconciler(&self) -> Arc<Mutex<Reconciler>> {
        Arc::clone(&self.reconciler)
    }

    /// Returns whether all objects were listed once.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Returns the runtime, which reads logs and creates workloads.
    pub fn runtime(&self) -> KubernetesRuntime {
        self.runtime.clone()
    }

    /// Schedules as long as this replica leads.
    ///
    /// # Errors
    /// If the API server does not permit to read nodes or pods.
    pub async fn run(self, leadership: Leadership) -> Result<(), SchedulerError> {
        self.load_finished_jobs().await;
        self.load_histories().await;
        Session::new(self, leadership).run().await
    }

    /// Loads the jobs that have ended and whose objects still exist. Without them the scheduler works, and knows less.
    async fn load_finished_jobs(&self) {
        let Some(namespace) = &self.settings.finished_in else {
            return;
        };
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
        let selector = format!("labelSelector={}", annotations::NUMBER);
        match self.client.list::<SubmittedJob>(&path, &selector).await {
            Ok(jobs) => {
                let gpu_resources = &self.settings.reconciler.gpu_resources;
                lock(&self.reconciler).set_finished(finished_jobs(&jobs.items, gpu_resources));
            }
            Err(error) => tracing::warn!("cannot list finished jobs: {error}"),
        }
    }

    /// Loads what earlier leaders wrote about gangs that they stopped.
    async fn load_histories(&self) {
        let path = format!("{}/ganghistories", crds::API);
        match self.client.list::<GangHistory>(&path, "").await {
            Ok(histories) => lock(&self.reconciler).set_histories(histories.items),
            Err(error) => {
                tracing::warn!("cannot list histories of gangs, which start without their service: {error}")
            }
        }
    }

    /// Starts a task that updates the forecasts on a thread of its own.
    fn spawn_forecasts(&self) -> tokio::task::JoinHandle<()> {
        let (forecasts, handle) = (Arc::clone(&self.forecasts), self.handle.clone());
        let every = self.settings.forecast_every;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let (forecasts, handle) = (Arc::clone(&forecasts), handle.clone());
                let update = tokio::task::spawn_blocking(move || forecasts.update(&handle));
                if let Err(error) = update.await {
                    tracing::warn!("forecast failed: {error}");
                }
            }
        })
    }
}
