//! Gangs that end before all their pods have ended: enough pods of a role have succeeded, or too many have failed.

use std::collections::BTreeMap;

use super::gang::{Gang, Member, PodPhase};
use super::{Reconciler, stopping};
use crate::action::{PodId, Removal};
use crate::identity::GangKey;

/// Result of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Enough pods of a role have succeeded.
    Succeeded,
    /// Too many pods of a role have failed.
    Failed,
}

/// The role of a pod: its controller creates the pods of one role.
fn role(member: &Member) -> &str {
    member.identity.controller.as_ref().map_or("", |owner| &owner.uid)
}

/// Checks whether a pod has failed and is not recreated. An evicted pod has not failed.
fn has_failed(member: &Member) -> bool {
    matches!(member.phase, PodPhase::Failed(_))
        && member.identity.completion.is_last_try
        && !member.deleting
        && !member.removal_requested
}

/// Returns the result of a gang, once it does not depend on the pods that still run.
pub(super) fn verdict(gang: &Gang) -> Option<Verdict> {
    if gang.parent.is_some() {
        return None;
    }
    let roles = deciding_roles(gang);
    let failed = roles.values().find(|v| **v == Verdict::Failed);
    failed.or(roles.values().next()).copied()
}

/// Returns the roles of which enough pods have succeeded or too many failed.
fn deciding_roles(gang: &Gang) -> BTreeMap<String, Verdict> {
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for member in gang.members.values() {
        let (succeeded, failed) = counts.entry(role(member)).or_default();
        *succeeded += u32::from(member.phase == PodPhase::Succeeded);
        *failed += u32::from(has_failed(member));
    }
    let decided = |member: &Member| {
        let (succeeded, failed) = counts[role(member)];
        let rule = member.identity.completion;
        let verdict = match (rule.min_failed, rule.min_succeeded) {
            (Some(limit), _) if failed >= limit.max(1) => Verdict::Failed,
            (_, Some(enough)) if succeeded >= enough.max(1) => Verdict::Succeeded,
            _ => return None,
        };
        Some((role(member).to_owned(), verdict))
    };
    gang.members.values().filter_map(decided).collect()
}

/// Stops the remaining pods of a gang that has its result, once: by their controllers, or directly if they have none.
pub(super) fn stop_remaining(r: &mut Reconciler, key: &GangKey) {
    let gang = &r.gangs[key];
    let Some(verdict) = verdict(gang).filter(|_| !gang.remaining_stopped) else {
        return;
    };
    let message = match verdict {
        Verdict::Succeeded => "enough pods of the gang have succeeded",
        Verdict::Failed => "too many pods of the gang have failed",
    };
    let remains = |m: &Member| !m.phase.has_ended() && !m.deleting;
    let without_controller: Vec<PodId> = gang
        .members
        .values()
        .filter(|m| remains(m) && m.identity.controller.is_none())
        .map(|m| m.id.clone())
        .collect();
    // The controller of the deciding role has the same rule: its Job is to complete, not to be suspended.
    let decided = deciding_roles(gang);
    stopping::stop_owners(r, key, |m| remains(m) && !decided.contains_key(role(m)));
    for pod in without_controller {
        stopping::remove(r, key, &pod, &Removal::now("GangIsDone", message));
    }
    r.gangs.entry(key).remaining_stopped = true;
}
