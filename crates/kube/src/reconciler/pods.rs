//! Changes of pods.

use std::collections::BTreeSet;

use dovetail_kubeapi::{Pod, PodStatus, parse_time};

use super::devices::{ClaimError, PodClaim};
use super::elastic::{self, ElasticParent};
use super::foreign::ForeignPod;
use super::gang::{BoundAs, Member, PodPhase};
use super::{ClusterTransaction, Reconciler, adopt, machine, node_events, progress, resize};
use crate::action::{Action, PodId};
use crate::annotations;
use crate::gang_history::{BoundHistory, QueuedAs};
use crate::identity::{GangKey, GangSize, Identity, IdentityError, SizeSource};
use crate::node_fit::NodeRequirements;
use crate::plan::parse_gpus;
use crate::pod_resources::PodResources;
use crate::pod_size::PodSize;

/// Why a pod is not scheduled. The message is written on the pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    /// Its annotations or resources cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its ResourceClaims are not supported.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// It is a gang of its own and requests no GPU.
    #[error(
        "the pod requests no GPU (none of {}); use the default scheduler for it, or make it part of a gang",
        .0.join(", ")
    )]
    NoGpu(Vec<String>),
}

/// Applies a new or changed pod.
pub(super) fn put_pod(r: &mut Reconciler, pod: &Pod, tx: &mut impl ClusterTransaction) {
    if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
        progress::record_last(r, &pod.metadata.uid, tx);
    }
    if let Some(key) = update_tables(r, pod) {
        machine::visit(r, &key, tx);
    }
    resize::note(r, &pod.metadata.uid, tx);
    if r.listed {
        r.nodes.report_changed(tx);
        node_events::return_nodes(r, tx);
    }
}

/// Applies the deletion of a pod.
pub(super) fn delete_pod(r: &mut Reconciler, uid: &str, tx: &mut impl ClusterTransaction) {
    forget_pod(r, uid, tx);
    r.nodes.report_changed(tx);
    node_events::return_nodes(r, tx);
}

/// Applies a list of all pods. With the first list, running gangs are adopted where they are, in the order of their job ids, before
/// other gangs are queued.
pub(super) fn list_pods(r: &mut Reconciler, pods: &[Pod], tx: &mut impl ClusterTransaction) {
    let listed: BTreeSet<&str> = pods.iter().map(|p| p.metadata.uid.as_str()).collect();
    let known = r.gangs.pod_uids().chain(r.nodes.foreign_uids());
    let known = known.chain(r.invalid_pods.keys());
    let deleted: BTreeSet<String> = known
        .filter(|uid| !listed.contains(uid.as_str()))
        .cloned()
        .collect();
    for uid in deleted {
        forget_pod(r, &uid, tx);
    }
    let keys: BTreeSet<GangKey> = pods.iter().filter_map(|pod| update_tables(r, pod)).collect();
    r.nodes.report_changed(tx);
    if !r.listed {
        for gang in r.gangs.iter_mut() {
            gang.found_at_start = !gang.waiting().is_empty();
        }
        adopt::adopt_running(r, tx);
        r.listed = true;
        elastic::evict_orphaned_pods(r, tx);
    }
    // In the order of their creation, so that job ids reflect it.
    let mut keys: Vec<GangKey> = keys.into_iter().collect();
    keys.sort_by_key(|key| r.gangs.get(key).and_then(|gang| gang.created()));
    for key in keys {
        machine::visit(r, &key, tx);
    }
    for pod in pods {
        resize::note(r, &pod.metadata.uid, tx);
    }
}

fn forget_pod(r: &mut Reconciler, uid: &str, tx: &mut impl ClusterTransaction) {
    progress::record_last(r, uid, tx);
    r.invalid_pods.remove(uid);
    r.devices.remove_pod(uid);
    r.nodes.set_foreign(uid, None);
    if let Some(key) = r.gangs.remove_pod(uid) {
        machine::visit(r, &key, tx);
    }
    resize::note(r, uid, tx);
}

/// Updates the tables and returns the gang of the pod, if Dovetail schedules it.
fn update_tables(r: &mut Reconciler, pod: &Pod) -> Option<GangKey> {
    let uid = &pod.metadata.uid;
    if pod.spec.scheduler_name != r.settings.scheduler_name {
        note_foreign(r, pod);
        return None;
    }
    r.devices.put_pod(pod);
    let member = match read_member(r, pod) {
        Ok(member) => member,
        Err(error) => {
            note_foreign(r, pod);
            explain_invalid(r, pod, error);
            return None;
        }
    };
    r.invalid_pods.remove(uid);
    let key = elastic::gang_key(r, &member);
    let gang = r.gangs.get(&key);
    let bound_by_others =
        member.node.is_some() && member.bound_as.is_none() && !gang.is_some_and(|g| g.has_slot(uid));
    let before = gang.and_then(|gang| gang.members.get(uid));
    let in_flight = before.and_then(|m| m.in_flight.clone());
    let member = Member {
        removal_requested: before.is_some_and(|m| m.removal_requested),
        in_flight: in_flight.filter(|_| member.node.is_none()),
        resize: before.and_then(|m| m.resize.clone()),
        ..member
    };
    match bound_by_others && !member.phase.has_ended() {
        true => note_foreign(r, pod),
        false => r.nodes.set_foreign(uid, None),
    }
    r.gangs.entry(&key).has_controller |= member.identity.controller.is_some();
    r.gangs.put_member(&key, member);
    Some(key)
}

fn read_member(r: &Reconciler, pod: &Pod) -> Result<Member, PodError> {
    let mut identity = Identity::of(pod, &r.settings.gpu_resources)?;
    let claims = r.devices.claims_of(pod)?;
    let awaits_claims = claims.is_none();
    let claims = claims.unwrap_or_default();
    identity.resources.gpus += claims.iter().map(PodClaim::devices).sum::<u32>();
    let size = PodSize::of(pod, &r.settings.gpu_resources).map_err(IdentityError::from)?;
    if let Some(requested) = size.requested.filter(|_| r.features.can_resize()) {
        identity.resources = identity.resources.with(requested);
    }
    let is_alone = identity.size == SizeSource::Known(GangSize::ONE);
    if identity.resources.gpus == 0 && !awaits_claims && is_alone {
        return Err(PodError::NoGpu(r.settings.gpu_resources.clone()));
    }
    let mut member = member(pod, identity);
    member.claims = claims;
    member.size = size;
    member.gated |= awaits_claims;
    Ok(member)
}

fn member(pod: &Pod, identity: Identity) -> Member {
    let (meta, status) = (&pod.metadata, &pod.status);
    let annotation = |name: &str| meta.annotations.get(name);
    let bound_as = || {
        let attempt =
            annotation(annotations::ATTEMPT).or_else(|| annotation(annotations::ATTEMPT_BEFORE_RENAME));
        Some(BoundAs {
            job: annotation(annotations::JOB)?.parse().ok()?,
            attempt: attempt?.parse().ok()?,
            gpus: parse_gpus(annotation(annotations::GPUS)?)?,
        })
    };
    Member {
        id: PodId::of(meta),
        identity,
        requirements: NodeRequirements::of(&pod.spec),
        size: PodSize::default(),
        resize: None,
        claims: Vec::new(),
        node: Some(pod.spec.node_name.clone()).filter(|n| !n.is_empty()),
        bound_as: bound_as(),
        history: annotation(annotations::HISTORY).and_then(|text| BoundHistory::parse(text)),
        queued_as: annotation(annotations::QUEUED).and_then(|text| QueuedAs::parse(text)),
        plan: annotation(annotations::PLAN).cloned(),
        phase: match status.phase.as_str() {
            "Running" => PodPhase::Running,
            "Succeeded" => PodPhase::Succeeded,
            "Failed" => PodPhase::Failed(exit_code(status)),
            _ => PodPhase::Pending,
        },
        rejection: rejection(status),
        started: status.start_time.as_deref().and_then(parse_time),
        running_since: running_since(status),
        deleting: meta.deletion_timestamp.is_some(),
        gated: !pod.spec.scheduling_gates.is_empty(),
        elastic_of: annotation(annotations::ELASTIC_OF).and_then(|text| ElasticParent::parse(text)),
        removal_requested: false,
        in_flight: None,
    }
}

/// Returns when the last container of a pod started.
fn running_since(status: &PodStatus) -> Option<i64> {
    let containers = status.container_statuses.iter();
    let started = containers.filter_map(|c| c.state.running.as_ref()?.started_at.as_deref());
    let last = started.filter_map(parse_time).max();
    last.or_else(|| status.start_time.as_deref().and_then(parse_time))
}

fn exit_code(status: &PodStatus) -> i32 {
    let containers = status.container_statuses.iter();
    let mut ended = containers.filter_map(|c| c.state.terminated.as_ref());
    ended.find(|t| t.exit_code != 0).map_or(0, |t| t.exit_code)
}

/// Reasons of failed pods without containers that do not come from the admission of the kubelet.
const NOT_REJECTED: [&str; 3] = ["Evicted", "DeadlineExceeded", "Preempting"];

/// Returns the reason and message of a kubelet that rejected a pod instead of starting it, such as `OutOfcpu`.
fn rejection(status: &PodStatus) -> Option<String> {
    let is_rejected = status.phase == "Failed"
        && status.container_statuses.is_empty()
        && !status.reason.is_empty()
        && !NOT_REJECTED.contains(&status.reason.as_str());
    is_rejected.then(|| match status.message.is_empty() {
        true => status.reason.clone(),
        false => format!("{}: {}", status.reason, status.message),
    })
}

/// Records what a pod uses that Dovetail does not schedule.
fn note_foreign(r: &mut Reconciler, pod: &Pod) {
    let has_ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    let node = Some(&pod.spec.node_name).filter(|node| !node.is_empty() && !has_ended);
    let used = node.map(|node| ForeignPod {
        node: node.clone(),
        resources: PodResources::held(pod, &r.settings.gpu_resources).unwrap_or_default(),
    });
    r.nodes.set_foreign(&pod.metadata.uid, used);
}

/// Writes on a pending pod why it is not scheduled, once.
fn explain_invalid(r: &mut Reconciler, pod: &Pod, error: PodError) {
    let uid = &pod.metadata.uid;
    if !pod.spec.node_name.is_empty() || r.invalid_pods.get(uid) == Some(&error) {
        return;
    }
    r.actions.push(Action::Explain {
        pod: PodId::of(&pod.metadata),
        reason: "SchedulerError",
        message: error.to_string(),
        queued: None,
    });
    r.invalid_pods.insert(uid.clone(), error);
}
