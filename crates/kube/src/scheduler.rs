//! `dovetail kube scheduler`: watches, decides, binds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_cluster::{
    AttemptId, Backend, ClusterState, Driver, Fact, Handle, JobId, JobRequest, PolicyText, Refusal,
    RuntimeCommand, Transaction,
};
use dovetail_kubeapi::{Change, Client, Error, Node, Patch, now_micros};
use dovetail_model::NodeId;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::action::Action;
use crate::carry_out::{Answer, Events, Hands};
use crate::foreseen::Foreseen;
use crate::lease::Leadership;
use crate::objects::{Objects, are_listed};
use crate::past::{SentJob, past_jobs};
use crate::reconciler::{Ledger, Reconciler, Settings};
use crate::resources;
use crate::watching::{Heard, Watching};
use crate::words;

/// How the scheduler works.
#[derive(Debug, Clone)]
pub struct SchedulerSettings {
    /// Which pods are ours, and what GPUs are called.
    pub reconciler: Settings,
    /// The policy, until a `SchedulingPolicy` says otherwise.
    pub policy: PolicyText,
    /// Requests that change something, at once.
    pub at_once: usize,
    /// Which events are written.
    pub events: Events,
    /// A node that is not ready for so long is lost.
    pub lost_after: Duration,
    /// How often pods that wait are told why.
    pub explain_every: Duration,
    /// How often it is looked when jobs will start.
    pub foresee_every: Duration,
    /// The namespace of Jobs that were sent, for those that are over.
    pub past_in: Option<String>,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            reconciler: Settings::default(),
            policy: PolicyText::default(),
            at_once: 32,
            events: Events::default(),
            lost_after: Duration::from_secs(300),
            explain_every: Duration::from_secs(3),
            foresee_every: Duration::from_secs(15),
            past_in: None,
        }
    }
}

/// Why a scheduler ends.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// There is no such policy.
    #[error("policy: {0}")]
    Policy(String),
    /// The API server refuses something without which nothing works.
    #[error("{0}")]
    Refused(Error),
    /// The driver has ended.
    #[error("the scheduler has ended")]
    Ended,
}

/// The scheduler on Kubernetes.
#[derive(Debug)]
pub struct Scheduler {
    client: Client,
    pub(crate) settings: SchedulerSettings,
    pub(crate) handle: Handle,
    reconciler: Arc<Mutex<Reconciler>>,
    orders: mpsc::UnboundedReceiver<Vec<(NodeId, RuntimeCommand)>>,
    ready: watch::Sender<bool>,
    last_event: watch::Receiver<u64>,
    foreseen: Arc<Foreseen>,
}

/// Orders go back to the loop, which has the mirror.
#[derive(Debug)]
struct ToLoop {
    orders: mpsc::UnboundedSender<Vec<(NodeId, RuntimeCommand)>>,
    last_event: watch::Sender<u64>,
}

impl Backend for ToLoop {
    fn dispatch(&mut self, orders: Vec<(NodeId, RuntimeCommand)>) {
        let _ = self.orders.send(orders);
    }

    fn events_recorded(&mut self, last: u64) {
        self.last_event.send_replace(last);
    }
}

impl Ledger for Transaction<'_> {
    fn state(&self) -> &ClusterState {
        Transaction::state(self)
    }

    fn record(&mut self, fact: Fact) {
        Transaction::record(self, fact);
    }

    fn submit(&mut self, user: &str, request: JobRequest) -> Result<JobId, Refusal> {
        Transaction::submit(self, user, request, None)
    }
}

fn locked(reconciler: &Mutex<Reconciler>) -> MutexGuard<'_, Reconciler> {
    reconciler.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scheduler {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// When there is no such policy.
    pub fn new(client: Client, settings: SchedulerSettings) -> Result<Self, SchedulerError> {
        let (driver, handle) =
            Driver::without_journal(settings.policy.clone(), dovetail_cluster::Clock::Events)
                .map_err(|e| SchedulerError::Policy(e.to_string()))?;
        let (to_loop, orders) = mpsc::unbounded_channel();
        let (sender, last_event) = watch::channel(0);
        driver.spawn(ToLoop {
            orders: to_loop,
            last_event: sender,
        });
        Ok(Self {
            reconciler: Arc::new(Mutex::new(Reconciler::new(settings.reconciler.clone()))),
            client,
            settings,
            handle,
            orders,
            ready: watch::Sender::new(false),
            last_event,
            foreseen: Arc::default(),
        })
    }

    /// A way to the book: for pages and people.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The cluster as it was last seen.
    pub fn reconciler(&self) -> Arc<Mutex<Reconciler>> {
        Arc::clone(&self.reconciler)
    }

    /// Whether everything was listed once.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// The number of the last notice in the book.
    pub fn last_event(&self) -> watch::Receiver<u64> {
        self.last_event.clone()
    }

    /// Works as long as we lead.
    ///
    /// # Errors
    /// When the API server refuses what is needed.
    pub async fn run(mut self, leadership: Leadership) -> Result<(), SchedulerError> {
        let (answered, mut answers) = mpsc::unbounded_channel();
        let hands = Hands::new(
            self.client.clone(),
            leadership,
            self.settings.at_once,
            self.settings.events,
            &self.settings.reconciler.scheduler_name,
            answered,
        );
        self.learn_the_past().await;
        let (tell, mut heard) = mpsc::channel(64);
        let mut watching = Watching::over(&self.client, &tell);
        watching.also(self.keep_foreseeing());
        drop(tell);
        let mut objects = Objects::default();
        let mut explain = tokio::time::interval(self.settings.explain_every);
        explain.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut unready: BTreeMap<String, Instant> = BTreeMap::new();
        // Pods are looked at when nodes and promises are known.
        let mut early: Vec<Heard> = Vec::new();
        let result = loop {
            tokio::select! {
                Some(said) = heard.recv() => {
                    if let Err(error) = objects.complains(&said) {
                        break Err(SchedulerError::Refused(error));
                    }
                    if matches!(said, Heard::Pods(_)) && !objects.are_known() {
                        early.push(said);
                        continue;
                    }
                    self.hear(said, &mut objects, &mut unready, &hands).await?;
                    if objects.are_known() {
                        for said in std::mem::take(&mut early) {
                            self.hear(said, &mut objects, &mut unready, &hands).await?;
                        }
                    }
                }
                Some(orders) = self.orders.recv() => {
                    let mut all = orders;
                    while let Ok(more) = self.orders.try_recv() {
                        all.extend(more);
                    }
                    self.follow(all, &hands).await?;
                }
                Some(answer) = answers.recv() => self.take(answer, &hands).await?,
                _ = explain.tick() => {
                    self.look_for_lost(&mut unready, &hands).await?;
                    self.explain(&hands, &objects).await?;
                }
            }
        };
        watching.abort_all();
        drop(watching);
        result
    }

    /// Jobs that are over, as long as their objects are there; without them we know less, and go on.
    async fn learn_the_past(&self) {
        let Some(namespace) = &self.settings.past_in else {
            return;
        };
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
        let selector = format!("labelSelector={}", words::NUMBER);
        match self.client.list::<SentJob>(&path, &selector).await {
            Ok(jobs) => {
                let gpus = &self.settings.reconciler.gpu_resources;
                locked(&self.reconciler).note_past(past_jobs(&jobs.items, gpus));
            }
            Err(error) => tracing::warn!("jobs that are over are not known: {error}"),
        }
    }

    /// Looks ahead from time to time, on a thread beside all others.
    fn keep_foreseeing(&self) -> tokio::task::JoinHandle<()> {
        let (foreseen, handle) = (Arc::clone(&self.foreseen), self.handle.clone());
        let every = self.settings.foresee_every;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let (foreseen, handle) = (Arc::clone(&foreseen), handle.clone());
                let look = tokio::task::spawn_blocking(move || foreseen.look_ahead(&handle));
                if let Err(error) = look.await {
                    tracing::warn!("looking ahead: {error}");
                }
            }
        })
    }

    /// Does something with the mirror at the desk, and begins what follows from it.
    pub(crate) async fn in_transaction<T: Send + 'static>(
        &self,
        hands: &Hands,
        work: impl FnOnce(&mut Reconciler, &mut Transaction<'_>) -> T + Send + 'static,
    ) -> Result<T, SchedulerError> {
        let reconciler = Arc::clone(&self.reconciler);
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.handle
            .in_transaction(move |desk| {
                let mut reconciler = locked(&reconciler);
                let done = work(&mut reconciler, desk);
                (done, reconciler.take_actions())
            })
            .then(move |done| drop(answer.send(done)));
        let (done, actions) = answered
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or(SchedulerError::Ended)?;
        hands.carry_out(actions);
        Ok(done)
    }

    async fn hear(
        &self,
        said: Heard,
        objects: &mut Objects,
        unready: &mut BTreeMap<String, Instant>,
        hands: &Hands,
    ) -> Result<(), SchedulerError> {
        match said {
            Heard::Nodes(change) => {
                note_unready(&change, unready);
                objects.nodes |= matches!(change, Change::All(_));
                self.in_transaction(hands, move |reconciler, desk| match change {
                    Change::All(nodes) => reconciler.all_nodes(&nodes, desk),
                    Change::Put(node) => reconciler.node_put(&node, desk),
                    Change::Gone(node) => reconciler.node_gone(&node.metadata.name, desk),
                    Change::Trouble(_) => {}
                })
                .await
            }
            Heard::Pods(changes) => {
                let all = changes.iter().any(|c| matches!(c, Change::All(_)));
                self.in_transaction(hands, move |reconciler, desk| {
                    for change in changes {
                        match change {
                            Change::All(pods) => reconciler.all_pods(&pods, desk),
                            Change::Put(pod) => reconciler.pod_put(&pod, desk),
                            Change::Gone(pod) => reconciler.pod_gone(&pod, desk),
                            Change::Trouble(_) => {}
                        }
                    }
                })
                .await?;
                if all {
                    self.ready.send_replace(true);
                }
                Ok(())
            }
            Heard::Slices(change) => {
                objects.slices |= are_listed(&change);
                self.in_transaction(hands, move |reconciler, desk| match change {
                    Change::All(slices) => reconciler.all_slices(slices, desk),
                    Change::Put(slice) => reconciler.slice_put(slice, desk),
                    Change::Gone(slice) => reconciler.slice_gone(&slice.metadata.name, desk),
                    Change::Trouble(_) => {}
                })
                .await
            }
            Heard::Claims(change) => {
                objects.claims |= are_listed(&change);
                self.in_transaction(hands, move |reconciler, desk| match change {
                    Change::All(claims) => reconciler.all_claims(claims, desk),
                    Change::Put(claim) => reconciler.claim_put(claim, desk),
                    Change::Gone(claim) => reconciler.claim_gone(&claim, desk),
                    Change::Trouble(_) => {}
                })
                .await
            }
            Heard::VirtualClusters(change) => {
                objects.clusters.hear(change);
                self.promise(objects, hands).await
            }
            Heard::Topologies(change) => {
                objects.topologies.hear(change);
                self.promise(objects, hands).await
            }
            Heard::Policies(change) => {
                objects.policies.hear(change);
                self.set_policy(objects, hands).await
            }
        }
    }

    /// Orders of the book become bindings and evictions.
    async fn follow(
        &self,
        orders: Vec<(NodeId, RuntimeCommand)>,
        hands: &Hands,
    ) -> Result<(), SchedulerError> {
        let mut starts: BTreeMap<JobId, AttemptId> = BTreeMap::new();
        let mut stops: BTreeMap<JobId, AttemptId> = BTreeMap::new();
        for (_, order) in orders {
            match order {
                RuntimeCommand::Start(task) => drop(starts.insert(task.job, task.attempt)),
                RuntimeCommand::Stop {
                    job,
                    attempt: attempt_id,
                    ..
                } => drop(stops.insert(job, attempt_id)),
                // CPU and memory of pods stay as they were asked for.
                RuntimeCommand::Resize { .. } => {}
            }
        }
        self.in_transaction(hands, move |reconciler, desk| {
            for (job, attempt_id) in starts {
                reconciler.start(job, attempt_id, desk);
            }
            for (job, attempt_id) in stops {
                reconciler.stop(job, attempt_id, desk);
            }
        })
        .await
    }

    async fn take(&self, answer: Answer, hands: &Hands) -> Result<(), SchedulerError> {
        self.in_transaction(hands, move |reconciler, desk| match answer {
            Answer::BindFailed(uid) => reconciler.bind_failed(&uid, desk),
            Answer::Size(gang, size) => reconciler.size_is(&gang, size, desk),
        })
        .await
    }

    async fn look_for_lost(
        &self,
        unready: &mut BTreeMap<String, Instant>,
        hands: &Hands,
    ) -> Result<(), SchedulerError> {
        let lost: Vec<String> = unready
            .iter()
            .filter(|(_, since)| since.elapsed() >= self.settings.lost_after)
            .map(|(name, _)| name.clone())
            .collect();
        for name in lost {
            unready.remove(&name);
            self.in_transaction(hands, move |reconciler, desk| reconciler.node_lost(&name, desk))
                .await?;
        }
        Ok(())
    }

    /// Pods that wait are told why; objects of ours how they stand.
    async fn explain(&self, hands: &Hands, objects: &Objects) -> Result<(), SchedulerError> {
        let since = now_micros() - 2_000_000;
        let etas = self.foreseen.words();
        let actions: Vec<Action> = self
            .in_transaction(hands, move |reconciler, desk| {
                let state = Transaction::state(desk);
                let mut actions = reconciler.explanations(state, since, &etas);
                actions.extend(reconciler.on_groups(state, since, &etas));
                actions
            })
            .await?;
        hands.carry_out(actions);
        self.in_transaction(hands, |reconciler, desk| reconciler.retry_refused(desk))
            .await?;
        for cluster in objects.clusters.known.values() {
            let use_of = self.handle.read(|state| use_of(state, &cluster.metadata.name));
            let same = |key: &str| cluster.status.get(key) == use_of.get(key);
            if ["used", "waiting", "running"].iter().all(|key| same(key)) {
                continue;
            }
            let path = format!(
                "{}/virtualclusters/{}/status",
                resources::API,
                cluster.metadata.name
            );
            self.patch_status(&path, use_of).await;
        }
        Ok(())
    }

    pub(crate) async fn patch_status(&self, path: &str, status: Value) {
        let patch = json!({"status": status});
        if let Err(error) = self.client.patch::<Value>(path, Patch::Merge, &patch).await {
            tracing::warn!("{error}");
        }
    }
}

/// What a virtual cluster uses.
fn use_of(state: &ClusterState, name: &str) -> Value {
    let (mut used, mut running, mut waiting) = (0, 0, 0);
    for job in state.unfinished_jobs().filter(|job| job.request.tenant == name) {
        match job.state.holds_gpus() {
            true => {
                running += 1;
                used += job.attempt().map_or(0, |a| a.allocation.gpus());
            }
            false => waiting += 1,
        }
    }
    json!({"used": used, "running": running, "waiting": waiting})
}

fn note_unready(change: &Change<Node>, unready: &mut BTreeMap<String, Instant>) {
    let mut note = |node: &Node| {
        let ready = node
            .status
            .conditions
            .iter()
            .any(|c| c.kind == "Ready" && c.status == "True");
        let name = &node.metadata.name;
        match ready {
            true => drop(unready.remove(name)),
            false => drop(unready.entry(name.clone()).or_insert_with(Instant::now)),
        }
    };
    match change {
        Change::All(nodes) => nodes.iter().for_each(note),
        Change::Put(node) => note(node),
        Change::Gone(node) => drop(unready.remove(&node.metadata.name)),
        Change::Trouble(_) => {}
    }
}
