//! `dovetail kube scheduler`: watches, decides, binds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_control::{
    Backend, Book, Desk, Driver, Fact, Handle, JobNo, JobRequest, Launch, Operate, Order, PolicyText,
    Refusal, parse_span,
};
use dovetail_kubeapi::{Change, Client, Error, Node, Object, Patch, Pod, Watcher, seconds_time};
use dovetail_model::{NodeId, Time};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::action::Action;
use crate::carry_out::{Answer, Events, Hands};
use crate::lease::{Leadership, now};
use crate::mirror::{Ledger, Mirror, Settings};
use crate::resources::{self, ClusterTopology, SchedulingPolicy, VirtualCluster};

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

/// What is heard.
enum Heard {
    Nodes(Change<Node>),
    Pods(Vec<Change<Pod>>),
    VirtualClusters(Change<VirtualCluster>),
    Topologies(Change<ClusterTopology>),
    Policies(Change<SchedulingPolicy>),
}

/// The scheduler on Kubernetes.
#[derive(Debug)]
pub struct Scheduler {
    client: Client,
    settings: SchedulerSettings,
    handle: Handle,
    mirror: Arc<Mutex<Mirror>>,
    orders: mpsc::UnboundedReceiver<Vec<(NodeId, Order)>>,
    ready: watch::Sender<bool>,
    noticed: watch::Receiver<u64>,
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
        let (tell, mut heard) = mpsc::channel(64);
        let watching = self.watch_all(&tell);
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

    fn watch_all(&self, tell: &mpsc::Sender<Heard>) -> Watching {
        let mut all = Watching::default();
        all.0
            .push(one_by_one(&self.client, "/api/v1/nodes", tell, Heard::Nodes));
        all.0.push(in_batches(&self.client, "/api/v1/pods", tell));
        let path = |plural: &str| format!("{}/{plural}", resources::API);
        all.0.push(one_by_one(
            &self.client,
            &path("virtualclusters"),
            tell,
            Heard::VirtualClusters,
        ));
        all.0.push(one_by_one(
            &self.client,
            &path("clustertopologies"),
            tell,
            Heard::Topologies,
        ));
        all.0.push(one_by_one(
            &self.client,
            &path("schedulingpolicies"),
            tell,
            Heard::Policies,
        ));
        all
    }

    /// Does something with the mirror at the desk, and begins what follows from it.
    async fn at_desk<T: Send + 'static>(
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
        let since = now() - 2_000_000;
        let actions: Vec<Action> = self
            .at_desk(hands, move |mirror, desk| {
                mirror.explanations(Desk::book(desk), since)
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

    async fn patch_status(&self, path: &str, status: Value) {
        let patch = json!({"status": status});
        if let Err(error) = self.client.patch::<Value>(path, Patch::Merge, &patch).await {
            tracing::warn!("{error}");
        }
    }

    /// What is promised has changed.
    async fn promise(&self, objects: &Objects, hands: &Hands) -> Result<(), SchedulerError> {
        if !(objects.clusters.listed && objects.topologies.listed) {
            return Ok(());
        }
        let clusters: Vec<VirtualCluster> = objects.clusters.known.values().cloned().collect();
        let topologies: Vec<ClusterTopology> = objects.topologies.known.values().cloned().collect();
        let verdict = resources::virtual_clusters(&clusters, &topologies);
        let verdict = match verdict {
            Ok(all) => {
                let same = self.handle.read(|book| *book.clusters() == all);
                match same {
                    true => Ok(()),
                    false => self.operate(Operate::VirtualClusters(Box::new(all))).await,
                }
            }
            Err(why) => Err(why),
        };
        if let Err(why) = &verdict {
            tracing::warn!("virtual clusters: {why}");
        }
        self.at_desk(hands, |mirror, desk| mirror.retry_refused(desk))
            .await?;
        for (plural, name, generation, status) in objects.promised() {
            let said = resources::accepted(&verdict, generation, seconds_time(now()));
            if status.get("message") != said.get("message")
                || status.get("observedGeneration") != said.get("observedGeneration")
            {
                self.patch_status(&format!("{}/{plural}/{name}/status", resources::API), said)
                    .await;
            }
        }
        Ok(())
    }

    async fn operate(&self, what: Operate) -> Result<(), String> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.handle
            .operate(what, "kubernetes")
            .then(move |done| drop(answer.send(done)));
        match answered.await {
            Ok(done) => done.map_err(|refusal| refusal.to_string()),
            Err(_) => Err("the scheduler has ended".to_owned()),
        }
    }

    async fn set_policy(&self, objects: &Objects, _hands: &Hands) -> Result<(), SchedulerError> {
        let Some(policy) = objects.policies.known.values().next() else {
            let text = self.settings.policy.clone();
            if self.handle.read(|book| *book.policy() != text) {
                let _ = self.operate(Operate::Policy(text)).await;
            }
            return Ok(());
        };
        let spec = &policy.spec;
        let round = match spec.round.as_deref().map(parse_span) {
            None => Ok(None),
            Some(Some(span)) => Ok(Some(span)),
            Some(None) => Err(format!(
                "round: {:?} is no span; expected one like 60s",
                spec.round.clone().unwrap_or_default()
            )),
        };
        let verdict = match round {
            Ok(round) => self.take_policy(spec.text(), round, spec.paused).await,
            Err(why) => Err(why),
        };
        self.tell_policy(policy, &verdict).await;
        let name = &policy.metadata.name;
        let second = Err(format!(
            "SchedulingPolicy {name} goes before it; only one can be used"
        ));
        for other in objects.policies.known.values().skip(1) {
            self.tell_policy(other, &second).await;
        }
        Ok(())
    }

    async fn tell_policy(&self, policy: &SchedulingPolicy, verdict: &Result<(), String>) {
        let said = resources::accepted(verdict, policy.metadata.generation, seconds_time(now()));
        if policy.status.get("message") != said.get("message")
            || policy.status.get("observedGeneration") != said.get("observedGeneration")
        {
            let path = format!(
                "{}/schedulingpolicies/{}/status",
                resources::API,
                policy.metadata.name
            );
            self.patch_status(&path, said).await;
        }
    }

    async fn take_policy(&self, text: PolicyText, round: Option<Time>, paused: bool) -> Result<(), String> {
        let (same, clock, is_paused) = self
            .handle
            .read(|book| (*book.policy() == text, book.clock(), book.is_paused()));
        if !same {
            self.operate(Operate::Policy(text)).await?;
        }
        let wanted = match round {
            None => "events".to_owned(),
            Some(period) => format!("rounds:{}s", period.as_secs_f64()),
        };
        if clock != wanted {
            self.operate(Operate::Round(round)).await?;
        }
        match (paused, is_paused) {
            (true, false) => self.operate(Operate::Pause).await,
            (false, true) => self.operate(Operate::Resume).await,
            _ => Ok(()),
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

/// Tasks that watch.
#[derive(Debug, Default)]
struct Watching(Vec<tokio::task::JoinHandle<()>>);

impl Watching {
    fn abort_all(&self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.abort_all();
    }
}

fn one_by_one<T: Object>(
    client: &Client,
    path: &str,
    tell: &mpsc::Sender<Heard>,
    said: fn(Change<T>) -> Heard,
) -> tokio::task::JoinHandle<()> {
    let (mut watcher, tell) = (Watcher::<T>::new(client, path, ""), tell.clone());
    tokio::spawn(async move { while tell.send(said(watcher.next().await)).await.is_ok() {} })
}

/// Pods change by the hundred: whatever is there is told together.
fn in_batches(client: &Client, path: &str, tell: &mpsc::Sender<Heard>) -> tokio::task::JoinHandle<()> {
    const MOST: usize = 512;
    let (mut watcher, tell) = (Watcher::<Pod>::new(client, path, ""), tell.clone());
    tokio::spawn(async move {
        loop {
            let mut batch = vec![watcher.next().await];
            while batch.len() < MOST && watcher.is_ready() {
                batch.push(watcher.next().await);
            }
            if tell.send(Heard::Pods(batch)).await.is_err() {
                return;
            }
        }
    })
}

/// Objects of one of our kinds.
#[derive(Debug)]
struct Kept<T> {
    known: BTreeMap<String, T>,
    listed: bool,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            listed: false,
        }
    }
}

impl<T: Object> Kept<T> {
    fn hear(&mut self, change: Change<T>) {
        match change {
            Change::All(all) => {
                self.known = all.into_iter().map(|o| (o.meta().name.clone(), o)).collect();
                self.listed = true;
            }
            Change::Put(one) => drop(self.known.insert(one.meta().name.clone(), one)),
            Change::Gone(one) => drop(self.known.remove(&one.meta().name)),
            // Where the kinds were never made, there are none.
            Change::Trouble(error) => self.listed |= error.is_not_found(),
        }
    }
}

/// What is known of nodes and of our own objects.
#[derive(Debug, Default)]
struct Objects {
    nodes: bool,
    clusters: Kept<VirtualCluster>,
    topologies: Kept<ClusterTopology>,
    policies: Kept<SchedulingPolicy>,
}

impl Objects {
    fn are_known(&self) -> bool {
        self.nodes && self.clusters.listed && self.topologies.listed && self.policies.listed
    }

    /// Whether something is refused without which nothing works; all else is tried again.
    fn complains(&self, said: &Heard) -> Result<(), Error> {
        let trouble = match said {
            Heard::Nodes(Change::Trouble(error)) => error,
            Heard::Pods(changes) => match changes.last() {
                Some(Change::Trouble(error)) => error,
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        tracing::warn!("{trouble}");
        match trouble {
            Error::Refused { what, status } if matches!(status.code, 401 | 403) => Err(Error::Refused {
                what: what.clone(),
                status: status.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Objects that say what is promised: kind, name, generation and status.
    fn promised(&self) -> Vec<(&'static str, String, Option<i64>, Value)> {
        let clusters = self.clusters.known.values();
        let topologies = self.topologies.known.values();
        let cluster = |c: &VirtualCluster| {
            (
                "virtualclusters",
                c.metadata.name.clone(),
                c.metadata.generation,
                c.status.clone(),
            )
        };
        let topology = |t: &ClusterTopology| {
            (
                "clustertopologies",
                t.metadata.name.clone(),
                t.metadata.generation,
                t.status.clone(),
            )
        };
        clusters.map(cluster).chain(topologies.map(topology)).collect()
    }
}
