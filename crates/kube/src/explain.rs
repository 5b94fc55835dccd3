//! Explanations on pending pods: why they wait, and when they are expected to start.

use std::collections::BTreeMap;

use dovetail_cluster::{ClusterState, JobId, JobState, QueuePositions};
use dovetail_kubeapi::seconds_time;

use crate::action::Action;
use crate::reconciler::{AvoidedNode, Gang, Reconciler};

/// Maximum number of gangs that are explained in one pass; the next pass continues after them.
const GANGS_PER_PASS: usize = 256;
/// Maximum number of gangs for which a pass writes explanations.
const UPDATES_PER_PASS: usize = 32;
/// Maximum number of pods of a gang that get the explanation.
const PODS_PER_GANG: usize = 16;

/// Explains gangs by one state of the cluster. The queue is sorted once, not for each gang.
pub(crate) struct Explainer<'a> {
    state: &'a ClusterState,
    positions: QueuePositions,
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
            positions: state.queue_positions(),
            created_before,
            forecasts,
        }
    }

    /// Returns explanations for waiting gangs whose explanation has changed.
    pub(crate) fn explain_pods(&self, reconciler: &mut Reconciler) -> Vec<Action> {
        let mut updates = Vec::new();
        let start = reconciler.last_explained.take();
        let mut last = start.clone();
        let gangs = reconciler.gangs.iter_from(start.as_ref());
        let waiting = gangs.filter(|gang| gang.members.values().any(|m| m.is_waiting()));
        for gang in waiting.take(GANGS_PER_PASS) {
            last = Some(gang.key.clone());
            if let Some((reason, message)) = self.explain(gang)
                && gang.explained != message
            {
                updates.push((gang.key.clone(), reason, message));
            }
            if updates.len() >= UPDATES_PER_PASS {
                break;
            }
        }
        reconciler.last_explained = last;
        let mut actions = Vec::new();
        for (key, reason, message) in updates {
            let Some(gang) = reconciler.gangs.get_mut(&key) else {
                continue;
            };
            actions.extend(
                gang.waiting()
                    .iter()
                    .take(PODS_PER_GANG)
                    .map(|member| Action::Explain {
                        pod: member.id.clone(),
                        reason,
                        message: message.clone(),
                    }),
            );
            gang.explained = message;
        }
        actions
    }

    /// Returns the reason and message why a gang waits; `None` if it does not, or not for long enough.
    pub(crate) fn explain(&self, gang: &Gang) -> Option<(&'static str, String)> {
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
        let explanation = self.state.explain_at(job, &self.positions)?;
        let mut parts = vec![format!("job {job}: {}", explanation.sentence)];
        parts.extend(explanation.reasons);
        parts.extend(self.forecasts.get(&job).cloned());
        Some(("Unschedulable", with_avoided(gang, parts.join("; "))))
    }
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
