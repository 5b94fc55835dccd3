//! The step of a gang without a job: it is submitted, or joins a job that was submitted before its pods existed.

use std::sync::Arc;

use dovetail_cluster::state::End;
use dovetail_cluster::{Fact, Hold, JobId, JobState};
use dovetail_model::Time;

use super::error::GangError;
use super::gang::Member;
use super::{ClusterTransaction, Reconciler, machine, memory, request};
use crate::identity::{GangKey, SizeSource};

/// Submits a gang when it has enough pods.
pub(super) fn submit_when_complete(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) {
    let gang = &r.gangs[key];
    let Some(members) = gang.complete_members().filter(|_| gang.refused.is_none()) else {
        return;
    };
    // The annotated id is that of the gang; elastic pods are jobs of their own.
    let annotated = members.first().and_then(|m| m.identity.job_id);
    let annotated = annotated.filter(|_| gang.parent.is_none());
    if let Some(job) = annotated.filter(|id| is_joinable(*id, tx)) {
        return join(r, key, job, tx);
    }
    match submit(r, key, &members, annotated, tx) {
        Ok(job) => {
            r.gangs.set_job(key, job);
            r.gangs.entry(key).found_at_start = false;
            // A job that continues was announced, and its pods are there.
            machine::visit(r, key, tx);
        }
        Err(error) => r.gangs.entry(key).refused = Some(error),
    }
}

/// Checks whether pods with an annotated id belong to that job. A job that ended because its pods were deleted or missing
/// is submitted again under another id when they are recreated.
fn is_joinable(job: JobId, tx: &impl ClusterTransaction) -> bool {
    match tx.state().job(job).map(|job| &job.state) {
        None => false,
        Some(JobState::Ended(End::Cancelled(by))) => !by.is_kubernetes(),
        Some(_) => true,
    }
}

fn submit(
    r: &mut Reconciler,
    key: &GangKey,
    members: &[Member],
    annotated: Option<JobId>,
    tx: &mut impl ClusterTransaction,
) -> Result<JobId, GangError> {
    let request = request::constrained_request(r, key, members, tx)?;
    let constraint = request.constraint;
    let next = tx.state().next_job();
    let memory = memory::remembered(r, &r.gangs[key]);
    let known = annotated.or(memory.and_then(|memory| memory.job));
    // It was submitted to an earlier leader under this id.
    let known = known.filter(|id| *id >= next);
    if known.is_none() || memory.is_some_and(|memory| !memory.is_checked) {
        tx.check(&request)?;
    }
    let (job, user) = (known.unwrap_or(next), request.user.clone());
    let (request, idempotency_key) = (Arc::new(request::job(&request)?), None);
    match memory {
        None => tx.record(Fact::Submitted {
            job,
            user,
            request,
            key: idempotency_key,
        }),
        Some(memory) => {
            tx.record(Fact::Announced {
                job,
                user,
                request,
                key: idempotency_key,
            });
            memory.recall(job, tx);
        }
    }
    r.gangs.entry(key).constraint = constraint;
    Ok(job)
}

/// Connects a complete gang with the job that its pods name.
fn join(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    let Some(record) = tx.state().job(job) else { return };
    if record.state.has_ended() {
        // Pods that its controller still creates are not started.
        return;
    }
    let user = r.gangs[key].first().map(|m| m.identity.user.as_str());
    let awaits_pods = matches!(record.state, JobState::Held(Hold::Workload | Hold::User(_)));
    if !awaits_pods || r.gangs.key_of_job(job).is_some() || user != Some(record.user.as_str()) {
        r.gangs.entry(key).refused = Some(GangError::JobIdTaken(job));
        return;
    }
    r.gangs.set_job(key, job);
    machine::visit(r, key, tx);
}

/// Returns the waiting gangs whose job id is written on objects, by an earlier leader or with the submission; the largest id
/// first.
pub(super) fn waiting_with_id(r: &mut Reconciler) -> Vec<(JobId, GangKey)> {
    let mut found = Vec::new();
    for gang in r.gangs.iter() {
        let is_bound = |m: &Member| m.occupies_node() && m.bound_as.is_some();
        if gang.members.values().any(is_bound) {
            continue;
        }
        let Some(memory) = memory::remembered(r, gang) else {
            continue;
        };
        let stated = match gang.waiting().first().map(|m| m.identity.size.clone()) {
            Some(SizeSource::Known(size)) => Some(size),
            _ => None,
        };
        if let (Some(job), Some(size)) = (memory.job, stated.or(memory.size)) {
            found.push((job, gang.key.clone(), size));
        }
    }
    for (_, key, size) in &found {
        r.gangs.entry(key).size = Some(*size);
    }
    let mut found: Vec<(JobId, GangKey)> = found.into_iter().map(|(job, key, _)| (job, key)).collect();
    found.sort();
    found.reverse();
    found
}

/// Announces the waiting gangs and the finished jobs with an id below `limit`: ids in the cluster state only grow. The gangs are
/// queued when all running gangs are adopted.
pub(super) fn announce_before(
    r: &mut Reconciler,
    waiting: &mut Vec<(JobId, GangKey)>,
    limit: JobId,
    tx: &mut impl ClusterTransaction,
) {
    while let Some((job, key)) = waiting.pop_if(|(job, _)| *job < limit) {
        record_finished_before(r, job, tx);
        announce(r, &key, job, tx);
    }
    record_finished_before(r, limit, tx);
}

/// Sets the start times of finished jobs whose pods still exist.
pub(super) fn set_start_times(r: &mut Reconciler) {
    for member in r.gangs.iter().flat_map(|gang| gang.members.values()) {
        let finished = member.identity.job_id.and_then(|id| r.finished.get_mut(&id));
        if let (Some(finished), Some(started)) = (finished, member.started) {
            let started = Time(started);
            finished.started = Some(finished.started.map_or(started, |before| before.min(started)));
        }
    }
}

fn record_finished_before(r: &mut Reconciler, limit: JobId, tx: &mut impl ClusterTransaction) {
    let later = r.finished.split_off(&limit);
    for (job, finished) in std::mem::replace(&mut r.finished, later) {
        tx.record(Fact::FoundEnded {
            job,
            user: finished.user,
            request: Arc::new(finished.request),
            submitted: finished.submitted,
            started: finished.started,
            ended: finished.ended,
            end: finished.end,
        });
    }
}

/// Announces a complete gang that was submitted to an earlier leader under this id.
fn announce(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    let gang = &r.gangs[key];
    let Some(members) = gang.complete_members().filter(|_| job >= tx.state().next_job()) else {
        return;
    };
    // The node constraint is set when the gang is queued.
    let Ok(request) = request::gang_request(gang, &members, None, tx) else {
        return;
    };
    let (Ok(of_job), memory) = (request::job(&request), memory::remembered(r, gang)) else {
        return;
    };
    if memory.is_some_and(|memory| !memory.is_checked) && tx.check(&request).is_err() {
        // It is refused, with the reason, when it is visited.
        return;
    }
    tx.record(Fact::Announced {
        job,
        user: request.user,
        request: Arc::new(of_job),
        key: None,
    });
    if let Some(memory) = memory {
        memory.recall(job, tx);
    }
    r.gangs.set_job(key, job);
    r.gangs.entry(key).found_at_start = false;
}
