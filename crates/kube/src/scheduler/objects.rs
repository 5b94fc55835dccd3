//! Applies VirtualCluster, ClusterTopology and SchedulingPolicy objects.

use dovetail_cluster::{Actor, Clock, OperatorAction, PolicyText, Refusal};
use dovetail_kubeapi::{Event, ObjectRef, now_micros, seconds_time};
use dovetail_model::{Time, parse_span};
use serde_json::Value;

use super::SchedulerError;
use super::session::Session;
use crate::crds::{self, ClusterTopology, SchedulingPolicy, VirtualCluster, VirtualClusterError};
use crate::executor::Events;

/// Why an object is not in use. The message is written to its status.
#[derive(Debug, thiserror::Error)]
enum ObjectError {
    #[error(transparent)]
    VirtualClusters(#[from] VirtualClusterError),
    #[error("round: invalid duration {0:?}: expected a value such as 60s")]
    Round(String),
    #[error("SchedulingPolicy {0} is in use; only one can be used")]
    SecondPolicy(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the scheduler is shutting down")]
    Ended,
}

impl Session {
    /// Applies the objects that define virtual clusters.
    pub(super) async fn apply_virtual_clusters(&self) -> Result<(), SchedulerError> {
        let objects = &self.objects;
        if !(objects.clusters.listed && objects.topologies.listed) {
            return Ok(());
        }
        let clusters: Vec<VirtualCluster> = objects.clusters.objects.values().cloned().collect();
        let topologies: Vec<ClusterTopology> = objects.topologies.objects.values().cloned().collect();
        let error = match self.set_virtual_clusters(&clusters, &topologies).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!("virtual clusters: {error}");
                Some(error.to_string())
            }
        };
        self.in_transaction(|reconciler, tx| reconciler.retry_refused(tx))
            .await?;
        for (plural, name, generation, status) in objects.statuses() {
            let path = format!("{}/{plural}/{name}/status", crds::API);
            self.set_accepted(&path, &status, generation, error.as_deref())
                .await;
        }
        Ok(())
    }

    async fn set_virtual_clusters(
        &self,
        clusters: &[VirtualCluster],
        topologies: &[ClusterTopology],
    ) -> Result<(), ObjectError> {
        let new = crds::virtual_clusters(clusters, topologies)?;
        let handle = &self.scheduler.handle;
        match handle.read(|state| *state.virtual_clusters() == new) {
            true => Ok(()),
            false => self.operate(OperatorAction::VirtualClusters(Box::new(new))).await,
        }
    }

    async fn operate(&self, action: OperatorAction) -> Result<(), ObjectError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.scheduler
            .handle
            .operate(action, Actor::Kubernetes(None))
            .then(move |result| drop(answer.send(result)));
        Ok(answered.await.map_err(|_| ObjectError::Ended)??)
    }

    /// Applies the first SchedulingPolicy by name, or the policy of the settings.
    pub(super) async fn apply_policy(&self) {
        let mut policies = self.objects.policies.objects.values();
        let Some(policy) = policies.next() else {
            let default = self.scheduler.settings.policy.clone();
            if self.scheduler.handle.read(|state| *state.policy() != default)
                && let Err(error) = self.operate(OperatorAction::Policy(default)).await
            {
                tracing::warn!("policy: {error}");
            }
            return;
        };
        let result = self.set_policy(policy).await;
        self.set_policy_status(policy, result.err()).await;
        for other in policies {
            let error = ObjectError::SecondPolicy(policy.metadata.name.clone());
            self.set_policy_status(other, Some(error)).await;
        }
    }

    async fn set_policy(&self, policy: &SchedulingPolicy) -> Result<(), ObjectError> {
        let spec = &policy.spec;
        let parse = |text: &String| parse_span(text).ok_or_else(|| ObjectError::Round(text.clone()));
        let round: Option<Time> = spec.round.as_ref().map(parse).transpose()?;
        let text: PolicyText = spec.text();
        let handle = &self.scheduler.handle;
        let (is_same, clock, is_paused) =
            handle.read(|state| (*state.policy() == text, state.engine().clock(), state.is_paused()));
        if !is_same {
            self.operate(OperatorAction::Policy(text)).await?;
        }
        if clock != round.map_or(Clock::Events, Clock::rounds) {
            self.operate(OperatorAction::Round(round)).await?;
        }
        match (spec.paused, is_paused) {
            (true, false) => self.operate(OperatorAction::Pause).await,
            (false, true) => self.operate(OperatorAction::Resume).await,
            _ => Ok(()),
        }
    }

    async fn set_policy_status(&self, policy: &SchedulingPolicy, error: Option<ObjectError>) {
        let meta = &policy.metadata;
        let path = format!("{}/schedulingpolicies/{}/status", crds::API, meta.name);
        let error = error.map(|error| error.to_string());
        let has_changed = self
            .set_accepted(&path, &policy.status, meta.generation, error.as_deref())
            .await;
        if let Some(error) = error.filter(|_| has_changed) {
            tracing::warn!("SchedulingPolicy {}: {error}", meta.name);
            self.warn_about_policy(policy, &error).await;
        }
    }

    /// Writes an event about a policy that is not in use. The policy in force stays.
    async fn warn_about_policy(&self, policy: &SchedulingPolicy, error: &str) {
        let settings = &self.scheduler.settings;
        if settings.events == Events::None {
            return;
        }
        let object = ObjectRef {
            api_version: crds::GROUP_VERSION.to_owned(),
            kind: "SchedulingPolicy".to_owned(),
            name: policy.metadata.name.clone(),
            uid: policy.metadata.uid.clone(),
            ..ObjectRef::default()
        };
        let component = &settings.reconciler.scheduler_name;
        let event = Event::about(object, "Warning", "PolicyRefused", error, component, now_micros());
        if let Err(error) = self.scheduler.client.post(&event.path(), &event).await {
            tracing::warn!("event about a SchedulingPolicy: {error}");
        }
    }

    /// Writes to the status of an object whether it is in use, if that has changed; returns whether it has.
    async fn set_accepted(
        &self,
        path: &str,
        before: &Value,
        generation: Option<i64>,
        error: Option<&str>,
    ) -> bool {
        let status = crds::accepted_status(error, generation, seconds_time(now_micros()));
        let has_changed = |key: &str| before.get(key) != status.get(key);
        if !has_changed("message") && !has_changed("observedGeneration") {
            return false;
        }
        self.patch_status(path, status).await;
        true
    }
}
