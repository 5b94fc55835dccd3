//! Progress of gangs: what their pods report becomes a fact.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::state::Progress;
use dovetail_cluster::{AttemptId, Fact, JobId, JobState};
use dovetail_model::Time;

use super::gang::Gang;
use super::{ClusterTransaction, Reconciler};
use crate::identity::GangKey;
use crate::pod_progress::{PodProgress, ProgressReport};

/// Shortest time between two reports of a gang that are recorded. An earlier one is recorded later.
const SHORTEST: Time = Time::from_secs(1);

/// The last reports of pods, and gangs whose last report is not recorded yet.
#[derive(Debug, Default)]
pub(super) struct ProgressTable {
    /// By uid of the pod, with its namespace and name.
    reports: BTreeMap<String, (String, String, ProgressReport)>,
    /// Uid by namespace and name, because the deletion of an object may not have the uid.
    uids: BTreeMap<(String, String), String>,
    late: BTreeSet<GangKey>,
}

impl ProgressTable {
    fn put(&mut self, object: &PodProgress) {
        let (meta, spec) = (&object.metadata, &object.spec);
        let key = (meta.namespace.clone(), meta.name.clone());
        if let Some(before) = self.uids.insert(key, spec.pod_uid.clone())
            && before != spec.pod_uid
        {
            self.reports.remove(&before);
        }
        let report = (meta.namespace.clone(), meta.name.clone(), spec.report());
        self.reports.insert(spec.pod_uid.clone(), report);
    }

    fn remove(&mut self, object: &PodProgress) {
        let key = (object.metadata.namespace.clone(), object.metadata.name.clone());
        if let Some(uid) = self.uids.remove(&key) {
            self.reports.remove(&uid);
        }
    }

    /// Returns the progress of a gang: that of the pod that is least far, and the last checkpoint that all of them have.
    fn of(&self, gang: &Gang) -> Option<ProgressReport> {
        let pods = gang.slots.iter().filter_map(|slot| gang.pod_in(slot));
        let own = pods.filter_map(|m| {
            let (namespace, name, report) = self.reports.get(&m.id.uid)?;
            // A pod speaks for itself only.
            (*namespace == m.id.namespace && *name == m.id.name).then_some(*report)
        });
        let reports: Vec<ProgressReport> = own.collect();
        let last = *reports.iter().min_by_key(|report| report.progress.step)?;
        let checkpoint = reports.iter().map(|report| report.progress.checkpoint).min()?;
        Some(ProgressReport {
            progress: Progress {
                checkpoint,
                ..last.progress
            },
            ..last
        })
    }
}

/// Applies a list of all reports. Pods are not listed yet, or their gangs are visited again.
pub(super) fn list(r: &mut Reconciler, all: &[PodProgress], tx: &mut impl ClusterTransaction) {
    r.progress = ProgressTable::default();
    for object in all {
        put(r, object, tx);
    }
}

/// Applies a new or changed report.
pub(super) fn put(r: &mut Reconciler, object: &PodProgress, tx: &mut impl ClusterTransaction) {
    r.progress.put(object);
    let Some(key) = r.gangs.key_of_pod(&object.spec.pod_uid).cloned() else {
        return;
    };
    record(r, &key, tx);
}

/// Applies the deletion of a report.
pub(super) fn remove(r: &mut Reconciler, object: &PodProgress) {
    r.progress.remove(object);
}

/// Records reports that came too early after others.
pub(super) fn record_late(r: &mut Reconciler, tx: &mut impl ClusterTransaction) {
    for key in std::mem::take(&mut r.progress.late) {
        // The clock of the state stands still while nothing else happens.
        if let Some(gang) = r.gangs.get_mut(&key) {
            gang.reported = None;
        }
        record(r, &key, tx);
    }
}

/// Records the last report of the gang of a pod that is gone, however soon it came after another: it has the checkpoint that
/// was made when the pod was told to stop.
pub(super) fn record_last(r: &mut Reconciler, uid: &str, tx: &mut impl ClusterTransaction) {
    let Some(key) = r.gangs.key_of_pod(uid).cloned() else {
        return;
    };
    if r.progress.late.remove(&key) {
        r.gangs.entry(&key).reported = None;
        record(r, &key, tx);
    }
}

/// Records the progress of a running gang if it has changed.
pub(super) fn record(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) {
    let Some(gang) = r.gangs.get(key) else { return };
    let Some((job, attempt)) = running(gang, tx) else {
        return;
    };
    let now = tx.state().now();
    let Some(report) = r.progress.of(gang) else { return };
    let last = gang.reported;
    if last.is_some_and(|(_, of, before)| (of, before) == (attempt, report)) {
        return;
    }
    if last.is_some_and(|(at, of, _)| of == attempt && now.since(at) < SHORTEST) {
        r.progress.late.insert(key.clone());
        return;
    }
    r.gangs.entry(key).reported = Some((now, attempt, report));
    tx.record(Fact::Reported {
        job,
        attempt,
        made: report.made,
        progress: report.progress,
    });
}

/// Returns the job and the attempt of a gang whose pods all run, or have been told to stop.
fn running(gang: &Gang, tx: &impl ClusterTransaction) -> Option<(JobId, AttemptId)> {
    let (job, attempt) = (gang.job?, gang.attempt?);
    let record = tx.state().job(job)?;
    matches!(record.state, JobState::Running | JobState::Stopping(_)).then_some((job, attempt))
}
