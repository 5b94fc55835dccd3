//! CPU and memory that policies give to pods, and that pods give back.
//!
//! Each slot has what its pod was granted. A pod that requests something else is resized, before it is bound or while it runs.
//! Until its node has taken back what a pod has too much, no other pod gets it: bindings and growth on that node wait. What a
//! pod does not give back in time is unavailable to the scheduler.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::state::Attempt;
use dovetail_cluster::{JobId, Need};
use dovetail_model::{NodeShare, Share, Time};

use super::gang::{Gang, Member, TaskSlot};
use super::over::Over;
use super::{ClusterTransaction, Reconciler, machine, stopping};
use crate::action::{Action, Removal, ResizePod};
use crate::identity::GangKey;
use crate::pod_size::ResizeTrouble;

/// How long a node may take to resize a pod until what the pod has too much counts as unavailable.
const GIVE_BACK_WITHIN: Time = Time::from_secs(30);
/// How long a gang waits for CPU and memory of other pods until it is queued again.
const WAIT_FOR_ROOM: Time = Time::from_secs(60);

/// A request to change CPU and memory of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeRequest {
    /// What the pod is to get.
    pub target: Share,
    /// What became of it.
    pub state: ResizeState,
}

/// What became of a request to change CPU and memory of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeState {
    /// It was sent.
    Sent,
    /// The API server has accepted it.
    Accepted,
    /// The API server has refused it, for this reason.
    Refused(String),
}

/// Returns what a pod was granted that is found when the scheduler starts: what it requests.
pub(super) fn found(r: &Reconciler, member: &Member) -> Share {
    match r.features.can_resize() {
        true => member.size.desired,
        false => member.identity.resources.share(),
    }
}

/// Sets what each pod of an attempt gets of the CPU and memory of its job.
pub(super) fn grant(r: &mut Reconciler, key: &GangKey, job: JobId, tx: &impl ClusterTransaction) {
    let state = tx.state();
    let Some(attempt) = state.job(job).and_then(|job| job.attempt()) else {
        return;
    };
    if !r.features.can_resize() {
        return;
    }
    let by_policy = state.engine().policy().needs().union().contains(Need::Resize);
    let gang = r.gangs.entry(key);
    let shares = granted(gang, attempt);
    for (index, share) in shares {
        // Under other policies only pods that were resized before get back what they requested.
        let was_resized = gang
            .pod_in(&gang.slots[index])
            .is_some_and(|member| member.size.requested.is_some());
        let slot = &mut gang.slots[index];
        slot.granted = match by_policy || was_resized {
            true => share,
            false => slot.resources.share(),
        };
    }
}

/// Returns the slots of an attempt with their CPU and memory: what they request if that is what their job has on the node, else
/// in proportion to their GPUs.
fn granted(gang: &Gang, attempt: &Attempt) -> Vec<(usize, Share)> {
    let mut granted = Vec::new();
    for (place, part) in attempt.allocation.shares.iter().enumerate() {
        let on_node = gang.slots.iter().enumerate();
        let on_node = on_node.filter(|(_, slot)| slot.node == part.node && !slot.stray);
        let slots: Vec<(usize, &TaskSlot)> = on_node.collect();
        let whole = Share::new(attempt.cpu_milli_at(place), part.memory_mib);
        granted.extend(divide(&slots, part, whole));
    }
    granted
}

fn divide(slots: &[(usize, &TaskSlot)], part: &NodeShare, whole: Share) -> Vec<(usize, Share)> {
    let sum = |slots: &mut dyn Iterator<Item = &TaskSlot>| {
        slots.fold(Share::default(), |sum, slot| sum.plus(slot.resources.share()))
    };
    let requested = sum(&mut slots.iter().map(|(_, slot)| *slot));
    // A request per GPU is rounded up.
    let gpus = part.gpus.count().max(1);
    let is_requested =
        |amount: u64, requested: u64| (requested..requested + u64::from(gpus)).contains(&amount);
    let beside = sum(&mut slots
        .iter()
        .map(|(_, slot)| *slot)
        .filter(|slot| slot.gpus.is_empty()));
    let all: u32 = slots.iter().map(|(_, slot)| slot.gpus.len() as u32).sum();
    let per_gpu = whole.minus(beside).over(all);
    let of_slot = |(index, slot): &(usize, &TaskSlot)| {
        let own = slot.resources.share();
        let mut share = match slot.gpus.is_empty() {
            true => own,
            false => per_gpu.times(slot.gpus.len() as u32),
        };
        if is_requested(u64::from(whole.cpu_milli), u64::from(requested.cpu_milli)) {
            share.cpu_milli = own.cpu_milli;
        }
        if is_requested(whole.memory_mib, requested.memory_mib) {
            share.memory_mib = own.memory_mib;
        }
        (*index, share)
    };
    slots.iter().map(of_slot).collect()
}

/// Handles the command to give an attempt other CPU and memory.
pub(super) fn resize(r: &mut Reconciler, job: JobId, tx: &mut impl ClusterTransaction) {
    let Some(key) = r.gangs.key_of_job(job).cloned() else {
        return;
    };
    if !r.features.can_resize() {
        return;
    }
    grant(r, &key, job, tx);
    let slots = r.gangs[&key].slots.iter();
    let pods: Vec<String> = slots.filter_map(|slot| slot.pod.clone()).collect();
    let now = tx.state().now();
    for uid in pods {
        // Before other pods get what this one is to give back.
        note_at(r, &uid, now, tx);
    }
    machine::visit(r, &key, tx);
}

/// Requests that pods of a gang are resized that have not what they were granted. A pod grows when its node has room.
pub(super) fn request(r: &mut Reconciler, key: &GangKey) {
    if !r.features.can_resize() {
        return;
    }
    let gang = &r.gangs[key];
    let slots = gang.slots.iter();
    let requests: Vec<ResizePod> = slots.filter_map(|slot| request_for(r, gang, slot)).collect();
    for resize in requests {
        if let Some(member) = r.gangs.entry(key).members.get_mut(&resize.pod.uid) {
            sent(member, Some(&resize));
        }
        r.actions.push(Action::Resize(resize));
    }
}

fn request_for(r: &Reconciler, gang: &Gang, slot: &TaskSlot) -> Option<ResizePod> {
    let member = gang.pod_in(slot)?;
    let node = member.node.as_ref().filter(|_| member.occupies_node())?;
    if member.deleting || member.removal_requested || slot.stray {
        return None;
    }
    let grows = slot.granted.minus(member.size.desired);
    let target = match fits(r, node, grows) {
        true => slot.granted,
        false => slot.granted.at_most(member.size.desired),
    };
    change(member, target)
}

/// Returns the change that gives a pod this size, unless the last request was the same.
fn change(member: &Member, target: Share) -> Option<ResizePod> {
    let is_pending = |request: &ResizeRequest| request.state == ResizeState::Sent || request.target == target;
    if member.resize.as_ref().is_some_and(is_pending) {
        return None;
    }
    Some(ResizePod {
        pod: member.id.clone(),
        target,
        amounts: member.size.change_to(target, member.node.is_some())?,
        requested: member.size.requested_text(),
    })
}

/// Returns the change that a pod needs before it is bound to a slot.
pub(super) fn at_binding(r: &Reconciler, member: &Member, slot: &TaskSlot) -> Option<ResizePod> {
    r.features.can_resize().then(|| change(member, slot.granted))?
}

/// Notes a request that is sent.
pub(super) fn sent(member: &mut Member, resize: Option<&ResizePod>) {
    if let Some(resize) = resize {
        member.resize = Some(ResizeRequest {
            target: resize.target,
            state: ResizeState::Sent,
        });
    }
}

/// Handles the answer to a request.
pub(super) fn finish(
    r: &mut Reconciler,
    uid: &str,
    (target, result): (Share, Result<(), String>),
    tx: &mut impl ClusterTransaction,
) {
    let Some(key) = r.gangs.key_of_pod(uid).cloned() else {
        return;
    };
    let Some(member) = r.gangs.entry(&key).members.get_mut(uid) else {
        return;
    };
    let state = match result {
        Ok(()) => ResizeState::Accepted,
        Err(message) => ResizeState::Refused(message),
    };
    member.resize = Some(ResizeRequest { target, state });
    note(r, uid, tx);
    machine::visit(r, &key, tx);
}

/// Returns the slots of a gang whose pods wait for room.
pub(super) fn slots_that_await_room(gang: &Gang) -> Vec<usize> {
    if gang.awaits_room.is_none() {
        return Vec::new();
    }
    let waits = |index: &usize| gang.pod_in(&gang.slots[*index]).is_some_and(Member::is_waiting);
    (0..gang.slots.len()).filter(waits).collect()
}

/// Checks whether the pods of these slots can be bound: their nodes have what the pods were granted.
pub(super) fn has_room(r: &Reconciler, key: &GangKey, slots: &[usize]) -> bool {
    if !r.features.can_resize() {
        return true;
    }
    let gang = &r.gangs[key];
    // What is needed of each node, and whether that is more than was granted there.
    let mut needed: BTreeMap<String, (Share, bool)> = BTreeMap::new();
    for slot in slots.iter().map(|index| &gang.slots[*index]) {
        let Some(member) = gang.pod_in(slot) else { continue };
        let is_refused = matches!(
            &member.resize,
            Some(ResizeRequest { target, state: ResizeState::Refused(_) }) if *target == slot.granted
        );
        // A pod that cannot be resized is bound with what it requests, if there is room.
        let share = match is_refused {
            true => member.size.desired,
            false => slot.granted,
        };
        let (sum, is_more) = needed.entry(r.nodes.name(slot.node)).or_default();
        *sum = sum.plus(share);
        *is_more |= !slot.granted.covers(share);
    }
    let has_room = |(node, (share, is_more)): (&String, &(Share, bool))| match is_more {
        true => has_unused(r, node, *share),
        false => fits(r, node, *share),
    };
    needed.iter().all(has_room)
}

/// Checks whether a node has this much beside its pods. Where no pod has more than it was granted, what the scheduler granted
/// always fits.
fn fits(r: &Reconciler, node: &str, more: Share) -> bool {
    more == Share::default() || r.over.on(node).next().is_none() || has_unused(r, node, more)
}

/// Checks whether a node has this much that no pod has, or is about to get.
fn has_unused(r: &Reconciler, node: &str, more: Share) -> bool {
    let is_here = |m: &&Member| {
        (m.occupies_node() && m.node.as_deref() == Some(node)) || m.in_flight.as_deref() == Some(node)
    };
    let members = r.gangs.iter().flat_map(|gang| gang.members.values());
    let used = members.filter(is_here).map(|m| {
        let sent = m
            .resize
            .as_ref()
            .map_or(Share::default(), |request| request.target);
        let is_sent = m
            .resize
            .as_ref()
            .is_some_and(|request| request.state == ResizeState::Sent);
        match is_sent {
            true => m.size.held.at_least(sent),
            false => m.size.held,
        }
    });
    let used = used.fold(Share::default(), Share::plus);
    r.nodes.usable(node).covers(used.plus(more))
}

/// Compares what a pod has with what it was granted, and reports what it keeps.
pub(super) fn note(r: &mut Reconciler, uid: &str, tx: &mut impl ClusterTransaction) {
    if r.features.can_resize() && !was_never_resized(r, uid) {
        let now = tx.state().now();
        note_at(r, uid, now, tx);
    }
}

/// Checks whether a pod has had what its manifest requests from its creation on, as most pods.
fn was_never_resized(r: &Reconciler, uid: &str) -> bool {
    let gang = r.gangs.key_of_pod(uid).and_then(|key| r.gangs.get(key));
    let Some(member) = gang.and_then(|gang| gang.members.get(uid)) else {
        return r.over.of(uid).is_none();
    };
    let size = &member.size;
    member.resize.is_none()
        && size.requested.is_none()
        && size.trouble.is_none()
        && size.held == size.desired
        && r.over.of(uid).is_none()
}

fn note_at(r: &mut Reconciler, uid: &str, now: Time, tx: &mut impl ClusterTransaction) {
    warn(r, uid);
    let before = r.over.of(uid);
    let over = match over(r, uid) {
        Some((node, share)) if share != Share::default() => {
            let since = before.map_or(now, |before| before.since);
            let is_kept = keeps(r, uid) || now.since(since) >= GIVE_BACK_WITHIN;
            Some((
                node,
                Over {
                    share,
                    since,
                    is_kept,
                },
            ))
        }
        Some(_) => None,
        // It has no slot any more, and what it has is taken back when it is deleted.
        None if is_on_node(r, uid) => return,
        None => None,
    };
    if over.as_ref().map(|(_, over)| *over) == before {
        return;
    }
    let left = r.over.remove(uid);
    if let Some((node, over)) = &over {
        r.over.insert(node, uid, *over);
    }
    let nodes: BTreeSet<String> = left.into_iter().chain(over.map(|(node, _)| node)).collect();
    for node in nodes {
        r.nodes.set_kept(&node, r.over.kept_on(&node), tx);
        visit_waiting(r, &node, tx);
    }
}

/// Visits the gangs on a node that may wait for what another pod has given back.
fn visit_waiting(r: &mut Reconciler, node: &str, tx: &mut impl ClusterTransaction) {
    for key in r.gangs.on_node(node, r.nodes.known_id(node)) {
        machine::visit(r, &key, tx);
    }
}

fn is_on_node(r: &Reconciler, uid: &str) -> bool {
    let gang = r.gangs.key_of_pod(uid).and_then(|key| r.gangs.get(key));
    let member = gang.and_then(|gang| gang.members.get(uid));
    member.is_some_and(Member::occupies_node)
}

/// Returns the node of a pod and what the pod has there beyond what it was granted; `None` without a slot.
fn over(r: &Reconciler, uid: &str) -> Option<(String, Share)> {
    let (member, slot) = slot_of(r, uid)?;
    let node = member.node.clone().filter(|_| member.occupies_node())?;
    Some((node, member.size.held_beyond(slot.granted)))
}

fn slot_of<'a>(r: &'a Reconciler, uid: &str) -> Option<(&'a Member, &'a TaskSlot)> {
    let gang = r.gangs.get(r.gangs.key_of_pod(uid)?)?;
    let slot = gang.slots.iter().find(|slot| slot.pod.as_deref() == Some(uid))?;
    Some((gang.members.get(uid)?, slot))
}

/// Checks whether a pod will not give back what it has too much.
fn keeps(r: &Reconciler, uid: &str) -> bool {
    let Some((member, slot)) = slot_of(r, uid) else {
        return false;
    };
    let is_refused = |request: &ResizeRequest| matches!(request.state, ResizeState::Refused(_));
    member.size.trouble.is_some()
        || member.size.kept(slot.granted).is_some()
        || member.resize.as_ref().is_some_and(is_refused)
}

/// Writes an event about a pod that is not resized, once for each node, reason and attempt.
fn warn(r: &mut Reconciler, uid: &str) {
    let Some((member, slot)) = slot_of(r, uid).filter(|(member, _)| member.occupies_node()) else {
        return;
    };
    let node = member.node.clone().unwrap_or_default();
    let has = member.size.held;
    let has = format!("it has {}m CPU and {} MiB", has.cpu_milli, has.memory_mib);
    let (reason, message) = match (&member.size.trouble, &member.resize) {
        (Some(trouble), _) => {
            let cause = match trouble {
                ResizeTrouble::Infeasible(_) => "can never resize",
                ResizeTrouble::Deferred(_) => "cannot resize",
                ResizeTrouble::Failed(_) => "failed to resize",
            };
            let message = format!(
                "node {node} {cause} pod {}: {}; {has}",
                member.id,
                trouble.message()
            );
            (trouble.reason(), message)
        }
        (
            None,
            Some(ResizeRequest {
                state: ResizeState::Refused(why),
                ..
            }),
        ) => (
            "ResizeRefused",
            format!("pod {} cannot be resized: {why}; {has}", member.id),
        ),
        (None, _) => {
            let Some((container, resource)) = member.size.kept(slot.granted) else {
                return;
            };
            let message = format!(
                "container {container} of pod {} keeps its {resource}: its resizePolicy would restart it; {has}",
                member.id
            );
            ("ResizeSkipped", message)
        }
    };
    let (pod, Some(key)) = (member.id.clone(), r.gangs.key_of_pod(uid).cloned()) else {
        return;
    };
    if r.gangs.entry(&key).resize_warnings.insert((node, reason)) {
        r.actions.push(Action::Warn { pod, reason, message });
    }
}

/// Lets what pods have not given back in time count as unavailable, and queues gangs again that wait for it for too long.
pub(super) fn expire(r: &mut Reconciler, now: Time, tx: &mut impl ClusterTransaction) {
    let late = |over: &Over| !over.is_kept && now.since(over.since) >= GIVE_BACK_WITHIN;
    let pods = r.over.iter();
    let late: Vec<String> = pods
        .filter(|(_, over)| late(over))
        .map(|(uid, _)| uid.clone())
        .collect();
    for uid in late {
        // The clock of the state stands still while nothing else happens.
        note_at(r, &uid, now, tx);
    }
    let is_late = |gang: &Gang| {
        gang.has_controller
            && gang
                .awaits_room
                .is_some_and(|since| now.since(since) >= WAIT_FOR_ROOM)
    };
    for key in r.gangs.keys_where(is_late) {
        let gang = r.gangs.entry(&key);
        gang.awaits_room = None;
        if let (Some(job), Some(attempt)) = (gang.job, gang.attempt) {
            let seconds = WAIT_FOR_ROOM.as_secs_f64();
            let message = format!("other pods did not give back CPU and memory within {seconds} s");
            stopping::abort(r, &key, (job, attempt), Removal::now("NoRoom", message), tx);
        }
    }
}
