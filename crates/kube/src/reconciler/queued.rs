//! The steps of gangs whose job does not hold GPUs: queued, waiting for pods, or ended.

use std::sync::Arc;

use dovetail_cluster::{Actor, Fact, Hold, JobId, JobState};
use dovetail_model::Time;

use super::{ClusterTransaction, Reconciler, machine, memory, recreation, request, stopping};
use crate::action::{PodId, Removal};
use crate::identity::GangKey;

/// Withdraws a queued job when its pods are deleted.
pub(super) fn check_pods(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    let gang = r.gangs.entry(key);
    gang.clear_attempt();
    if gang.recreation.is_some() {
        return recreation::check_queued(r, key, job, tx);
    }
    let waiting = gang.waiting().len();
    if waiting >= gang.min_pods().unwrap_or(1) {
        return;
    }
    match waiting {
        0 => tx.record(Fact::Cancelled {
            job,
            by: Actor::kubernetes("its pods were deleted"),
        }),
        _ => tx.record(Fact::WorkloadLost { job }),
    }
    machine::visit(r, key, tx);
}

/// Queues a job again when its pods are recreated.
pub(super) fn await_pods(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    let gang = r.gangs.entry(key);
    gang.clear_attempt();
    gang.recreation = None;
    stopping::evict_strays(r, key);
    let gang = &r.gangs[key];
    if gang.members.is_empty() && !gang.has_controller {
        tx.record(Fact::Cancelled {
            job,
            by: Actor::kubernetes("its pods were deleted and have no controller"),
        });
        return machine::visit(r, key, tx);
    }
    let Some(members) = gang.complete_members() else {
        return;
    };
    let request = request::constrained_request(r, key, &members, tx);
    match request.and_then(|request| request::job(&request)) {
        Ok(request) => {
            let gang = r.gangs.entry(key);
            (gang.constraint, gang.refused) = (request.constraint, None);
            tx.record(Fact::WorkloadReady {
                job,
                request: Some(Arc::new(request)),
            });
        }
        Err(error) => r.gangs.entry(key).refused = Some(error),
    }
}

/// Cancels jobs that have waited for pods for too long: their controllers do not recreate them.
pub(super) fn cancel_missing(r: &mut Reconciler, now: Time, timeout: Time, tx: &mut impl ClusterTransaction) {
    let has_pods = |job: JobId| r.gangs.of_job(job).is_some_and(|gang| !gang.members.is_empty());
    let jobs = tx.state().unfinished_jobs();
    let missing: Vec<JobId> = jobs
        .filter(|job| job.state == JobState::Held(Hold::Workload) && job.since + timeout <= now)
        .map(|job| job.id)
        .filter(|job| !has_pods(*job))
        .collect();
    for job in missing {
        let hours = timeout.as_secs_f64() / 3600.0;
        tx.record(Fact::Cancelled {
            job,
            by: Actor::kubernetes(format!("its pods were not recreated within {hours} h")),
        });
        if let Some(key) = r.gangs.key_of_job(job).cloned() {
            machine::visit(r, &key, tx);
        }
    }
}

/// Separates a gang from its job, which has ended. The remaining pods may become another job.
pub(super) fn leave_job(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    r.gangs.clear_job(key);
    memory::forget(r, key);
    let gang = r.gangs.entry(key);
    gang.clear_attempt();
    gang.recreation = None;
    let on_nodes = gang.members.values().filter(|m| m.occupies_node() && !m.deleting);
    let remaining: Vec<PodId> = on_nodes.map(|m| m.id.clone()).collect();
    let removal = Removal::now("JobEnded", format!("job {job} of the pod has ended"));
    for pod in remaining {
        stopping::remove(r, key, &pod, &removal);
    }
    machine::visit(r, key, tx);
}
