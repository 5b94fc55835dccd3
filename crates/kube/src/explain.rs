//! What is said on pods that wait: why, and when they may start.

use std::collections::BTreeMap;

use dovetail_cluster::{ClusterState, JobId, JobState};

use crate::action::Action;
use crate::reconciler::{Gang, Reconciler};

/// Gangs about which something is said at once, at most.
const AT_ONCE: usize = 32;
/// Pods of a gang on which it is said, at most.
const PODS: usize = 16;

impl Reconciler {
    /// What is to be said now, about gangs that wait and about which something else was said before. `since` is when a pod
    /// must have been made before anything is said about it, and `etas` what is known of when jobs start.
    pub(crate) fn explanations(
        &mut self,
        state: &ClusterState,
        since: i64,
        etas: &BTreeMap<JobId, String>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut said = Vec::new();
        for gang in self.gangs.values() {
            if said.len() >= AT_ONCE {
                break;
            }
            let waiting = gang.waiting();
            let old = waiting.first().is_some_and(|m| m.identity.created <= since);
            let Some((reason, message)) = explanation(gang, state, etas).filter(|_| old) else {
                continue;
            };
            if gang.said == message {
                continue;
            }
            for member in waiting.iter().take(PODS) {
                actions.push(Action::Explain {
                    pod: member.id.clone(),
                    reason,
                    message: message.clone(),
                });
            }
            said.push((gang.key.clone(), message));
        }
        for (key, message) in said {
            if let Some(gang) = self.gangs.get_mut(&key) {
                gang.said = message;
            }
        }
        actions
    }
}

/// Why a gang waits; none if it does not.
pub(crate) fn explanation(
    gang: &Gang,
    state: &ClusterState,
    etas: &BTreeMap<JobId, String>,
) -> Option<(&'static str, String)> {
    if let Some(why) = &gang.refused {
        return Some(("Unschedulable", why.clone()));
    }
    let Some(no) = gang.job else {
        let (_, least) = gang.size?;
        let there = gang.waiting().len();
        return Some((
            "GangIncomplete",
            format!("gang {} has {there} of {least} pods", gang.key),
        ));
    };
    let job = state.job(no)?;
    if !matches!(job.state, JobState::Queued | JobState::Held(_)) {
        return None;
    }
    let why = state.explain(no)?;
    let mut text = format!("job {no}: {}", why.sentence);
    for reason in &why.reasons {
        text.push_str("; ");
        text.push_str(reason);
    }
    if let Some(eta) = etas.get(&no) {
        text.push_str("; ");
        text.push_str(eta);
    }
    Some(("Unschedulable", text))
}
