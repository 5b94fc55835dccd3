//! `dovetail kube scheduler`: watches, decides, binds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_control::{
    Backend, Book, Desk, Driver, Fact, Handle, JobNo, JobRequest, Launch, Order, PolicyText, Refusal,
};
use dovetail_kubeapi::{Change, Client, Error, Node, Patch, now_micros};
use dovetail_model::NodeId;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::action::Action;
use crate::carry_out::{Answer, Events, Hands};
use crate::foreseen::Foreseen;
use crate::lease::Leadership;
use crate::mirror::{Ledger, Mirror, Settings};
use crate::objects::{Objects, are_listed};
use crate::past::{SentJob, past_jobs};
use crate::resources;
use crate::watching::{Heard, Watching};
use crate::words;

/// How the scheduler works.
#[derive(Debug, Clone)]
pub struct SchedulerSettings {
    /// Which pods are ours, and what GPUs are called.
    pub mirror: Settings,
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
            mirror: Settings::default(),
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
    mirror: Arc<Mutex<Mirror>>,
    orders: mpsc::UnboundedReceiver<Vec<(NodeId, Order)>>,
    ready: watch::Sender<bool>,
    noticed: watch::Receiver<u64>,
    foreseen: Arc<Foreseen>,
}

/// Orders go back to the loop, which has the mirror.
#[derive(Debug)]
struct ToLoop {
    orders: mpsc::UnboundedSender<Vec<(NodeId, Order)>>,
    noticed: watch::Sender<u64>,
}

impl Backend for ToLoop {
    fn orders(&mut self, orders: Vec<(NodeId, Order)>) {
        let _ = self.orders.send(orders);
    }

    fn noticed(&mut self, last: u64) {
        self.noticed.send_replace(last);
    }
}

impl Ledger for Desk<'_> {
    fn book(&self) -> &Book {
        Desk::book(self)
    }

    fn record(&mut self, fact: Fact) {
        Desk::record(self, fact);
    }

    fn submit(&mut self, user: &str, request: JobRequest) -> Result<JobNo, Refusal> {
        Desk::submit(self, user, request, None)
    }
}

fn locked(mirror: &Mutex<Mirror>) -> MutexGuard<'_, Mirror> {
    mirror.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scheduler {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// When there is no such policy.
    pub fn new(client: Client, settings: SchedulerSettings) -> Result<Self, SchedulerError> {
        let (driver, handle) =
            Driver::without_journal(settings.policy.clone(), dovetail_control::Clock::Events)
                .map_err(|e| SchedulerError::Policy(e.to_string()))?;
        let (to_loop, orders) = mpsc::unbounded_channel();
        let (notices, noticed) = watch::channel(0);
        driver.spawn(ToLoop {
            orders: to_loop,
            noticed: notices,
        });
        Ok(Self {
            mirror: Arc::new(Mutex::new(Mirror::new(settings.mirror.clone()))),
            client,
            settings,
            handle,
            orders,
            ready: watch::Sender::new(false),
            noticed,
            foreseen: Arc::default(),
        })
    }

    /// A way to the book: for pages and people.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The cluster as it was last seen.
    pub fn mirror(&self) -> Arc<Mutex<Mirror>> {
        Arc::clone(&self.mirror)
    }

    /// Whether everything was listed once.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// The number of the last notice in the book.
    pub fn noticed(&self) -> watch::Receiver<u64> {
        self.noticed.clone()
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
            &self.settings.mirror.scheduler_name,
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
                let gpus = &self.settings.mirror.gpu_resources;
                locked(&self.mirror).note_past(past_jobs(&jobs.items, gpus));
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
    pub(crate) async fn at_desk<T: Send + 'static>(
        &self,
        hands: &Hands,
        work: impl FnOnce(&mut Mirror, &mut Desk<'_>) -> T + Send + 'static,
    ) -> Result<T, SchedulerError> {
        let mirror = Arc::clone(&self.mirror);
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.handle
            .at_desk(move |desk| {
                let mut mirror = locked(&mirror);
                let done = work(&mut mirror, desk);
                (done, mirror.take_actions())
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
                self.at_desk(hands, move |mirror, desk| match change {
                    Change::All(nodes) => mirror.all_nodes(&nodes, desk),
                    Change::Put(node) => mirror.node_put(&node, desk),
                    Change::Gone(node) => mirror.node_gone(&node.metadata.name, desk),
                    Change::Trouble(_) => {}
                })
                .await
            }
            Heard::Pods(changes) => {
                let all = changes.iter().any(|c| matches!(c, Change::All(_)));
                self.at_desk(hands, move |mirror, desk| {
                    for change in changes {
                        match change {
                            Change::All(pods) => mirror.all_pods(&pods, desk),
                            Change::Put(pod) => mirror.pod_put(&pod, desk),
                            Change::Gone(pod) => mirror.pod_gone(&pod, desk),
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
                self.at_desk(hands, move |mirror, desk| match change {
                    Change::All(slices) => mirror.all_slices(slices, desk),
                    Change::Put(slice) => mirror.slice_put(slice, desk),
                    Change::Gone(slice) => mirror.slice_gone(&slice.metadata.name, desk),
                    Change::Trouble(_) => {}
                })
                .await
            }
            Heard::Claims(change) => {
                objects.claims |= are_listed(&change);
                self.at_desk(hands, move |mirror, desk| match change {
                    Change::All(claims) => mirror.all_claims(claims, desk),
                    Change::Put(claim) => mirror.claim_put(claim, desk),
                    Change::Gone(claim) => mirror.claim_gone(&claim, desk),
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
    async fn follow(&self, orders: Vec<(NodeId, Order)>, hands: &Hands) -> Result<(), SchedulerError> {
        let mut starts: BTreeMap<JobNo, Launch> = BTreeMap::new();
        let mut stops: BTreeMap<JobNo, Launch> = BTreeMap::new();
        for (_, order) in orders {
            match order {
                Order::Start(task) => drop(starts.insert(task.job, task.launch)),
                Order::Stop { job, launch, .. } => drop(stops.insert(job, launch)),
                // CPU and memory of pods stay as they were asked for.
                Order::Resize { .. } => {}
            }
        }
        self.at_desk(hands, move |mirror, desk| {
            for (job, launch) in starts {
                mirror.start(job, launch, desk);
            }
            for (job, launch) in stops {
                mirror.stop(job, launch, desk);
            }
        })
        .await
    }

    async fn take(&self, answer: Answer, hands: &Hands) -> Result<(), SchedulerError> {
        self.at_desk(hands, move |mirror, desk| match answer {
            Answer::BindFailed(uid) => mirror.bind_failed(&uid, desk),
            Answer::Size(gang, size) => mirror.size_is(&gang, size, desk),
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
            self.at_desk(hands, move |mirror, desk| mirror.node_lost(&name, desk))
                .await?;
        }
        Ok(())
    }

    /// Pods that wait are told why; objects of ours how they stand.
    async fn explain(&self, hands: &Hands, objects: &Objects) -> Result<(), SchedulerError> {
        let since = now_micros() - 2_000_000;
        let etas = self.foreseen.words();
        let actions: Vec<Action> = self
            .at_desk(hands, move |mirror, desk| {
                let book = Desk::book(desk);
                let mut actions = mirror.explanations(book, since, &etas);
                actions.extend(mirror.on_groups(book, since, &etas));
                actions
            })
            .await?;
        hands.carry_out(actions);
        self.at_desk(hands, |mirror, desk| mirror.retry_refused(desk))
            .await?;
        for cluster in objects.clusters.known.values() {
            let use_of = self.handle.read(|book| use_of(book, &cluster.metadata.name));
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
fn use_of(book: &Book, name: &str) -> Value {
    let (mut used, mut running, mut waiting) = (0, 0, 0);
    for job in book.jobs_live().filter(|job| job.request.tenant == name) {
        match job.state.is_up() {
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
