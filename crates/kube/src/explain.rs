//! Explanations on pending pods: why they wait, and when they are expected to start.

use std::collections::BTreeMap;

use dovetail_cluster::state::ExplainContext;
use dovetail_cluster::{ClusterState, JobId, JobState};
use dovetail_kubeapi::seconds_time;

use crate::action::Action;
use crate::gang_history::QueuedAs;
use crate::reconciler::{AvoidedNode, Gang, Member, Reconciler, memory};

/// Maximum number of gangs that are explained in one pass; the next pass continues after them.
const GANGS_PER_PASS: usize = 256;
/// Maximum number of gangs for which a pass writes explanations.
const UPDATES_PER_PASS: usize = 32;
/// Maximum number of pods of a gang that get the explanation.
const PODS_PER_GANG: usize = 16;

/// Knowledge about the queue that is used for several passes: it is taken again when as many gangs were explained with it as
/// are queued. So an explanation costs about the same however many gangs are queued, and all gangs are explained with
/// knowledge that is at most one round old.
#[derive(Debug, Default)]
pub(crate) struct ExplainCache {
    context: Option<ExplainContext>,
    /// Number of explanations for which the context is still used.
    remaining: usize,
}

impl ExplainCache {
    /// Returns the context for a pass.
    fn context(&mut self, state: &ClusterState) -> &ExplainContext {
        if self.remaining == 0 {
            self.context = None;
        }
        let remaining = &mut self.remaining;
        self.context.get_or_insert_with(|| {
            let context = state.explain_context();
            *remaining = context.queued_jobs();
            context
        })
    }

    fn explained(&mut self, gangs: usize) {
        self.remaining = self.remaining.saturating_sub(gangs);
    }
}

/// Explains gangs by one state of the cluster.
pub(crate) struct Explainer<'a> {
    state: &'a ClusterState,
    /// Pods that were created later are not explained yet, in microseconds since 1970.
    created_before: i64,
    forecasts: &'a BTreeMap<JobId, String>,
}

impl<'a> Explainer<'a> {
    pub(crate) fn new(
        state: &'a ClusterState,
        created_before: i64,
        forecasts: &'a BTreeMap<JobId, String>,
    ) -> Self {
        Self {
            state,
            created_before,
            forecasts,
        }
    }

    /// Returns explanations for waiting gangs whose explanation has changed.
    pub(crate) fn explain_pods(&self, reconciler: &mut Reconciler, cache: &mut ExplainCache) -> Vec<Action> {
        let context = cache.context(self.state);
        let mut updates = Vec::new();
        let start = reconciler.last_explained.take();
        let (mut last, mut explained) = (start.clone(), 0);
        let gangs = reconciler.gangs.iter_from(start.as_ref());
        let waiting = gangs.filter(|gang| gang.members.values().any(|m| m.is_waiting()));
        for gang in waiting.take(GANGS_PER_PASS) {
            last = Some(gang.key.clone());
            explained += 1;
            if let Some((reason, message)) = self.explain(gang, context)
                && gang.explained != message
            {
                updates.push((gang.key.clone(), reason, message));
            }
            if updates.len() >= UPDATES_PER_PASS {
                break;
            }
        }
        cache.explained(explained);
        reconciler.last_explained = last;
        let mut actions = Vec::new();
        for (key, reason, message) in updates {
            let Some(gang) = reconciler.gangs.get_mut(&key) else {
                continue;
            };
            let queued = queued_as(gang, self.state);
            let explain = |member: &&Member| Action::Explain {
                pod: member.id.clone(),
                reason,
                message: message.clone(),
                queued,
            };
            actions.extend(gang.waiting().iter().take(PODS_PER_GANG).map(explain));
            gang.explained = message;
        }
        actions
    }

    /// Returns the reason and message why a gang waits; `None` if it does not, or not for long enough.
    fn explain(&self, gang: &Gang, context: &ExplainContext) -> Option<(&'static str, String)> {
        let waiting = gang.waiting();
        if waiting.first()?.identity.created > self.created_before {
            return None;
        }
        if let Some(error) = &gang.refused {
            return Some(("Unschedulable", with_avoided(gang, error.to_string())));
        }
        let Some(job) = gang.job else {
            let size = gang.size?;
            let message = format!(
                "gang {} has {} of {} pods",
                gang.key,
                waiting.len(),
                size.min_pods
            );
            return Some(("GangIncomplete", message));
        };
        if !matches!(self.state.job(job)?.state, JobState::Queued | JobState::Held(_)) {
            return None;
        }
        let explanation = self.state.explain_at(job, context)?;
        let mut parts = vec![format!("job {job}: {}", explanation.sentence)];
        parts.extend(explanation.reasons);
        parts.extend(self.forecasts.get(&job).cloned());
        Some(("Unschedulable", with_avoided(gang, parts.join("; "))))
    }
}

fn queued_as(gang: &Gang, state: &ClusterState) -> Option<QueuedAs> {
    memory::queued_as(gang, state.job(gang.job?)?)
}

/// Adds the nodes that the gang avoids to a message.
fn with_avoided(gang: &Gang, mut message: String) -> String {
    for AvoidedNode { until, reason } in gang.avoided.values() {
        if message.contains(reason.as_str()) {
            message = format!("{message}; node avoided until {}", seconds_time(until.0));
        } else {
            message = format!(
                "{message}; {reason}; node avoided until {}",
                seconds_time(until.0)
            );
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Instant;

    use dovetail_cluster::{Clock, Fact, GangRequest, PolicyText, Refusal};
    use dovetail_kubeapi::{Node, Pod};
    use dovetail_model::Time;
    use serde_json::json;

    use super::*;
    use crate::reconciler::{ClusterTransaction, Settings};

    struct TestTransaction<'a>(&'a mut ClusterState);

    impl ClusterTransaction for TestTransaction<'_> {
        fn state(&self) -> &ClusterState {
            self.0
        }

        fn record(&mut self, fact: Fact) {
            self.0.apply(Time(1_800_000_000_000_000), &fact);
        }

        fn check(&self, request: &GangRequest) -> Result<(), Refusal> {
            Ok(request.job().map(drop)?)
        }
    }

    /// Returns a cluster of one GPU with this many queued gangs, each behind all that were created before.
    fn queue(gangs: usize) -> (ClusterState, Reconciler) {
        let policy = PolicyText {
            policy: "fifo".to_owned(),
            ..PolicyText::default()
        };
        let mut state = ClusterState::new(policy, Clock::Events).unwrap();
        let mut reconciler = Reconciler::new(Settings::default(), crate::features::ClusterFeatures::NONE);
        let amounts = json!({"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "1"});
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"capacity": amounts,
            "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}}))
            .unwrap();
        let pod = |i: usize| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": format!("p{i:06}"), "namespace": "ns", "uid": i.to_string(),
                "creationTimestamp": "2026-11-17T00:00:00Z"}, "status": {"phase": "Pending"}, "spec": {"schedulerName": "dovetail",
                "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}))
            .unwrap()
        };
        let pods: Vec<Pod> = (0..gangs).map(pod).collect();
        let mut tx = TestTransaction(&mut state);
        reconciler.list_nodes(&[node], &mut tx);
        reconciler.list_pods(&pods, &mut tx);
        reconciler.take_actions();
        (state, reconciler)
    }

    /// Explains gangs until each was explained once, and returns the time for one gang and how often the queue was looked at.
    fn explain_all(state: &ClusterState, reconciler: &mut Reconciler, gangs: usize) -> (f64, usize) {
        let (forecasts, mut cache) = (BTreeMap::new(), ExplainCache::default());
        let explainer = Explainer::new(state, i64::MAX, &forecasts);
        let (started, mut explained, mut looks) = (Instant::now(), 0, 0);
        while explained < gangs {
            looks += usize::from(cache.remaining == 0);
            let actions = explainer.explain_pods(reconciler, &mut cache);
            assert!(!actions.is_empty(), "{explained} of {gangs} gangs are explained");
            explained += actions.len();
        }
        (started.elapsed().as_secs_f64() / gangs as f64, looks)
    }

    #[test]
    fn an_explanation_costs_the_same_however_many_gangs_are_queued() {
        let measure = |gangs: usize| {
            let (state, mut reconciler) = queue(gangs + 1);
            let (time, looks) = explain_all(&state, &mut reconciler, gangs);
            assert!(looks <= 2, "the queue of {gangs} gangs was sorted {looks} times");
            time
        };
        let (few, many) = (measure(1_000), measure(10_000));
        // Quadratic work would be ten times as much for each gang.
        let ratio = many / few;
        let (few_us, many_us) = (few * 1e6, many * 1e6);
        let message = format!("{few_us:.1} µs a gang of 1,000, {many_us:.1} µs of 10,000: {ratio:.2} times");
        // Not with `println`, whose output the test runner hides when the test passes.
        let _ = writeln!(std::io::stderr(), "{message}");
        assert!(ratio < 4.0, "{message}");
    }

    #[test]
    fn a_gang_that_was_queued_after_the_last_look_is_behind_the_others() {
        let (mut state, mut reconciler) = queue(3);
        let context = state.explain_context();
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "late", "namespace": "ns", "uid": "late",
            "creationTimestamp": "2026-11-17T00:00:00Z"}, "status": {"phase": "Pending"}, "spec": {"schedulerName": "dovetail",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}))
        .unwrap();
        reconciler.put_pod(&pod, &mut TestTransaction(&mut state));
        let explanation = state.explain_at(4, &context).unwrap();
        assert_eq!(explanation.ahead, 2, "{explanation:?}");
    }
}
