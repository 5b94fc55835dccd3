//! Status of native pod groups: whether all their pods are bound, and if not, why.

use crate::action::Action;
use crate::reconciler::{Gang, Reconciler, TaskSlot};

/// Maximum number of groups that are updated in one pass.
const UPDATES_PER_PASS: usize = 32;

/// Reason with which the condition `PodGroupScheduled` is true.
pub(crate) const SCHEDULED: &str = "Scheduled";

/// Returns the status of pod groups whose status has changed.
pub(crate) fn update_groups(reconciler: &mut Reconciler) -> Vec<Action> {
    let mut actions = Vec::new();
    for gang in reconciler.gangs.iter_mut().filter(|gang| gang.key.is_pod_group()) {
        if actions.len() >= UPDATES_PER_PASS {
            break;
        }
        let Some((reason, message)) = status(gang) else {
            continue;
        };
        let status = format!("{reason}: {message}");
        if gang.group_status == status {
            continue;
        }
        gang.group_status = status;
        actions.push(Action::GroupStatus {
            namespace: gang.key.namespace.clone(),
            group: gang.key.name.clone(),
            reason,
            message,
        });
    }
    actions
}

/// Returns the status of a group: whether it is bound, or else the explanation on its pods.
fn status(gang: &Gang) -> Option<(&'static str, String)> {
    let is_bound = |slot: &TaskSlot| gang.pod_in(slot).is_some_and(|m| m.node.is_some());
    if !gang.slots.is_empty() && gang.slots.iter().all(is_bound) {
        return Some((SCHEDULED, format!("{} pods are bound", gang.slots.len())));
    }
    (!gang.explained.is_empty()).then(|| ("Unschedulable", gang.explained.clone()))
}
