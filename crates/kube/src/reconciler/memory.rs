//! What earlier leaders wrote about gangs: a gang continues with its job, its place in the queue and its service.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::state::{EarlierService, JobRecord};
use dovetail_cluster::{AttemptId, Cause, Fact, JobId, JobState};
use dovetail_kubeapi::Owner;
use dovetail_model::Time;

use super::gang::{Gang, Member};
use super::{ClusterTransaction, Reconciler};
use crate::action::Action;
use crate::gang_history::{GangHistory, QueuedAs};
use crate::identity::{GangKey, GangSize};

/// What is known about a waiting gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) job: Option<JobId>,
    pub(super) size: Option<GangSize>,
    /// Whether the job was checked when it was submitted. What only the pods state may have been written by their user.
    pub(super) is_checked: bool,
    submitted: Time,
    queued: Option<Time>,
    earlier: EarlierService,
}

impl Remembered {
    /// Lets a job that was announced continue from here.
    pub(super) fn recall(&self, job: JobId, tx: &mut impl ClusterTransaction) {
        tx.record(Fact::Recalled {
            job,
            submitted: self.submitted,
            queued: self.queued,
            earlier: self.earlier,
        });
    }
}

/// Histories of gangs that an earlier leader stopped, by gang.
#[derive(Debug, Default)]
pub(super) struct Histories(BTreeMap<GangKey, GangHistory>);

impl Histories {
    pub(super) fn new(all: Vec<GangHistory>) -> Self {
        Self(all.into_iter().map(|history| (history.key(), history)).collect())
    }

    /// Returns the history of a gang, unless it is that of other pods with the same name.
    fn of(&self, gang: &Gang) -> Option<&GangHistory> {
        let history = self.0.get(&gang.key)?;
        let owners = &history.metadata.owner_references;
        let is_owner = |m: &Member| {
            let controller = m.identity.controller.as_ref();
            controller.is_some_and(|c| owners.iter().any(|owner| owner.uid == c.uid))
        };
        gang.members.values().any(is_owner).then_some(history)
    }
}

/// Returns what an earlier leader wrote about a gang that waits; `None` for a gang that was created under this one.
pub(super) fn remembered(r: &Reconciler, gang: &Gang) -> Option<Remembered> {
    let waiting = gang.waiting();
    let first = waiting.first().filter(|_| gang.parent.is_none())?;
    let queued = waiting.iter().find_map(|m| m.queued_as);
    if let Some(history) = r.histories.of(gang) {
        let spec = &history.spec;
        return Some(Remembered {
            job: Some(JobId::from(spec.job)),
            size: GangSize::new(spec.pods, Some(spec.min_pods)).ok(),
            is_checked: true,
            submitted: Time(spec.submitted),
            queued: queued.map(|queued| Time(queued.since)),
            earlier: spec.service.into(),
        });
    }
    if !gang.found_at_start {
        return None;
    }
    // A job cannot have been submitted before its pods were created, whatever they state.
    let created = waiting.iter().map(|m| m.identity.created).max()?;
    let annotated = first.identity.job_id;
    let not_before = |at: i64| Time(at.max(created));
    Some(Remembered {
        job: annotated.or(queued.map(|queued| JobId::from(queued.job))),
        size: queued.and_then(|queued| queued.size()),
        is_checked: annotated.is_some(),
        submitted: not_before(queued.map_or(created, |queued| queued.submitted)),
        queued: Some(not_before(queued.map_or(created, |queued| queued.since))),
        earlier: EarlierService::default(),
    })
}

/// Returns when the attempt of a running gang got its GPUs, when its job was submitted, and what that received before. Pods of
/// versions that did not write it count from when their nodes accepted them.
pub(super) fn bound_history(gang: &Gang, (job, attempt): (JobId, AttemptId)) -> (Time, Time, EarlierService) {
    let of_attempt = |m: &&Member| m.bound_as.as_ref().is_some_and(|b| b.is_for(job, attempt));
    let mut members = gang.members.values().filter(of_attempt);
    if let Some(history) = members.clone().find_map(|m| m.history) {
        let earlier = history.before.map_or_else(EarlierService::default, Into::into);
        return (Time(history.submitted), Time(history.since), earlier);
    }
    let created = Time(gang.created().unwrap_or(0));
    let since = members.next().and_then(|m| m.started).map_or(created, Time);
    (created, since, EarlierService::default())
}

/// Returns what is written on the waiting pods of a queued gang.
pub(crate) fn queued_as(gang: &Gang, job: &JobRecord) -> Option<QueuedAs> {
    if job.state != JobState::Queued || gang.parent.is_some() {
        return None;
    }
    let size = gang.size?;
    Some(QueuedAs {
        job: u32::try_from(job.id).ok()?,
        submitted: job.submitted.0,
        since: job.waiting_since()?.0,
        pods: size.pods,
        min_pods: size.min_pods,
    })
}

/// Returns the history of a gang that is being stopped, or was; `None` if its pods are not recreated.
fn history(
    r: &Reconciler,
    key: &GangKey,
    job: JobId,
    tx: &mut impl ClusterTransaction,
) -> Option<GangHistory> {
    let gang = r
        .gangs
        .get(key)
        .filter(|g| g.has_controller && g.parent.is_none())?;
    let record = tx.state().job(job)?;
    let cause = record.attempt().and_then(|attempt| attempt.cause.as_ref());
    if matches!(cause, Some(Cause::Cancelled(_))) {
        return None;
    }
    let mut seen = BTreeSet::new();
    let controllers = gang
        .members
        .values()
        .filter_map(|m| m.identity.controller.as_ref());
    let mut owners: Vec<Owner> = controllers.filter(|o| seen.insert(&o.uid)).cloned().collect();
    for owner in &mut owners {
        // The history has owners, but no controller.
        owner.controller = None;
    }
    if owners.is_empty() {
        owners.clone_from(&gang.history_owners);
    }
    GangHistory::of(key, gang.size?, owners, record, tx.state().now())
}

/// Lets removals of pods of a gang wait until its history is written, once for each attempt.
pub(super) fn save_before(
    r: &mut Reconciler,
    key: &GangKey,
    (job, removals): (JobId, Vec<Action>),
    tx: &mut impl ClusterTransaction,
) {
    let attempt = tx.state().job(job).map(JobRecord::last_attempt);
    let is_saved = r.gangs[key].history_of == attempt;
    match history(r, key, job, tx).filter(|_| !is_saved) {
        Some(history) => {
            let gang = r.gangs.entry(key);
            gang.history_of = attempt;
            gang.history_owners.clone_from(&history.metadata.owner_references);
            let history = Box::new(history);
            r.actions.push(Action::SaveHistory {
                history,
                then: removals,
            });
        }
        None => r.actions.extend(removals),
    }
}

/// Writes the history of a gang whose attempt has ended.
pub(super) fn save(
    r: &mut Reconciler,
    key: &GangKey,
    (job, attempt): (JobId, Option<AttemptId>),
    tx: &mut impl ClusterTransaction,
) {
    let has_ended = tx.state().job(job).is_none_or(|job| job.state.has_ended());
    if let Some(history) = history(r, key, job, tx).filter(|_| !has_ended) {
        r.gangs.entry(key).history_of = attempt;
        let history = Box::new(history);
        r.actions.push(Action::SaveHistory {
            history,
            then: Vec::new(),
        });
    }
}

/// Deletes the history of a gang whose job has ended.
pub(super) fn forget(r: &mut Reconciler, key: &GangKey) {
    let is_listed = r.histories.0.remove(key).is_some();
    let gang = r.gangs.entry(key);
    gang.history_owners.clear();
    if gang.history_of.take().is_some() || is_listed {
        r.actions.push(Action::DeleteHistory { gang: key.clone() });
    }
}
