//! Gangs that the policy stopped, while their controllers recreate the pods.
//!
//! Such a gang stays in the queue: it keeps its place, what the policy knows about it, and the GPUs that it is moved to. It may get
//! GPUs before its pods exist; they are bound together when all of them do.

use dovetail_cluster::state::JobRecord;
use dovetail_cluster::{AttemptId, Cause, Fact, JobId, JobState, has_resources_of};
use dovetail_model::Time;

use super::gang::Gang;
use super::slots::SlotPod;
use super::{ClusterTransaction, Reconciler, machine, request, slots, stopping};
use crate::action::Removal;
use crate::identity::GangKey;
use crate::pod_resources::PodResources;

/// How long a gang stays in the queue, or holds GPUs, without its pods.
const RECREATE_WITHIN: Time = Time::from_secs(30);

/// Pods that the controller of a gang is expected to recreate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recreation {
    /// When the gang leaves the queue, or loses its GPUs, if they do not exist.
    pub until: Time,
    /// Resources of each pod.
    pub pods: Vec<PodResources>,
}

/// Returns the pods to expect when the last pod of a stopped attempt is deleted; `None` if the job is to leave the queue until
/// they exist.
pub(super) fn expected(
    r: &Reconciler,
    key: &GangKey,
    job: JobId,
    tx: &impl ClusterTransaction,
) -> Option<Recreation> {
    let gang = &r.gangs[key];
    let attempt = tx.state().job(job)?.attempt()?;
    let by_policy = matches!(
        attempt.cause,
        Some(Cause::Preempted(_) | Cause::Moved | Cause::Resized)
    );
    let is_whole = gang.succeeded().next().is_none() && gang.min_pods() == Some(gang.slots.len());
    let is_recreated = gang.has_controller && gang.parent.is_none() && gang.abort.is_none();
    (by_policy && is_whole && is_recreated).then(|| Recreation {
        until: tx.state().now() + RECREATE_WITHIN,
        pods: gang.slots.iter().map(|slot| slot.resources).collect(),
    })
}

/// Checks whether the pods of a queued gang exist again. With other resources than before, it is queued again.
pub(super) fn check_queued(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    let Some(members) = r.gangs[key].complete_members() else {
        return;
    };
    r.gangs.entry(key).recreation = None;
    let request = request::constrained_request(r, key, &members, tx);
    let request = request.and_then(|request| request::job(&request));
    let record = tx.state().job(job).filter(|job| job.state == JobState::Queued);
    let same = |record: &JobRecord| {
        let request = request.as_ref();
        request.is_ok_and(|request| has_resources_of(&record.request, request))
    };
    if record.is_some_and(|record| !same(record)) {
        tx.record(Fact::WorkloadLost { job });
        machine::visit(r, key, tx);
    }
}

/// Returns the pods of an attempt that is started before all of them exist; `None` if they do.
pub(super) fn awaited_pods(gang: &Gang) -> Option<Vec<SlotPod>> {
    let recreation = gang.recreation.as_ref()?;
    let is_complete = gang.complete_members().is_some();
    (!is_complete).then(|| recreation.pods.iter().map(|pod| (*pod, None)).collect())
}

/// Lets a gang wait for its pods from now on.
pub(super) fn wait_from(gang: &mut Gang, now: Time) {
    if let Some(recreation) = &mut gang.recreation {
        recreation.until = now + RECREATE_WITHIN;
    }
}

/// Checks whether the pods of a gang with GPUs exist again; returns whether the attempt can continue.
pub(super) fn check_active(
    r: &mut Reconciler,
    key: &GangKey,
    (job, attempt): (JobId, AttemptId),
    tx: &mut impl ClusterTransaction,
) -> bool {
    let gang = &r.gangs[key];
    if gang.recreation.is_none() {
        return true;
    }
    let is_filled = slots::fill_vacant(gang).len() == gang.slots.len();
    if is_filled {
        r.gangs.entry(key).recreation = None;
    } else if gang.complete_members().is_some() {
        let message = "the pods of the gang were recreated with other resources";
        let removal = Removal::now("NotWhole", message);
        stopping::abort(r, key, (job, attempt), removal, tx);
    }
    is_filled
}

/// Takes gangs out of the queue, or off their GPUs, whose pods were not recreated in time.
pub(super) fn expire(r: &mut Reconciler, now: Time, tx: &mut impl ClusterTransaction) {
    let is_late = |gang: &Gang| {
        gang.recreation
            .as_ref()
            .is_some_and(|recreation| recreation.until <= now)
    };
    for key in r.gangs.keys_where(is_late) {
        let gang = r.gangs.entry(&key);
        gang.recreation = None;
        let (Some(job), attempt) = (gang.job, gang.attempt) else {
            continue;
        };
        let state = tx.state().job(job).map(|job| &job.state);
        match (state, attempt) {
            (Some(JobState::Starting), Some(attempt)) => {
                let seconds = RECREATE_WITHIN.as_secs_f64();
                let message = format!("the pods of the gang were not recreated within {seconds} s");
                stopping::abort(r, &key, (job, attempt), Removal::now("NotWhole", message), tx);
            }
            (Some(JobState::Queued), _) => {
                tx.record(Fact::WorkloadLost { job });
                machine::visit(r, &key, tx);
            }
            _ => {}
        }
    }
}
