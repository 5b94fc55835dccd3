//! Adopts the gangs that run when the scheduler starts.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::{AttemptId, Fact, JobId, JobState};
use dovetail_model::{Allocation, NodeId};

use super::gang::{BoundAs, Gang, Member, PodPhase, TaskSlot};
use super::slots::{allocation, overlap};
use super::{ClusterTransaction, Reconciler, active, bind, memory, request, resize, submitted};
use crate::identity::{GangKey, SizeSource};
use crate::plan::{Plan, PlannedPod, parse_gpus};
use crate::pod_resources::PodResources;

/// Adopts every gang with a bound pod, or whose pods of a started attempt are still to be bound.
pub(super) fn adopt_running(r: &mut Reconciler, tx: &mut impl ClusterTransaction) {
    let mut running = Vec::new();
    for gang in r.gangs.iter() {
        let counts = |m: &&Member| m.occupies_node() || ended_before_others_were_bound(gang, m);
        let bound = gang.members.values().filter(counts);
        let bound = bound.filter_map(|m| m.bound_as.as_ref());
        if let Some(last) = bound.max_by_key(|bound| bound.attempt) {
            running.push((last.job, last.attempt, gang.key.clone()));
        }
    }
    running.sort();
    submitted::set_start_times(r);
    let held = held_gpus(r);
    let mut waiting = submitted::waiting_with_id(r);
    for (annotated, attempt, key) in running {
        submitted::announce_before(r, &mut waiting, annotated, tx);
        // Of two gangs with the same id, one gets a new one.
        let job = annotated.max(tx.state().next_job());
        let gang = &r.gangs[&key];
        let mut slots = find_slots(r, gang, (annotated, attempt));
        // Running pods and plans that were adopted before take precedence over a plan.
        slots.retain(|slot| {
            let is_own = |gpu: &u32| held.get(&(slot.node, *gpu)).is_none_or(|holder| *holder == key);
            slot.gpus.iter().all(is_own)
        });
        if !are_free(&allocation(&slots), tx) {
            slots.retain(|slot| gang.pod_in(slot).is_some_and(Member::occupies_node));
        }
        adopt(r, &key, (job, annotated, attempt), slots, tx);
    }
    submitted::announce_before(r, &mut waiting, JobId::MAX, tx);
}

/// Returns the GPUs that pods use, with their gangs.
fn held_gpus(r: &Reconciler) -> BTreeMap<(NodeId, u32), GangKey> {
    let mut held = BTreeMap::new();
    for gang in r.gangs.iter() {
        for member in gang.members.values().filter(|m| m.occupies_node()) {
            let node = member.node.as_ref().and_then(|name| r.nodes.id(name));
            if let (Some(node), Some(bound)) = (node, &member.bound_as) {
                held.extend(bound.gpus.iter().map(|gpu| ((node, *gpu), gang.key.clone())));
            }
        }
    }
    held
}

fn adopt(
    r: &mut Reconciler,
    key: &GangKey,
    (job, annotated, attempt): (JobId, JobId, AttemptId),
    slots: Vec<TaskSlot>,
    tx: &mut impl ClusterTransaction,
) {
    let gang = &r.gangs[key];
    let members: Vec<Member> = slots
        .iter()
        .filter_map(|slot| gang.pod_in(slot))
        .cloned()
        .collect();
    // Running pods stay where they are, even if their nodes have changed.
    let tables = (&r.nodes, &r.gangs);
    let constraint = r
        .constraints
        .get_or_create(&members, &BTreeMap::new(), tables, tx);
    let constraint = constraint.ok();
    let gang = &r.gangs[key];
    let Ok(mut request) = request::gang_request(gang, &members, constraint, tx) else {
        // No node of its pods is known: they get no slot and are evicted.
        return;
    };
    // Slots of deleted pods count too.
    request.pods = request::pod_sets(slots.iter().map(|slot| slot.resources));
    let (submitted, since, earlier) = memory::bound_history(gang, (annotated, attempt));
    tx.record(Fact::Found {
        job,
        request: Box::new(request),
        submitted,
        attempt,
        since,
        allocation: allocation(&slots),
        earlier,
    });
    let state = tx.state().job(job).map(|job| &job.state);
    let is_adopted = state == Some(&JobState::Starting);
    r.gangs.set_job(key, job);
    let gang = r.gangs.entry(key);
    gang.constraint = constraint;
    let size = gang.members.values().next().map(|m| m.identity.size.clone());
    if let (Some(SizeSource::Known(size)), None) = (size, &gang.parent) {
        gang.size = Some(size);
    }
    if !is_adopted {
        // Another gang has its GPUs: its pods get no slot and are evicted.
        return tx.record(Fact::WorkloadLost { job });
    }
    gang.attempt = Some(attempt);
    gang.slots = slots;
    let waits = |slot: &TaskSlot| gang.pod_in(slot).is_some_and(Member::is_waiting);
    let unbound: Vec<usize> = (0..gang.slots.len())
        .filter(|index| waits(&gang.slots[*index]))
        .collect();
    bind::bind_slots(r, key, (job, attempt), &unbound, tx);
    // Before any other gang is queued, so that no decision is taken without it.
    active::report(r, key, (job, attempt), tx);
}

/// Returns the slots of an attempt, and those of bound pods that are not part of it.
fn find_slots(r: &Reconciler, gang: &Gang, (job, attempt): (JobId, AttemptId)) -> Vec<TaskSlot> {
    let plans = plans(gang);
    let plan = plans.iter().find(|p| (p.job, p.attempt) == (job, attempt));
    let mut slots = match plan {
        Some(plan) => planned_slots(r, gang, plan),
        None => bound_slots(r, gang, (job, attempt)),
    };
    let with_slot: BTreeSet<&String> = slots.iter().filter_map(|s| s.pod.as_ref()).collect();
    let on_nodes = gang.members.values().filter(|m| m.occupies_node());
    let strays: Vec<TaskSlot> = on_nodes
        .filter(|m| !with_slot.contains(&m.id.uid))
        .filter_map(|m| bound_slot(r, m, true))
        .collect();
    slots.retain(|slot| !strays.iter().any(|stray| overlap(slot, stray)));
    slots.extend(strays);
    slots
}

/// Returns the slot that is written on a bound pod.
fn bound_slot(r: &Reconciler, member: &Member, stray: bool) -> Option<TaskSlot> {
    Some(TaskSlot {
        resources: member.identity.resources,
        granted: resize::found(r, member),
        node: r.nodes.id(member.node.as_ref()?)?,
        gpus: member.bound_as.as_ref()?.gpus.clone(),
        pod: Some(member.id.uid.clone()),
        stray,
    })
}

/// Returns the pods of an attempt, running ones first.
fn bound_for(gang: &Gang, job: JobId, attempt: AttemptId) -> Vec<(&Member, &BoundAs)> {
    let members = gang.members.values();
    let bound = members.filter_map(|m| Some((m, m.bound_as.as_ref()?)));
    let mut bound: Vec<(&Member, &BoundAs)> = bound.filter(|(_, b)| b.is_for(job, attempt)).collect();
    bound.sort_by_key(|(m, _)| m.phase.has_ended());
    bound
}

/// Returns the slots of an attempt without a plan, as they are written on its pods.
fn bound_slots(r: &Reconciler, gang: &Gang, (job, attempt): (JobId, AttemptId)) -> Vec<TaskSlot> {
    let mut slots: Vec<TaskSlot> = Vec::new();
    let bound = bound_for(gang, job, attempt);
    for slot in bound.into_iter().filter_map(|(m, _)| bound_slot(r, m, false)) {
        // The replacement of a pod that ended has the same GPUs: that is one slot.
        if !slots.iter().any(|other| overlap(other, &slot)) {
            slots.push(slot);
        }
    }
    slots
}

/// Returns the slots of a plan, each with the pod that was bound to it, or that was to be bound and still waits.
fn planned_slots(r: &Reconciler, gang: &Gang, plan: &Plan) -> Vec<TaskSlot> {
    let resources = gang.members.values().map(|m| m.identity.resources);
    let largest = resources.max().unwrap_or_default();
    let bound = bound_for(gang, plan.job, plan.attempt);
    let slot = |PlannedPod(pod, node, gpus): &PlannedPod| {
        let gpus = parse_gpus(gpus)?;
        let is_here = |(m, bound): &&(&Member, &BoundAs)| m.node.as_ref() == Some(node) && bound.gpus == gpus;
        let planned = || {
            gang.members
                .values()
                .find(|m| m.id.name == *pod && m.is_waiting())
        };
        let member = bound.iter().find(is_here).map(|(m, _)| *m).or_else(planned);
        let resources = PodResources {
            gpus: gpus.len() as u32,
            ..member.map_or(largest, |m| m.identity.resources)
        };
        Some(TaskSlot {
            resources,
            granted: member.map_or(resources.share(), |m| resize::found(r, m)),
            node: r.nodes.id(node)?,
            gpus,
            pod: member.map(|m| m.id.uid.clone()),
            stray: false,
        })
    };
    plan.slots.iter().filter_map(slot).collect()
}

fn plans(gang: &Gang) -> Vec<Plan> {
    let plans = gang.members.values().filter_map(|m| m.plan.as_ref());
    plans.filter_map(|plan| Plan::parse(plan).ok()).collect()
}

/// Checks whether a pod has succeeded before others of its attempt were bound: an earlier leader ended in between.
fn ended_before_others_were_bound(gang: &Gang, member: &Member) -> bool {
    let Some(bound) = member
        .bound_as
        .as_ref()
        .filter(|_| member.phase == PodPhase::Succeeded)
    else {
        return false;
    };
    let plans = plans(gang);
    let mut plans = plans.iter().filter(|p| bound.is_for(p.job, p.attempt));
    let is_planned = |plan: &Plan, m: &Member| plan.slots.iter().any(|slot| slot.0 == m.id.name);
    plans.any(|plan| gang.waiting().iter().any(|m| is_planned(plan, m)))
}

/// Checks whether no job holds these GPUs.
fn are_free(allocation: &Allocation, tx: &impl ClusterTransaction) -> bool {
    let cluster = tx.state().engine().cluster();
    let mut shares = allocation.shares.iter();
    shares.all(|share| {
        let node = cluster.node(share.node);
        node.is_some_and(|n| n.up && n.free.covers(&share.gpus))
    })
}
