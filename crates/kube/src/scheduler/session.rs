//! The loop of a scheduler that leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dovetail_cluster::{AttemptId, ClusterState, JobId, NodeCommand, RuntimeCommand, Transaction};
use dovetail_kubeapi::{Change, Node, Patch, Pod, now_micros};
use dovetail_model::Time;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Scheduler, SchedulerError, lock};
use crate::crds;
use crate::executor::{ActionResult, Executor};
use crate::explain::{ExplainCache, Explainer};
use crate::lease::Leadership;
use crate::object_cache::{WatchedObjects, is_listed};
use crate::pod_groups;
use crate::reconciler::Reconciler;
use crate::watches::{WatchEvent, Watches};

/// Age at which a pending pod is explained: most pods are bound before.
const EXPLAIN_AFTER_US: i64 = 2_000_000;

/// The state of a scheduler that leads.
pub(super) struct Session {
    pub(super) scheduler: Scheduler,
    executor: Executor,
    pub(super) objects: WatchedObjects,
    /// Nodes that are not ready, and since when.
    unready: BTreeMap<String, Instant>,
    /// Changes of pods that arrived before nodes and virtual clusters were listed.
    early: Vec<WatchEvent>,
    results: mpsc::UnboundedReceiver<ActionResult>,
    explain_cache: ExplainCache,
}

impl Session {
    pub(super) fn new(scheduler: Scheduler, leadership: Leadership) -> Self {
        let (sender, results) = mpsc::unbounded_channel();
        let settings = &scheduler.settings;
        let executor = Executor::new(
            scheduler.client.clone(),
            leadership,
            settings.at_once,
            settings.events,
            &settings.reconciler.scheduler_name,
            sender,
        );
        Self {
            scheduler,
            executor,
            objects: WatchedObjects::default(),
            unready: BTreeMap::new(),
            early: Vec::new(),
            results,
            explain_cache: ExplainCache::default(),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), SchedulerError> {
        let (sender, mut events) = mpsc::channel(64);
        let mut watches = Watches::start(&self.scheduler.client, &sender);
        watches.add_task(self.scheduler.spawn_forecasts());
        drop(sender);
        let mut tick = tokio::time::interval(self.scheduler.settings.explain_every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = events.recv() => {
                    WatchedObjects::check_access(&event).map_err(SchedulerError::Refused)?;
                    self.receive(event).await?;
                }
                Some(mut commands) = self.scheduler.commands.recv() => {
                    while let Ok(more) = self.scheduler.commands.try_recv() {
                        commands.extend(more);
                    }
                    self.execute(commands).await?;
                }
                Some(result) = self.results.recv() => self.handle_result(result).await?,
                _ = tick.tick() => self.tick().await?,
            }
        }
    }

    /// Handles a change. Pods wait until nodes and virtual clusters are listed.
    async fn receive(&mut self, event: WatchEvent) -> Result<(), SchedulerError> {
        if matches!(event, WatchEvent::Pods(_)) && !self.objects.are_listed() {
            self.early.push(event);
            return Ok(());
        }
        self.handle_event(event).await?;
        if self.objects.are_listed() {
            for event in std::mem::take(&mut self.early) {
                self.handle_event(event).await?;
            }
        }
        Ok(())
    }

    async fn handle_event(&mut self, event: WatchEvent) -> Result<(), SchedulerError> {
        match event {
            WatchEvent::Nodes(change) => self.handle_nodes(change).await,
            WatchEvent::Pods(changes) => self.handle_pods(changes).await,
            WatchEvent::Slices(change) => {
                self.objects.slices_listed |= is_listed(&change);
                self.in_transaction(move |reconciler, tx| match change {
                    Change::All(slices) => reconciler.list_slices(slices, tx),
                    Change::Put(slice) => reconciler.put_slice(slice, tx),
                    Change::Gone(slice) => reconciler.delete_slice(&slice.metadata.name, tx),
                    Change::Failed(_) => {}
                })
                .await
            }
            WatchEvent::Claims(change) => {
                self.objects.claims_listed |= is_listed(&change);
                self.in_transaction(move |reconciler, tx| match change {
                    Change::All(claims) => reconciler.list_claims(claims, tx),
                    Change::Put(claim) => reconciler.put_claim(claim, tx),
                    Change::Gone(claim) => reconciler.delete_claim(&claim, tx),
                    Change::Failed(_) => {}
                })
                .await
            }
            WatchEvent::VirtualClusters(change) => {
                self.objects.clusters.apply(change);
                self.apply_virtual_clusters().await
            }
            WatchEvent::Topologies(change) => {
                self.objects.topologies.apply(change);
                self.apply_virtual_clusters().await
            }
            WatchEvent::Progress(change) => {
                self.objects.progress_listed |= is_listed(&change);
                self.in_transaction(move |reconciler, tx| match change {
                    Change::All(all) => reconciler.list_progress(&all, tx),
                    Change::Put(one) => reconciler.put_progress(&one, tx),
                    Change::Gone(one) => reconciler.delete_progress(&one),
                    Change::Failed(_) => {}
                })
                .await
            }
            WatchEvent::Policies(change) => {
                self.objects.policies.apply(change);
                self.apply_policy().await;
                Ok(())
            }
        }
    }

    async fn handle_nodes(&mut self, change: Change<Node>) -> Result<(), SchedulerError> {
        note_unready(&change, &mut self.unready);
        self.objects.nodes_listed |= matches!(change, Change::All(_));
        self.in_transaction(move |reconciler, tx| match change {
            Change::All(nodes) => reconciler.list_nodes(&nodes, tx),
            Change::Put(node) => reconciler.put_node(&node, tx),
            Change::Gone(node) => reconciler.delete_node(&node.metadata.name, tx),
            Change::Failed(_) => {}
        })
        .await
    }

    async fn handle_pods(&self, changes: Vec<Change<Pod>>) -> Result<(), SchedulerError> {
        let has_list = changes.iter().any(|c| matches!(c, Change::All(_)));
        self.in_transaction(move |reconciler, tx| {
            for change in changes {
                match change {
                    Change::All(pods) => reconciler.list_pods(&pods, tx),
                    Change::Put(pod) => reconciler.put_pod(&pod, tx),
                    Change::Gone(pod) => reconciler.delete_pod(&pod, tx),
                    Change::Failed(_) => {}
                }
            }
        })
        .await?;
        if has_list {
            self.scheduler.ready.send_replace(true);
        }
        Ok(())
    }

    /// Executes commands of the cluster state: they become bindings and removals.
    async fn execute(&self, commands: Vec<NodeCommand>) -> Result<(), SchedulerError> {
        let mut starts: BTreeMap<JobId, AttemptId> = BTreeMap::new();
        let mut stops: BTreeMap<JobId, AttemptId> = BTreeMap::new();
        // In the order of the decision: jobs that get less come first.
        let (mut resizes, mut resized): (Vec<JobId>, BTreeSet<JobId>) = Default::default();
        for (_, command) in commands {
            match command {
                RuntimeCommand::Start(task) => drop(starts.insert(task.job, task.attempt)),
                RuntimeCommand::Stop { job, attempt, .. } => drop(stops.insert(job, attempt)),
                RuntimeCommand::Resize { job, .. } => resizes.extend(resized.insert(job).then_some(job)),
            }
        }
        self.in_transaction(move |reconciler, tx| {
            for job in resizes {
                reconciler.resize(job, tx);
            }
            for (job, attempt) in starts {
                reconciler.start(job, attempt, tx);
            }
            for (job, attempt) in stops {
                reconciler.stop(job, attempt, tx);
            }
        })
        .await
    }

    async fn handle_result(&self, result: ActionResult) -> Result<(), SchedulerError> {
        self.in_transaction(move |reconciler, tx| match result {
            ActionResult::BindFailed(uid) => reconciler.bind_failed(&uid, tx),
            ActionResult::Size(gang, pods) => reconciler.set_size(&gang, pods, tx),
            ActionResult::Resized { uid, target, result } => reconciler.resized(&uid, target, result, tx),
        })
        .await
    }

    /// Performs an operation on the reconciler in a transaction, and starts the resulting actions.
    pub(super) async fn in_transaction<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Reconciler, &mut Transaction<'_>) -> T + Send + 'static,
    ) -> Result<T, SchedulerError> {
        let reconciler = Arc::clone(&self.scheduler.reconciler);
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.scheduler
            .handle
            .in_transaction(move |tx| {
                let mut reconciler = lock(&reconciler);
                let result = operation(&mut reconciler, tx);
                (result, reconciler.take_actions())
            })
            .then(move |result| drop(answer.send(result)));
        let answer = answered.await.ok().and_then(Result::ok);
        let (result, actions) = answer.ok_or(SchedulerError::Ended)?;
        self.executor.perform(actions);
        Ok(result)
    }

    /// Performs what depends on time.
    async fn tick(&mut self) -> Result<(), SchedulerError> {
        self.lose_unready_nodes().await?;
        let timeout = as_time(self.scheduler.settings.missing_timeout);
        self.in_transaction(move |reconciler, tx| {
            reconciler.expire(Time(now_micros()), timeout, tx);
            reconciler.retry_refused(tx);
        })
        .await?;
        self.explain();
        self.update_usage().await;
        Ok(())
    }

    async fn lose_unready_nodes(&mut self) -> Result<(), SchedulerError> {
        let lost_after = self.scheduler.settings.lost_after;
        let unready = self.unready.iter();
        let lost: Vec<String> = unready
            .filter(|(_, since)| since.elapsed() >= lost_after)
            .map(|(name, _)| name.clone())
            .collect();
        for name in lost {
            self.unready.remove(&name);
            self.in_transaction(move |reconciler, tx| reconciler.lose_node(&name, tx))
                .await?;
        }
        Ok(())
    }

    /// Writes on pending pods and pod groups why they wait. The cluster state is only read, so that scheduling continues.
    fn explain(&mut self) {
        let cache = &mut self.explain_cache;
        let created_before = now_micros() - EXPLAIN_AFTER_US;
        let forecasts = self.scheduler.forecasts.messages();
        let actions = self.scheduler.handle.read(|state| {
            // In the same order as in a transaction: the state first, then the reconciler.
            let mut reconciler = lock(&self.scheduler.reconciler);
            let explainer = Explainer::new(state, created_before, &forecasts);
            let mut actions = explainer.explain_pods(&mut reconciler, cache);
            actions.extend(pod_groups::update_groups(&mut reconciler));
            actions
        });
        self.executor.perform(actions);
    }

    /// Writes the usage of virtual clusters to their status.
    async fn update_usage(&self) {
        for cluster in self.objects.clusters.objects.values() {
            let name = &cluster.metadata.name;
            let usage = self.scheduler.handle.read(|state| usage(state, name));
            let is_same = |key: &&str| cluster.status.get(key) == usage.get(key);
            if !["used", "waiting", "running"].iter().all(is_same) {
                let path = format!("{}/virtualclusters/{name}/status", crds::API);
                self.patch_status(&path, usage).await;
            }
        }
    }

    pub(super) async fn patch_status(&self, path: &str, status: Value) {
        let patch = json!({"status": status});
        let client = &self.scheduler.client;
        if let Err(error) = client.patch::<Value>(path, Patch::Merge, &patch).await {
            tracing::warn!("{error}");
        }
    }
}

fn as_time(duration: Duration) -> Time {
    Time(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2))
}

/// Returns the GPUs and the numbers of jobs of a virtual cluster.
fn usage(state: &ClusterState, name: &str) -> Value {
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

/// Records since when nodes are not ready.
fn note_unready(change: &Change<Node>, unready: &mut BTreeMap<String, Instant>) {
    let mut note = |node: &Node| {
        let mut conditions = node.status.conditions.iter();
        let is_ready = conditions.any(|c| c.kind == "Ready" && c.status == "True");
        let name = &node.metadata.name;
        match is_ready {
            true => drop(unready.remove(name)),
            false => drop(unready.entry(name.clone()).or_insert_with(Instant::now)),
        }
    };
    match change {
        Change::All(nodes) => nodes.iter().for_each(note),
        Change::Put(node) => note(node),
        Change::Gone(node) => drop(unready.remove(&node.metadata.name)),
        Change::Failed(_) => {}
    }
}
