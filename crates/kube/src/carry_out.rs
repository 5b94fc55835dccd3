//! Actions at the API server, a bounded number at once.

use std::sync::Arc;
use std::time::Duration;

use dovetail_kubeapi::{
    Binding, Client, DeleteOptions, Error, Event, Meta, Patch, Pod, micro_time, now_micros, seconds_time,
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::action::{Action, Bind, PodId, Removal};
use crate::groups::SCHEDULED;
use crate::identity::{GangKey, LookUp};
use crate::lease::Leadership;
use crate::words;

/// What comes back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A pod cannot be bound.
    BindFailed(String),
    /// How many pods a gang has.
    Size(GangKey, Result<u32, String>),
}

/// Which events are written about what is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Events {
    /// None.
    None,
    /// One for each gang that starts, and one for each pod that is stopped.
    #[default]
    Gangs,
    /// One for each pod.
    Pods,
}

/// Carries out actions.
#[derive(Debug, Clone)]
pub(crate) struct Hands {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) at_once: Arc<Semaphore>,
    events: Events,
    scheduler: String,
    answers: mpsc::UnboundedSender<Answer>,
}

/// A budget for disruptions may keep a pod for so long.
const BUDGET_PATIENCE: Duration = Duration::from_secs(600);

impl Hands {
    pub(crate) fn new(
        client: Client,
        leadership: Leadership,
        at_once: usize,
        events: Events,
        scheduler: &str,
        answers: mpsc::UnboundedSender<Answer>,
    ) -> Self {
        Self {
            client,
            leadership,
            at_once: Arc::new(Semaphore::new(at_once.max(1))),
            events,
            scheduler: scheduler.to_owned(),
            answers,
        }
    }

    /// Begins all of them; none is waited for.
    pub(crate) fn carry_out(&self, actions: Vec<Action>) {
        for action in actions {
            let hands = self.clone();
            match action {
                Action::Launch {
                    plan: None,
                    binds,
                    gang,
                    ..
                } => hands.bind_all(binds, &gang),
                Action::Launch {
                    plan: Some((pod, plan)),
                    binds,
                    gang,
                    ..
                } => {
                    tokio::spawn(async move {
                        if hands.write_plan(&pod, &plan).await {
                            hands.bind_all(binds, &gang);
                        } else {
                            for bind in binds {
                                hands.answer(Answer::BindFailed(bind.pod.uid));
                            }
                        }
                    });
                }
                Action::Remove { pod, why } => {
                    drop(tokio::spawn(async move { hands.remove(&pod, &why).await }))
                }
                Action::StopOwner { namespace, job } => {
                    drop(tokio::spawn(async move { hands.suspend(&namespace, &job).await }));
                }
                Action::Explain { pod, reason, message } => {
                    drop(tokio::spawn(async move {
                        hands.explain(&pod, reason, &message).await
                    }));
                }
                Action::OnGroup {
                    namespace,
                    group,
                    reason,
                    message,
                } => drop(tokio::spawn(async move {
                    hands.tell_group(&namespace, &group, reason, &message).await;
                })),
                Action::LookUp { gang, at } => {
                    drop(tokio::spawn(async move { hands.look_up(gang, &at).await }))
                }
            }
        }
    }

    fn answer(&self, answer: Answer) {
        // Whoever listened has gone, and everything with it.
        let _ = self.answers.send(answer);
    }

    fn bind_all(self, binds: Vec<Bind>, gang: &str) {
        let told = match self.events {
            Events::None => 0,
            Events::Gangs => 1,
            Events::Pods => binds.len(),
        };
        let count = binds.len();
        for (at, bind) in binds.into_iter().enumerate() {
            let hands = self.clone();
            let message = (at < told).then(|| match count {
                1 => format!("bound to {}", bind.node),
                _ => format!("bound to {}, with {count} pods of gang {gang}", bind.node),
            });
            tokio::spawn(async move { hands.bind(bind, message).await });
        }
    }

    /// Binds a pod, however often it takes, as long as we lead.
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
            if !self.give_devices(claim, &bind.pod).await {
                return self.answer(Answer::BindFailed(bind.pod.uid.clone()));
            }
        }
        let binding = Binding::new(metadata, &bind.node);
        let mut wait = Duration::from_millis(50);
        loop {
            let permit = self.at_once.acquire().await;
            if !self.leadership.holds() {
                return;
            }
            let done = self.client.bind(&binding).await;
            drop(permit);
            match done {
                Ok(()) => break,
                Err(error) if error.is_passing() => {
                    tracing::warn!("{}: {error}", bind.pod);
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                Err(error) => {
                    if !self.is_bound_there(&bind).await {
                        tracing::info!("{}: {error}", bind.pod);
                        self.answer(Answer::BindFailed(bind.pod.uid.clone()));
                    }
                    return;
                }
            }
        }
        if let Some(message) = message {
            self.event(&bind.pod, "Normal", "Scheduled", &message).await;
        }
    }

    /// A refusal may answer a request that had come through before.
    async fn is_bound_there(&self, bind: &Bind) -> bool {
        let pod = self.client.get::<Pod>(&bind.pod.path()).await;
        pod.is_ok_and(|pod| pod.metadata.uid == bind.pod.uid && pod.spec.node_name == bind.node)
    }

    async fn write_plan(&self, pod: &PodId, plan: &str) -> bool {
        let patch = json!({"metadata": {"uid": pod.uid, "annotations": {words::PLAN: plan}}});
        let mut wait = Duration::from_millis(50);
        loop {
            let permit = self.at_once.acquire().await;
            if !self.leadership.holds() {
                return false;
            }
            let done = self
                .client
                .patch::<Value>(&pod.path(), Patch::Merge, &patch)
                .await;
            drop(permit);
            match done {
                Ok(_) => return true,
                Err(error) if error.is_passing() => {
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

    async fn remove(&self, pod: &PodId, why: &Removal) {
        let mut said = json!({words::PREEMPTED_BY: why.message});
        if why.warn_s > 0 {
            let at = seconds_time(now_micros() + i64::from(why.warn_s) * 1_000_000);
            said[words::PREEMPT_AT] = Value::String(at);
        }
        let patch = json!({"metadata": {"uid": pod.uid, "annotations": said}});
        if let Err(error) = self
            .client
            .patch::<Value>(&pod.path(), Patch::Merge, &patch)
            .await
            && error.is_not_found()
        {
            return;
        }
        self.mark(pod, why).await;
        if self.events != Events::None {
            let kind = if why.may_wait { "Normal" } else { "Warning" };
            self.event(pod, kind, why.reason, &why.message).await;
        }
        tokio::time::sleep(Duration::from_secs(u64::from(why.warn_s))).await;
        let began = tokio::time::Instant::now();
        let mut wait = Duration::from_millis(100);
        while self.leadership.holds() {
            let evict = why.may_wait && began.elapsed() < BUDGET_PATIENCE;
            let done = match evict {
                true => self.evict(pod).await,
                false => {
                    self.client
                        .delete(&pod.path(), &DeleteOptions::of(&pod.uid))
                        .await
                }
            };
            match done {
                // The server has put words of its own in the place of ours.
                Ok(()) if evict => return self.mark(pod, why).await,
                Ok(()) => return,
                Err(error) if error.is_not_found() || error.is_conflict() => return,
                Err(error) if error.is_passing() => {
                    tracing::info!("{pod}: {error}");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                Err(error) => return tracing::error!("{pod} cannot be stopped: {error}"),
            }
        }
    }

    /// Says on the pod why it goes.
    async fn mark(&self, pod: &PodId, why: &Removal) {
        let condition = json!({"status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": why.message, "lastTransitionTime": seconds_time(now_micros())}]}});
        let path = format!("{}/status", pod.path());
        let done = self.client.patch::<Value>(&path, Patch::Strategic, &condition);
        self.or_log(pod, done.await);
    }

    async fn evict(&self, pod: &PodId) -> Result<(), Error> {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}}});
        self.client
            .post(&format!("{}/eviction", pod.path()), &eviction)
            .await
    }

    async fn suspend(&self, namespace: &str, job: &str) {
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/{job}");
        let patch = json!({"spec": {"suspend": true}});
        if let Err(error) = self.client.patch::<Value>(&path, Patch::Merge, &patch).await {
            tracing::warn!("{error}");
        }
    }

    async fn explain(&self, pod: &PodId, reason: &str, message: &str) {
        let condition = json!({"status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": seconds_time(now_micros())}]}});
        let path = format!("{}/status", pod.path());
        self.or_log(
            pod,
            self.client
                .patch::<Value>(&path, Patch::Strategic, &condition)
                .await,
        );
    }

    async fn tell_group(&self, namespace: &str, group: &str, reason: &str, message: &str) {
        let status = if reason == SCHEDULED { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{
            "type": "PodGroupScheduled", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": seconds_time(now_micros())}]}});
        let path = format!(
            "/apis/{}/namespaces/{namespace}/podgroups/{group}/status",
            words::GROUPS_API
        );
        if let Err(error) = self.client.patch::<Value>(&path, Patch::Strategic, &patch).await
            && !error.is_not_found()
        {
            tracing::warn!("{namespace}/{group}: {error}");
        }
    }

    fn or_log(&self, pod: &PodId, done: Result<Value, Error>) {
        if let Err(error) = done
            && !error.is_not_found()
        {
            tracing::warn!("{pod}: {error}");
        }
    }

    async fn look_up(&self, gang: GangKey, at: &LookUp) {
        let mut wait = Duration::from_millis(250);
        loop {
            let said = match self.client.get::<Value>(&at.path).await {
                Ok(object) => at.kind.read(&object).map_err(|why| format!("{}: {why}", at.path)),
                Err(error) if wait > Duration::from_secs(30) => Err(error.to_string()),
                Err(_) => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                    continue;
                }
            };
            return self.answer(Answer::Size(gang, said));
        }
    }

    async fn event(&self, pod: &PodId, kind: &str, reason: &str, message: &str) {
        let at = now_micros();
        let event = Event::about_pod(&pod.meta(), kind, reason, message, &self.scheduler, at);
        let permit = self.at_once.acquire().await;
        if let Err(error) = self.client.post(&event.path(), &event).await {
            tracing::debug!("event {}: {error}", micro_time(at));
        }
        drop(permit);
    }
}
