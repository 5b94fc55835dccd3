//! Performs actions at the API server, with a limited number of concurrent requests.

use std::sync::Arc;
use std::time::Duration;

use dovetail_kubeapi::{
    Binding, Client, DeleteOptions, Error, Event, Meta, Patch, Pod, micro_time, now_micros, seconds_time,
};
use dovetail_model::Share;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::action::{Action, Bind, PodId, Removal};
use crate::annotations;
use crate::executor_resize::resize_pod;
use crate::gang_history::{GangHistory, QueuedAs, history_path};
use crate::identity::{GangKey, SizeError, SizeLookup};
use crate::lease::Leadership;
use crate::pod_groups::SCHEDULED;

/// Result of an action that the reconciler handles.
#[derive(Debug)]
pub(crate) enum ActionResult {
    /// The pod with this uid cannot be bound.
    BindFailed(String),
    /// Number of pods of a gang.
    Size(GangKey, Result<u32, SizeError>),
    /// A pod was resized, or was not.
    Resized {
        /// Uid of the pod.
        uid: String,
        /// What it was to get.
        target: Share,
        /// Why it was not resized, if it was not.
        result: Result<(), String>,
    },
}

/// Which Kubernetes events the scheduler writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Events {
    /// No events.
    None,
    /// One event for each gang that starts, and one for each pod that is removed.
    #[default]
    Gangs,
    /// One event for each pod.
    Pods,
}

/// Performs actions at the API server.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    /// Permits for concurrent requests.
    pub(crate) requests: Arc<Semaphore>,
    events: Events,
    scheduler: String,
    results: mpsc::UnboundedSender<ActionResult>,
}

/// How long PodDisruptionBudgets may delay a removal.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(600);

impl Executor {
    pub(crate) fn new(
        client: Client,
        leadership: Leadership,
        concurrency: usize,
        events: Events,
        scheduler: &str,
        results: mpsc::UnboundedSender<ActionResult>,
    ) -> Self {
        Self {
            client,
            leadership,
            requests: Arc::new(Semaphore::new(concurrency.max(1))),
            events,
            scheduler: scheduler.to_owned(),
            results,
        }
    }

    /// Starts all actions without waiting for them.
    pub(crate) fn perform(&self, actions: Vec<Action>) {
        for action in actions {
            let executor = self.clone();
            match action {
                Action::Launch {
                    plan: None,
                    binds,
                    gang,
                    ..
                } => executor.bind_all(binds, &gang),
                other => drop(tokio::spawn(async move { executor.perform_one(other).await })),
            }
        }
    }

    async fn perform_one(self, action: Action) {
        match action {
            Action::Launch {
                plan, binds, gang, ..
            } => match plan {
                Some((pod, plan)) => self.launch((&pod, &plan), binds, &gang).await,
                None => self.bind_all(binds, &gang),
            },
            Action::Remove { pod, removal } => self.remove(&pod, &removal).await,
            Action::Resize(resize) => drop(resize_pod(&self, &resize).await),
            Action::Warn { pod, reason, message } => self.warn(&pod, reason, &message).await,
            Action::StopOwner { namespace, job } => self.suspend(&namespace, &job).await,
            Action::SaveHistory { history, then } => {
                self.save_history(&history).await;
                self.perform(then);
            }
            Action::DeleteHistory { gang } => self.delete_history(&gang).await,
            Action::Explain {
                pod,
                reason,
                message,
                queued,
            } => self.explain(&pod, reason, &message, queued).await,
            Action::GroupStatus {
                namespace,
                group,
                reason,
                message,
            } => {
                self.set_group_status(&namespace, &group, reason, &message).await;
            }
            Action::LookUpSize { gang, lookup } => self.look_up_size(gang, &lookup).await,
        }
    }

    /// Writes the plan of a gang, and then binds its pods.
    async fn launch(self, (pod, plan): (&PodId, &str), binds: Vec<Bind>, gang: &str) {
        if self.write_plan(pod, plan).await {
            return self.bind_all(binds, gang);
        }
        for bind in binds {
            self.report(ActionResult::BindFailed(bind.pod.uid));
        }
    }

    pub(crate) fn report(&self, result: ActionResult) {
        // Without a receiver the scheduler has ended.
        let _ = self.results.send(result);
    }

    fn bind_all(self, binds: Vec<Bind>, gang: &str) {
        let events = match self.events {
            Events::None => 0,
            Events::Gangs => 1,
            Events::Pods => binds.len(),
        };
        let count = binds.len();
        for (index, bind) in binds.into_iter().enumerate() {
            let executor = self.clone();
            let message = (index < events).then(|| match count {
                1 => format!("bound to {}", bind.node),
                _ => format!("bound to {}, with {count} pods of gang {gang}", bind.node),
            });
            tokio::spawn(async move { executor.bind(bind, message).await });
        }
    }

    /// Binds a pod, and retries temporary errors as long as this process leads.
    async fn bind(&self, bind: Bind, message: Option<String>) {
        let metadata = Meta {
            annotations: bind
                .annotations
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.clone()))
                .collect(),
            ..bind.pod.meta()
        };
        for claim in &bind.claims {
            if !self.allocate_devices(claim, &bind.pod).await {
                return self.report(ActionResult::BindFailed(bind.pod.uid.clone()));
            }
        }
        if let Some(resize) = &bind.resize
            && !resize_pod(self, resize).await
        {
            return self.report(ActionResult::BindFailed(bind.pod.uid.clone()));
        }
        let binding = Binding::new(metadata, &bind.node);
        let mut wait = Duration::from_millis(50);
        loop {
            let permit = self.requests.acquire().await;
            if !self.leadership.holds() {
                return;
            }
            let result = self.client.bind(&binding).await;
            drop(permit);
            match result {
                Ok(()) => break,
                Err(error) if error.is_transient() => {
                    tracing::warn!("{}: {error}", bind.pod);
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                Err(error) => {
                    if !self.is_bound_there(&bind).await {
                        tracing::info!("{}: {error}", bind.pod);
                        self.report(ActionResult::BindFailed(bind.pod.uid.clone()));
                    }
                    return;
                }
            }
        }
        if let Some(message) = message {
            self.event(&bind.pod, "Normal", "Scheduled", &message).await;
        }
    }

    /// Checks whether a rejected binding was made by an earlier request.
    async fn is_bound_there(&self, bind: &Bind) -> bool {
        let pod = self.client.get::<Pod>(&bind.pod.path()).await;
        pod.is_ok_and(|pod| pod.metadata.uid == bind.pod.uid && pod.spec.node_name == bind.node)
    }

    async fn write_plan(&self, pod: &PodId, plan: &str) -> bool {
        let patch = json!({"metadata": {"uid": pod.uid, "annotations": {annotations::PLAN: plan}}});
        let mut wait = Duration::from_millis(50);
        loop {
            let permit = self.requests.acquire().await;
            if !self.leadership.holds() {
                return false;
            }
            let result = self
                .client
                .patch::<Value>(&pod.path(), Patch::Merge, &patch)
                .await;
            drop(permit);
            match result {
                Ok(_) => return true,
                Err(error) if error.is_transient() => {
                    tracing::warn!("{pod}: {error}");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                Err(error) => {
                    tracing::info!("{pod}: {error}");
                    return false;
                }
            }
        }
    }

    async fn remove(&self, pod: &PodId, removal: &Removal) {
        let mut values = json!({annotations::PREEMPTED_BY: removal.message});
        if removal.warn_s > 0 {
            let at = seconds_time(now_micros() + i64::from(removal.warn_s) * 1_000_000);
            values[annotations::PREEMPT_AT] = Value::String(at);
        }
        let patch = json!({"metadata": {"uid": pod.uid, "annotations": values}});
        if let Err(error) = self
            .client
            .patch::<Value>(&pod.path(), Patch::Merge, &patch)
            .await
            && error.is_not_found()
        {
            return;
        }
        self.mark(pod, removal).await;
        if self.events != Events::None {
            let kind = if removal.respects_budgets {
                "Normal"
            } else {
                "Warning"
            };
            self.event(pod, kind, removal.reason, &removal.message).await;
        }
        tokio::time::sleep(Duration::from_secs(u64::from(removal.warn_s))).await;
        let started = tokio::time::Instant::now();
        let mut wait = Duration::from_millis(100);
        while self.leadership.holds() {
            let evict = removal.respects_budgets && started.elapsed() < BUDGET_TIMEOUT;
            let result = match evict {
                true => self.evict(pod).await,
                false => {
                    self.client
                        .delete(&pod.path(), &DeleteOptions::of(&pod.uid))
                        .await
                }
            };
            match result {
                // The eviction has overwritten the condition.
                Ok(()) if evict => return self.mark(pod, removal).await,
                Ok(()) => return,
                Err(error) if error.is_not_found() || error.is_conflict() => return,
                Err(error) if error.is_transient() => {
                    tracing::info!("{pod}: {error}");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                Err(error) => return tracing::error!("cannot remove {pod}: {error}"),
            }
        }
    }

    /// Writes the reason of the removal on the pod.
    async fn mark(&self, pod: &PodId, removal: &Removal) {
        let condition = json!({"status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": removal.message, "lastTransitionTime": seconds_time(now_micros())}]}});
        let path = format!("{}/status", pod.path());
        let request = self.client.patch::<Value>(&path, Patch::Strategic, &condition);
        self.log_error(pod, request.await);
    }

    async fn evict(&self, pod: &PodId) -> Result<(), Error> {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}}});
        self.client
            .post(&format!("{}/eviction", pod.path()), &eviction)
            .await
    }

    /// Writes a history. Without it the gang is stopped all the same, and loses its service with the next change of leader.
    async fn save_history(&self, history: &GangHistory) {
        let (path, object) = (history.path(), history.object());
        let mut wait = Duration::from_millis(50);
        while self.leadership.holds() {
            let permit = self.requests.acquire().await;
            let result = self.client.apply::<Value>(&path, &self.scheduler, &object).await;
            drop(permit);
            match result {
                Ok(_) => return,
                Err(error) if error.is_transient() && wait < Duration::from_secs(5) => {
                    tracing::warn!("{error}");
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                Err(error) => return tracing::warn!("history of gang {}: {error}", history.key()),
            }
        }
    }

    async fn delete_history(&self, gang: &GangKey) {
        let path = history_path(gang);
        let permit = self.requests.acquire().await;
        let result = self.client.delete(&path, &DeleteOptions::default()).await;
        drop(permit);
        if let Err(error) = result
            && !error.is_not_found()
        {
            tracing::warn!("history of gang {gang}: {error}");
        }
    }

    async fn suspend(&self, namespace: &str, job: &str) {
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/{job}");
        let patch = json!({"spec": {"suspend": true}});
        if let Err(error) = self.client.patch::<Value>(&path, Patch::Merge, &patch).await {
            tracing::warn!("{error}");
        }
    }

    async fn explain(&self, pod: &PodId, reason: &str, message: &str, queued: Option<QueuedAs>) {
        let mut condition = json!({"status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": seconds_time(now_micros())}]}});
        if let Some(text) = queued.and_then(|queued| serde_json::to_string(&queued).ok()) {
            condition["metadata"] = json!({"annotations": {annotations::QUEUED: text}});
        }
        let path = format!("{}/status", pod.path());
        self.log_error(
            pod,
            self.client
                .patch::<Value>(&path, Patch::Strategic, &condition)
                .await,
        );
    }

    async fn set_group_status(&self, namespace: &str, group: &str, reason: &str, message: &str) {
        let status = if reason == SCHEDULED { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{
            "type": "PodGroupScheduled", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": seconds_time(now_micros())}]}});
        let path = format!(
            "/apis/{}/namespaces/{namespace}/podgroups/{group}/status",
            annotations::POD_GROUP_API
        );
        if let Err(error) = self.client.patch::<Value>(&path, Patch::Strategic, &patch).await
            && !error.is_not_found()
        {
            tracing::warn!("pod group {namespace}/{group}: {error}");
        }
    }

    fn log_error(&self, pod: &PodId, result: Result<Value, Error>) {
        if let Err(error) = result
            && !error.is_not_found()
        {
            tracing::warn!("{pod}: {error}");
        }
    }

    async fn look_up_size(&self, gang: GangKey, lookup: &SizeLookup) {
        let mut wait = Duration::from_millis(250);
        let pods = loop {
            match self.client.get::<Value>(&lookup.path).await {
                Ok(object) => {
                    break lookup.kind.pods(&object).map_err(|error| SizeError::Workload {
                        path: lookup.path.clone(),
                        error: Box::new(error),
                    });
                }
                Err(error) if wait > Duration::from_secs(30) => {
                    break Err(SizeError::Unreadable(error.to_string()));
                }
                Err(_) => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
            }
        };
        self.report(ActionResult::Size(gang, pods));
    }

    /// Writes a warning about a pod, unless the scheduler writes no events.
    async fn warn(&self, pod: &PodId, reason: &str, message: &str) {
        tracing::warn!("{message}");
        if self.events != Events::None {
            self.event(pod, "Warning", reason, message).await;
        }
    }

    async fn event(&self, pod: &PodId, kind: &str, reason: &str, message: &str) {
        let at = now_micros();
        let event = Event::about_pod(&pod.meta(), kind, reason, message, &self.scheduler, at);
        let permit = self.requests.acquire().await;
        if let Err(error) = self.client.post(&event.path(), &event).await {
            tracing::debug!("event {}: {error}", micro_time(at));
        }
        drop(permit);
    }
}
