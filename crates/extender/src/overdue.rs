//! Overdue steps of kube-scheduler: deleting victims, and asking for pods that can start.

use std::cmp::Reverse;
use std::sync::Arc;

use dovetail_hived::{Answer, Phase};

use crate::extender::{Extender, FilterAnswer};
use crate::pods::{BindCommand, PendingRequest, PodName, PodRecord, PodState, Timestamp};
use crate::updates::UNREPORTED_TIMEOUT;

/// A pod that has its place is bound by the extender after this multiple of `start_after`.
const STUCK_FACTOR: i64 = 10;

/// A command for Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Delete a pod.
    Evict(Eviction),
    /// Bind a pod that kube-scheduler does not ask for.
    Bind(Arc<BindCommand>),
}

/// A pod to delete because another one needs its cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The pod.
    pub pod: PodName,
    /// The pod it is deleted for.
    pub preemptor: PodName,
}

/// Returns commands for the steps that kube-scheduler has not taken in time: victims to delete, and pods to bind.
pub fn overdue_commands(extender: &mut Extender, now: Timestamp) -> Vec<Command> {
    forget_unreported(extender, now);
    let evictions = overdue_victims(extender, now).into_iter().map(Command::Evict);
    let mut commands: Vec<Command> = evictions.collect();
    commands.extend(overdue_starts(extender, now).into_iter().map(Command::Bind));
    commands
}

/// Returns the victims that were not deleted in time. kube-scheduler deletes those of one node at a time, and current
/// versions delete none if the node has enough CPU, memory and other resources that kube-scheduler itself counts.
fn overdue_victims(extender: &mut Extender, now: Timestamp) -> Vec<Eviction> {
    let Some(timeout) = extender.rules.evict_after else {
        return Vec::new();
    };
    let is_due = |pending: &PendingRequest| {
        pending
            .victims_since
            .is_some_and(|since| now.since(since) >= timeout)
    };
    let due: Vec<(PodName, PendingRequest)> = extender
        .pods
        .values()
        .filter_map(|r| Some((&r.name, r.pending.as_ref()?)))
        .filter(|(_, pending)| is_due(pending))
        .map(|(name, pending)| (name.clone(), pending.clone()))
        .collect();
    let mut evictions: Vec<Eviction> = Vec::new();
    for (preemptor, pending) in due {
        let PendingRequest { spec, nodes, .. } = &pending;
        let answer = extender.decide(&preemptor, spec, Phase::Preempting, nodes, false, now);
        let Ok(Answer::Preempt { victims }) = answer else {
            extender.set_waiting(&preemptor.uid, spec, nodes);
            extender.note_freed(now);
            continue;
        };
        if let Some(record) = extender.pods.get_mut(&preemptor.uid) {
            record.state = PodState::Preempting;
            record.pending = Some(PendingRequest {
                victims_since: Some(now),
                ..pending
            });
        }
        for victim in victims.iter().filter_map(|uid| extender.pods.get(uid)) {
            let is_new = evictions.iter().all(|e| e.pod != victim.name);
            if !victim.is_ending && is_new {
                evictions.push(Eviction {
                    pod: victim.name.clone(),
                    preemptor: preemptor.clone(),
                });
            }
        }
    }
    evictions
}

/// Returns pods that can start since cells were freed and that kube-scheduler has not asked for since. It often asks when
/// it learns of the same change, before the extender does, and then not again for minutes.
fn overdue_starts(extender: &mut Extender, now: Timestamp) -> Vec<Arc<BindCommand>> {
    let Some(timeout) = extender.rules.start_after else {
        return Vec::new();
    };
    let mut commands = stuck_bindings(extender, timeout.saturating_mul(STUCK_FACTOR), now);
    let Some((_, last)) = extender.freed.filter(|(first, _)| now.since(*first) >= timeout) else {
        return commands;
    };
    extender.freed = None;
    for (pod, PendingRequest { spec, nodes, .. }) in waiting_pods(extender, last) {
        let answer = extender.place(&pod, &spec, &nodes, now);
        let Ok(FilterAnswer::Bind { .. }) = answer else {
            continue;
        };
        if let Some(record) = extender.pods.get_mut(&pod.uid)
            && let PodState::Binding { command, .. } = &record.state
        {
            record.last_asked = now;
            commands.push(Arc::clone(command));
        }
    }
    commands
}

/// Returns the waiting pods that kube-scheduler has not asked for since `last`: highest priority first, then oldest.
fn waiting_pods(extender: &Extender, last: Timestamp) -> Vec<(PodName, PendingRequest)> {
    let is_waiting = |r: &&PodRecord| {
        matches!(r.state, PodState::Waiting | PodState::Preempting)
            && r.is_reported
            && !r.is_ending
            && r.last_asked <= last
    };
    let mut waiting: Vec<(&PodRecord, &PendingRequest)> = extender
        .pods
        .values()
        .filter(is_waiting)
        .filter_map(|r| Some((r, r.pending.as_ref()?)))
        .collect();
    waiting
        .sort_by_key(|(record, pending)| (Reverse(pending.spec.priority), record.first_seen, &record.name));
    let copies = waiting
        .into_iter()
        .map(|(record, pending)| (record.name.clone(), pending.clone()));
    copies.collect()
}

/// Returns pods that have had their place for longer than `timeout` without being bound.
fn stuck_bindings(extender: &mut Extender, timeout: i64, now: Timestamp) -> Vec<Arc<BindCommand>> {
    let mut commands = Vec::new();
    let records = extender.pods.values_mut();
    for record in records.filter(|r| r.is_reported && !r.is_ending) {
        if let PodState::Binding { command, .. } = &record.state
            && now.since(record.last_asked) >= timeout
        {
            commands.push(Arc::clone(command));
            record.last_asked = now;
        }
    }
    commands
}

/// Removes pods that only kube-scheduler has reported, long ago: they were created and deleted between two lists.
fn forget_unreported(extender: &mut Extender, now: Timestamp) {
    let unreported: Vec<String> = extender
        .pods
        .values()
        .filter(|r| !r.is_reported && now.since(r.last_asked) > UNREPORTED_TIMEOUT)
        .filter(|r| !matches!(r.state, PodState::Bound(_)))
        .map(|r| r.name.uid.clone())
        .collect();
    for uid in unreported {
        extender.pods.remove(&uid);
        extender.groups.delete(&uid);
        extender.note_downgraded(now);
    }
}
