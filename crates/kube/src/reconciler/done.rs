//! Gangs that are done before all their pods are: enough of a role have succeeded, or too many have failed.

use std::collections::BTreeMap;

use super::Reconciler;
use super::gang::{Gang, Member, Phase};
use crate::action::{PodId, Removal};
use crate::identity::GangKey;

/// How a gang that is done went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Enough pods of a role have succeeded.
    Enough,
    /// Too many pods of a role have failed, for good.
    TooManyFailed,
}

/// The role of a pod: what its owner makes.
fn role(member: &Member) -> &str {
    member.identity.controller.as_ref().map_or("", |owner| &owner.uid)
}

/// Whether a pod has failed and nobody tries again. What somebody told to go has not failed.
fn has_failed(member: &Member) -> bool {
    matches!(member.phase, Phase::Failed(_))
        && member.identity.completion.is_last_try
        && !member.deleting
        && !member.removed
}

impl Gang {
    /// How it went, once that does not depend on what still runs.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        if self.rides_on.is_some() {
            return None;
        }
        let roles = self.roles_that_decide();
        let failed = roles.values().find(|v| **v == Verdict::TooManyFailed);
        failed.or(roles.values().next()).copied()
    }

    /// Roles of which enough have succeeded or too many failed.
    fn roles_that_decide(&self) -> BTreeMap<String, Verdict> {
        let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for member in self.members.values() {
            let (succeeded, failed) = counts.entry(role(member)).or_default();
            *succeeded += u32::from(member.phase == Phase::Succeeded);
            *failed += u32::from(has_failed(member));
        }
        let reached = |member: &Member| {
            let (succeeded, failed) = counts[role(member)];
            let rules = member.identity.completion;
            let verdict = match (rules.min_failed, rules.min_succeeded) {
                (Some(most), _) if failed >= most.max(1) => Verdict::TooManyFailed,
                (_, Some(enough)) if succeeded >= enough.max(1) => Verdict::Enough,
                _ => return None,
            };
            Some((role(member).to_owned(), verdict))
        };
        self.members.values().filter_map(reached).collect()
    }
}

impl Reconciler {
    /// What still runs of a gang that is done is ended, once: by its owners where they can, else by us.
    pub(super) fn end_what_is_done(&mut self, key: &GangKey) {
        let gang = &self.gangs[key];
        let Some(verdict) = gang.verdict().filter(|_| !gang.is_done) else {
            return;
        };
        let runs_on = |m: &Member| !m.phase.is_over() && !m.deleting;
        let why = Removal {
            reason: "GangIsDone",
            message: match verdict {
                Verdict::Enough => "enough pods of its gang have succeeded".to_owned(),
                Verdict::TooManyFailed => "too many pods of its gang have failed".to_owned(),
            },
            may_wait: false,
            warn_s: 0,
        };
        let bare: Vec<PodId> = gang
            .members
            .values()
            .filter(|m| runs_on(m) && m.identity.controller.is_none())
            .map(|m| m.id.clone())
            .collect();
        // The owner of the role that has decided it knows the rule itself: its Job is to be complete, not suspended.
        let decided = gang.roles_that_decide();
        self.stop_owners(key, |m| runs_on(m) && !decided.contains_key(role(m)));
        for pod in bare {
            self.remove(key, &pod, &why);
        }
        self.gang_entry(key).is_done = true;
    }
}
