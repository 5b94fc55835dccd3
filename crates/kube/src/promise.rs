//! Virtual clusters, topologies and policies as they are written down in the cluster.

use dovetail_cluster::{Actor, OperatorAction, PolicyText};
use dovetail_kubeapi::{now_micros, seconds_time};
use dovetail_model::{Time, parse_span};

use crate::carry_out::Hands;
use crate::objects::Objects;
use crate::resources::{self, ClusterTopology, SchedulingPolicy, VirtualCluster};
use crate::scheduler::{Scheduler, SchedulerError};

impl Scheduler {
    /// What is promised has changed.
    pub(crate) async fn promise(&self, objects: &Objects, hands: &Hands) -> Result<(), SchedulerError> {
        if !(objects.clusters.listed && objects.topologies.listed) {
            return Ok(());
        }
        let clusters: Vec<VirtualCluster> = objects.clusters.known.values().cloned().collect();
        let topologies: Vec<ClusterTopology> = objects.topologies.known.values().cloned().collect();
        let verdict = resources::virtual_clusters(&clusters, &topologies);
        let verdict = match verdict {
            Ok(all) => {
                let same = self.handle.read(|state| *state.virtual_clusters() == all);
                match same {
                    true => Ok(()),
                    false => self.operate(OperatorAction::VirtualClusters(Box::new(all))).await,
                }
            }
            Err(why) => Err(why),
        };
        if let Err(why) = &verdict {
            tracing::warn!("virtual clusters: {why}");
        }
        self.in_transaction(hands, |reconciler, desk| reconciler.retry_refused(desk))
            .await?;
        for (plural, name, generation, status) in objects.promised() {
            let said = resources::accepted(&verdict, generation, seconds_time(now_micros()));
            if status.get("message") != said.get("message")
                || status.get("observedGeneration") != said.get("observedGeneration")
            {
                self.patch_status(&format!("{}/{plural}/{name}/status", resources::API), said)
                    .await;
            }
        }
        Ok(())
    }

    async fn operate(&self, what: OperatorAction) -> Result<(), String> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.handle
            .operate(what, Actor::Kubernetes(None))
            .then(move |done| drop(answer.send(done)));
        match answered.await {
            Ok(done) => done.map_err(|refusal| refusal.to_string()),
            Err(_) => Err("the scheduler has ended".to_owned()),
        }
    }

    pub(crate) async fn set_policy(&self, objects: &Objects, _hands: &Hands) -> Result<(), SchedulerError> {
        let Some(policy) = objects.policies.known.values().next() else {
            let text = self.settings.policy.clone();
            if self.handle.read(|state| *state.policy() != text) {
                let _ = self.operate(OperatorAction::Policy(text)).await;
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
        let said = resources::accepted(verdict, policy.metadata.generation, seconds_time(now_micros()));
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
            .read(|state| (*state.policy() == text, state.clock(), state.is_paused()));
        if !same {
            self.operate(OperatorAction::Policy(text)).await?;
        }
        let wanted = match round {
            None => "events".to_owned(),
            Some(period) => format!("rounds:{}s", period.as_secs_f64()),
        };
        if clock != wanted {
            self.operate(OperatorAction::Round(round)).await?;
        }
        match (paused, is_paused) {
            (true, false) => self.operate(OperatorAction::Pause).await,
            (false, true) => self.operate(OperatorAction::Resume).await,
            _ => Ok(()),
        }
    }
}
