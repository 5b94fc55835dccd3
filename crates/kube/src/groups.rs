//! What is said on native pod groups of Kubernetes: whether all their pods have a place, and if not, why.

use std::collections::BTreeMap;

use dovetail_cluster::{ClusterState, JobId};

use crate::action::Action;
use crate::explain::explanation;
use crate::reconciler::{Gang, Reconciler, Seat};

/// Groups about which something is said at once, at most.
const AT_ONCE: usize = 32;

impl Reconciler {
    /// What is to be said now about groups, where something else was said before. `since` is when a pod must have been made
    /// before it is said that it waits.
    pub(crate) fn on_groups(
        &mut self,
        state: &ClusterState,
        since: i64,
        etas: &BTreeMap<JobId, String>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for gang in self.gangs.values_mut().filter(|g| g.key.is_native()) {
            if actions.len() >= AT_ONCE {
                break;
            }
            let Some((reason, message)) = standing(gang, state, since, etas) else {
                continue;
            };
            let said = format!("{reason}: {message}");
            if gang.said_on_group == said {
                continue;
            }
            gang.said_on_group = said;
            actions.push(Action::OnGroup {
                namespace: gang.key.namespace.clone(),
                group: gang.key.name.clone(),
                reason,
                message,
            });
        }
        actions
    }
}

/// How a group stands, in the words of the API; none while there is nothing to say.
fn standing(
    gang: &Gang,
    state: &ClusterState,
    since: i64,
    etas: &BTreeMap<JobId, String>,
) -> Option<(&'static str, String)> {
    let placed = |seat: &Seat| {
        let member = seat.pod.as_ref().and_then(|uid| gang.members.get(uid));
        member.is_some_and(|m| m.node.is_some())
    };
    if !gang.seats.is_empty() && gang.seats.iter().all(placed) {
        return Some((SCHEDULED, format!("{} pods are bound", gang.seats.len())));
    }
    let old = gang
        .waiting()
        .first()
        .is_some_and(|m| m.identity.created <= since);
    let (_, message) = explanation(gang, state, etas).filter(|_| old)?;
    Some(("Unschedulable", message))
}

/// The reason for which the condition is true.
pub(crate) const SCHEDULED: &str = "Scheduled";
