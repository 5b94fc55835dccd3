//! The step of a gang whose job is being stopped, and the removal of pods.

use std::collections::BTreeSet;

use dovetail_cluster::state::JobRecord;
use dovetail_cluster::{Actor, AttemptId, Cause, Fact, JobId, NodeState};

use super::gang::{Gang, Member};
use super::{ClusterTransaction, Reconciler, ends, machine, memory, recreation};
use crate::action::{Action, PodId, Removal};
use crate::identity::GangKey;

/// Handles the command to stop an attempt.
pub(super) fn stop(r: &mut Reconciler, job: JobId, attempt: AttemptId, tx: &mut impl ClusterTransaction) {
    let Some(key) = r.gangs.key_of_job(job).cloned() else {
        return;
    };
    let stopped = tx.state().job(job).and_then(|job| job.attempt());
    let Some(stopped) = stopped.filter(|a| a.id == attempt) else {
        return;
    };
    let by_user = match &stopped.cause {
        Some(Cause::Cancelled(by) | Cause::Held(by)) => !by.is_kubernetes(),
        _ => false,
    };
    if by_user && r.gangs[&key].parent.is_none() {
        stop_owners(r, &key, |_| true);
    }
    // With the attempt set, a late command to start it is ignored.
    r.gangs.entry(&key).attempt = Some(attempt);
    machine::visit(r, &key, tx);
}

/// Aborts an attempt that cannot continue: its pods are removed, and the job is queued again when they are recreated.
pub(super) fn abort(
    r: &mut Reconciler,
    key: &GangKey,
    (job, attempt): (JobId, AttemptId),
    removal: Removal,
    tx: &mut impl ClusterTransaction,
) {
    tx.record(Fact::AttemptAborted {
        job,
        attempt,
        reason: removal.message.clone(),
    });
    r.gangs.entry(key).abort = Some(removal);
    machine::visit(r, key, tx);
}

/// Removes the pods of a gang that is being stopped, and reports the end of the attempt when they are deleted.
pub(super) fn step(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    let removal = removal(r, job, tx);
    let gang = &r.gangs[key];
    let on_lost_node = |m: &Member| m.node.as_ref().is_some_and(|node| is_lost(r, node, tx));
    let none_in_flight = gang.members.values().all(|m| m.in_flight.is_none());
    let mut on_nodes = gang.members.values().filter(|m| m.occupies_node());
    let all_deleted = none_in_flight && on_nodes.all(on_lost_node);
    let has_controller = gang.has_controller;
    let (pods, before) = (gang.pods_on_nodes(), r.actions.len());
    for pod in pods {
        remove(r, key, &pod, &removal);
    }
    if !all_deleted {
        let removals = r.actions.split_off(before);
        return memory::save_before(r, key, (job, removals), tx);
    }
    let recreation = recreation::expected(r, key, job, tx);
    match has_controller {
        true if recreation.is_some() => {}
        true => tx.record(Fact::WorkloadLost { job }),
        false => tx.record(Fact::Cancelled {
            job,
            by: Actor::kubernetes(format!("{}; its pods have no controller", removal.message)),
        }),
    }
    let attempt = tx.state().job(job).map(JobRecord::last_attempt);
    ends::report_ends(r, job, tx);
    memory::save(r, key, (job, attempt), tx);
    let gang = r.gangs.entry(key);
    gang.clear_attempt();
    gang.recreation = recreation;
    machine::visit(r, key, tx);
}

fn is_lost(r: &Reconciler, node: &str, tx: &impl ClusterTransaction) -> bool {
    let node = r.nodes.id(node).and_then(|id| tx.state().node(id));
    node.is_none_or(|node| node.state == NodeState::Lost)
}

/// Returns why the pods of a stopped job are removed.
pub(super) fn removal(r: &Reconciler, job: JobId, tx: &impl ClusterTransaction) -> Removal {
    let gang = r.gangs.of_job(job);
    if let Some(abort) = gang.and_then(|gang| gang.abort.clone()) {
        return abort;
    }
    let state = tx.state();
    let attempt = state.job(job).and_then(|job| job.attempt());
    let policy = &state.policy().policy;
    let (reason, message) = match attempt.and_then(|attempt| attempt.cause.clone()) {
        Some(Cause::Preempted(by)) => {
            let by = by.and_then(|by| Some((by, state.job(by)?)));
            let by = by.map(|(id, job)| format!(" by {} (job {id})", job.request.name));
            let message = format!("preempted{} under policy {policy}", by.unwrap_or_default());
            return preemption(gang, "Preempted", message);
        }
        Some(Cause::Moved) => {
            return preemption(
                gang,
                "Moved",
                format!("moved to other GPUs under policy {policy}"),
            );
        }
        Some(Cause::Resized) => {
            let message = format!("resized to another number of GPUs under policy {policy}");
            return preemption(gang, "Resized", message);
        }
        Some(Cause::NodeLost(node)) => (
            "NodeLost",
            format!("node {} of the gang was lost", r.nodes.name(node)),
        ),
        Some(Cause::Cancelled(by)) => ("Cancelled", format!("stopped by {by}")),
        Some(Cause::Held(by)) => ("Held", format!("held by {by}")),
        Some(Cause::TimeLimit) => ("TimeLimit", "time limit reached".to_owned()),
        Some(Cause::Failed) => ("GangFailed", "another pod of the gang failed".to_owned()),
        Some(Cause::Platform(error)) => ("GangFailed", error),
        None => ("Stopped", "the job was stopped".to_owned()),
    };
    Removal::now(reason, message)
}

/// Returns a removal that the scheduler chose: budgets are respected, and the pods get time for a checkpoint.
fn preemption(gang: Option<&Gang>, reason: &'static str, message: String) -> Removal {
    let first = gang.and_then(Gang::first);
    Removal {
        respects_budgets: true,
        warn_s: first.map_or(0, |m| m.identity.checkpoint_s),
        ..Removal::now(reason, message)
    }
}

/// Requests the removal of a pod, once.
pub(super) fn remove(r: &mut Reconciler, key: &GangKey, pod: &PodId, removal: &Removal) {
    let Some(member) = r.gangs.entry(key).members.get_mut(&pod.uid) else {
        return;
    };
    if !std::mem::replace(&mut member.removal_requested, true) {
        r.actions.push(Action::Remove {
            pod: pod.clone(),
            removal: removal.clone(),
        });
    }
}

/// Removes bound pods without a slot: an earlier attempt left them.
pub(super) fn evict_strays(r: &mut Reconciler, key: &GangKey) {
    let gang = &r.gangs[key];
    let is_stray = |m: &&Member| {
        m.occupies_node() && !m.removal_requested && m.bound_as.is_some() && !gang.has_slot(&m.id.uid)
    };
    let strays: Vec<PodId> = gang
        .members
        .values()
        .filter(is_stray)
        .map(|m| m.id.clone())
        .collect();
    let removal = Removal::now("AttemptEnded", "the attempt of the pod has ended");
    for pod in strays {
        remove(r, key, &pod, &removal);
    }
}

/// Suspends the Jobs of matching pods, so that they delete their pods and create no more. A gang without pods has the Jobs of
/// those that are recreated.
pub(super) fn stop_owners(r: &mut Reconciler, key: &GangKey, matches: impl Fn(&Member) -> bool) {
    let gang = &r.gangs[key];
    let members = gang.members.values().filter(|m| matches(m));
    let before = gang.history_owners.iter().filter(|_| gang.members.is_empty());
    let jobs: BTreeSet<String> = members
        .filter_map(|m| m.identity.controller.as_ref())
        .chain(before)
        .filter(|owner| owner.api_version == "batch/v1" && owner.kind == "Job")
        .map(|owner| owner.name.clone())
        .collect();
    for job in jobs {
        r.actions.push(Action::StopOwner {
            namespace: key.namespace.clone(),
            job,
        });
    }
}
