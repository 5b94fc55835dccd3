//! The step of a gang whose job holds GPUs: it fills vacant slots and reports pods that run, and the end.

use dovetail_cluster::{Actor, AttemptId, Fact, JobId};
use dovetail_model::{NodeId, Time};

use super::error::GangError;
use super::gang::{AvoidedNode, Gang, PodPhase, TaskSlot};
use super::slots::SlotPod;
use super::{
    ClusterTransaction, Reconciler, bind, completion, elastic, ends, machine, progress, recreation, resize,
    slots, stopping,
};
use crate::action::{PodId, Removal};
use crate::identity::GangKey;

/// How long a gang avoids a node whose kubelet rejected a pod.
const AVOID_FOR: Time = Time::from_secs(600);

/// Starts an attempt: assigns slots to pods and requests their bindings.
pub(super) fn start(r: &mut Reconciler, job: JobId, attempt: AttemptId, tx: &mut impl ClusterTransaction) {
    let Some(key) = r.gangs.key_of_job(job).cloned() else {
        return;
    };
    let gang = &r.gangs[&key];
    let started = tx.state().job(job).and_then(|job| job.attempt());
    let Some(started) = started.filter(|a| a.id == attempt && gang.attempt != Some(attempt)) else {
        return;
    };
    let awaited = recreation::awaited_pods(gang);
    let awaits_pods = awaited.is_some();
    let pods = awaited.unwrap_or_else(|| starting_pods(gang, started.allocation.gpus()));
    let Some(assigned) = slots::assign_slots(pods, &started.allocation) else {
        let message = format!("the allocation of job {job} does not fit the pods of the gang");
        tracing::error!("{key}: {message}");
        tx.record(Fact::Cancelled {
            job,
            by: Actor::kubernetes(&message),
        });
        r.gangs.entry(&key).refused = Some(GangError::Resources(message));
        return machine::visit(r, &key, tx);
    };
    let gang = r.gangs.entry(&key);
    gang.begin_attempt(attempt, assigned);
    resize::grant(r, &key, job, tx);
    let gang = r.gangs.entry(&key);
    if awaits_pods {
        recreation::wait_from(gang, tx.state().now());
        return machine::visit(r, &key, tx);
    }
    gang.recreation = None;
    let all: Vec<usize> = (0..gang.slots.len()).collect();
    if is_incomplete(gang) {
        // A pod was deleted while the command was on its way.
        return machine::visit(r, &key, tx);
    }
    bind::bind_slots(r, &key, (job, attempt), &all, tx);
}

/// Returns the pods of an attempt with this number of GPUs.
fn starting_pods(gang: &Gang, gpus: u32) -> Vec<SlotPod> {
    let mut left = gpus;
    let mut chosen = Vec::new();
    for member in gang.waiting() {
        let resources = member.identity.resources;
        if resources.gpus <= left {
            left -= resources.gpus;
            chosen.push((resources, Some(member.id.uid.clone())));
        }
    }
    if let Some(min_pods) = gang.min_pods() {
        chosen.truncate(min_pods);
    }
    chosen
}

/// Performs the step of an active gang.
pub(super) fn step(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &mut impl ClusterTransaction) {
    let Some(attempt) = r.gangs[key].attempt else {
        // The command to start has not arrived yet.
        return;
    };
    if !recreation::check_active(r, key, (job, attempt), tx) {
        return;
    }
    if let Some(removal) = invalid_slots(r, key) {
        return stopping::abort(r, key, (job, attempt), removal, tx);
    }
    if let Some(removal) = avoid_rejecting_nodes(r, key, tx) {
        return stopping::abort(r, key, (job, attempt), removal, tx);
    }
    let mut filled = elastic::fill_vacant_slots(r, key, tx);
    if let Some(removal) = cannot_fill(r, key, &filled) {
        return stopping::abort(r, key, (job, attempt), removal, tx);
    }
    filled.retain(|(index, _)| closed_node(r, &r.gangs[key].slots[*index]).is_none());
    let gang = r.gangs.entry(key);
    let mut unbound = resize::slots_that_await_room(gang);
    for (index, pod) in &filled {
        gang.slots[*index].pod = Some(pod.uid.clone());
    }
    unbound.extend(filled.iter().map(|(index, _)| *index));
    if !unbound.is_empty() {
        bind::bind_slots(r, key, (job, attempt), &unbound, tx);
    }
    resize::request(r, key);
    elastic::submit_elastic_pods(r, key, tx);
    report(r, key, (job, attempt), tx);
    completion::stop_remaining(r, key);
    if has_ended(&r.gangs[key]) {
        ends::report_ends(r, job, tx);
        machine::visit(r, key, tx);
    }
}

/// Returns why the slots of an attempt cannot be used, if they cannot.
fn invalid_slots(r: &Reconciler, key: &GangKey) -> Option<Removal> {
    let gang = &r.gangs[key];
    let bound_elsewhere = |slot: &TaskSlot| {
        let node = gang.pod_in(slot).and_then(|m| m.node.as_ref());
        node.is_some_and(|node| *node != r.nodes.name(slot.node))
    };
    if gang.slots.iter().any(bound_elsewhere) {
        return Some(Removal::now(
            "NotWhole",
            "another scheduler bound a pod of the gang",
        ));
    }
    if is_incomplete(gang) || gang.slots.iter().any(|slot| slot.stray) {
        return Some(Removal::now("NotWhole", "the gang has pods without a known slot"));
    }
    None
}

/// Checks whether an attempt has fewer slots than the gang needs.
fn is_incomplete(gang: &Gang) -> bool {
    gang.min_pods()
        .is_some_and(|min_pods| gang.slots.len() < min_pods)
}

/// Lets a gang avoid nodes whose kubelet rejected a pod: a recreated pod would be rejected again in the same slot. Returns why
/// the attempt is to be aborted; `None` if no pod was rejected, or if the pods are not recreated.
fn avoid_rejecting_nodes(
    r: &mut Reconciler,
    key: &GangKey,
    tx: &mut impl ClusterTransaction,
) -> Option<Removal> {
    let gang = &r.gangs[key];
    if !gang.has_controller || completion::verdict(gang).is_some() {
        return None;
    }
    let rejected = |slot: &TaskSlot| {
        let member = gang.pod_in(slot)?;
        let rejection = member.rejection.as_ref()?;
        let node = r.nodes.name(slot.node);
        Some((
            slot.node,
            format!("node {node} rejected pod {}: {rejection}", member.id.name),
        ))
    };
    let rejections: Vec<(NodeId, String)> = gang.slots.iter().filter_map(rejected).collect();
    let (_, message) = rejections.first()?.clone();
    let (parent, until) = (gang.parent.clone(), tx.state().now() + AVOID_FOR);
    let avoiding = r.gangs.entry(parent.as_ref().unwrap_or(key));
    for (node, reason) in rejections {
        avoiding.avoided.insert(node, AvoidedNode { until, reason });
    }
    // The job of an elastic pod ends with it; its replacement is another one.
    parent.is_none().then(|| Removal::now("PodRejected", message))
}

/// Returns why no pod may take a slot, if none may.
fn closed_node(r: &Reconciler, slot: &TaskSlot) -> Option<String> {
    let name = r.nodes.name(slot.node);
    match r.nodes.get(&name) {
        Some(node) => node
            .closed
            .as_ref()
            .map(|reason| format!("node {name}: {reason}")),
        None => Some(format!("node {name} was deleted")),
    }
}

/// Returns why a gang cannot continue with recreated pods: one of them would need a slot on a node that takes no pods, such as a
/// drained one.
fn cannot_fill(r: &Reconciler, key: &GangKey, filled: &[(usize, PodId)]) -> Option<Removal> {
    let gang = r.gangs.get(key).filter(|gang| gang.has_controller)?;
    let closed = filled
        .iter()
        .find_map(|(index, _)| closed_node(r, &gang.slots[*index]))?;
    let message = format!("a pod of the gang was deleted and cannot be replaced: {closed}");
    Some(Removal {
        respects_budgets: true,
        ..Removal::now("NotWhole", message)
    })
}

/// Reports that pods run, and how far they are.
pub(super) fn report(
    r: &mut Reconciler,
    key: &GangKey,
    (job, attempt): (JobId, AttemptId),
    tx: &mut impl ClusterTransaction,
) {
    report_running(r, key, (job, attempt), tx);
    progress::record(r, key, tx);
}

/// Reports the nodes on which all pods of an attempt run now.
fn report_running(
    r: &mut Reconciler,
    key: &GangKey,
    (job, attempt): (JobId, AttemptId),
    tx: &mut impl ClusterTransaction,
) {
    let gang = r.gangs.entry(key);
    let runs = |slot: &TaskSlot| {
        let member = gang.pod_in(slot);
        member.is_some_and(|m| m.node.is_some() && m.phase != PodPhase::Pending)
    };
    let mut nodes: Vec<NodeId> = gang.slots.iter().map(|s| s.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.retain(|node| !gang.running_on.contains(node));
    nodes.retain(|node| gang.slots.iter().filter(|s| s.node == *node).all(runs));
    gang.running_on.extend(&nodes);
    let has_news = !nodes.is_empty();
    for node in nodes {
        tx.record(Fact::TaskStarted {
            job,
            attempt,
            node,
            sharing: String::new(),
            remarks: Vec::new(),
        });
    }
    let started = tx.state().job(job).and_then(|job| job.attempt()?.running_since);
    let since = running_since(&r.gangs[key]).filter(|_| has_news && started.is_some());
    if let Some(since) = since {
        // By the clock of the pods, so that every leader counts from the same moment.
        tx.record(Fact::RunningSince { job, attempt, since });
    }
}

/// Returns when the last pod of an attempt started, as its node reported it.
fn running_since(gang: &Gang) -> Option<Time> {
    let pods = gang.slots.iter().filter_map(|slot| gang.pod_in(slot));
    pods.filter_map(|m| m.running_since).max().map(Time)
}

/// Checks whether the pods of all slots have ended or were deleted.
fn has_ended(gang: &Gang) -> bool {
    let ended = |slot: &TaskSlot| gang.pod_in(slot).is_none_or(|m| m.phase.has_ended());
    !gang.slots.is_empty() && gang.slots.iter().all(ended)
}
