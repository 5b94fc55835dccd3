//! Gangs, their pods, and the slots of the pods.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::{AttemptId, JobId};
use dovetail_kubeapi::Owner;
use dovetail_model::{NodeConstraintId, NodeId, Share, Time};

use super::devices::PodClaim;
use super::elastic::ElasticParent;
use super::error::GangError;
use super::recreation::Recreation;
use super::resize::ResizeRequest;
use crate::action::{PodId, Removal};
use crate::gang_history::{BoundHistory, QueuedAs};
use crate::identity::{GangKey, GangSize, Identity};
use crate::node_fit::NodeRequirements;
use crate::pod_progress::ProgressReport;
use crate::pod_resources::PodResources;
use crate::pod_size::PodSize;

/// Phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// The pod does not run yet.
    Pending,
    /// The pod runs.
    Running,
    /// All containers succeeded.
    Succeeded,
    /// A container failed, with this exit code.
    Failed(i32),
}

impl PodPhase {
    /// Checks whether the pod has succeeded or failed.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed(_))
    }
}

/// Job, attempt and GPUs that were written on a pod when it was bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundAs {
    /// Job of the pod.
    pub job: JobId,
    /// Attempt of the job.
    pub attempt: AttemptId,
    /// GPU slots of the pod on its node.
    pub gpus: Vec<u32>,
}

impl BoundAs {
    /// Checks whether the pod was bound for an attempt.
    pub fn is_for(&self, job: JobId, attempt: AttemptId) -> bool {
        (self.job, self.attempt) == (job, attempt)
    }
}

/// A pod of a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id of the pod.
    pub id: PodId,
    /// What the pod states about its job.
    pub identity: Identity,
    /// What the pod requires of its node.
    pub requirements: NodeRequirements,
    /// CPU and memory of the pod now.
    pub size: PodSize,
    /// The last request to change them.
    pub resize: Option<ResizeRequest>,
    /// ResourceClaims of the pod.
    pub claims: Vec<PodClaim>,
    /// Node that the pod is bound to.
    pub node: Option<String>,
    /// What was written on the pod when it was bound.
    pub bound_as: Option<BoundAs>,
    /// Start of its attempt and earlier service, which were written with it.
    pub history: Option<BoundHistory>,
    /// What was written on the pod while it waited.
    pub queued_as: Option<QueuedAs>,
    /// The plan that is written on the pod.
    pub plan: Option<String>,
    /// Phase of the pod.
    pub phase: PodPhase,
    /// Why the kubelet rejected the pod, if it did.
    pub rejection: Option<String>,
    /// When its node accepted the pod, in microseconds since 1970.
    pub started: Option<i64>,
    /// When its last container started, in microseconds since 1970.
    pub running_since: Option<i64>,
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// Whether the pod must not be bound yet: it has scheduling gates, or its claims do not exist.
    pub gated: bool,
    /// The gang that the pod was bound beside, for an elastic pod.
    pub elastic_of: Option<ElasticParent>,
    /// Whether the removal of the pod was requested.
    pub removal_requested: bool,
    /// Node of a binding that was requested and not confirmed.
    pub in_flight: Option<String>,
}

impl Member {
    /// Checks whether the pod waits for a node.
    pub fn is_waiting(&self) -> bool {
        self.node.is_none()
            && self.in_flight.is_none()
            && !self.deleting
            && !self.gated
            && self.phase == PodPhase::Pending
    }

    /// Checks whether the pod uses resources of its node.
    pub fn occupies_node(&self) -> bool {
        self.node.is_some() && !self.phase.has_ended()
    }
}

/// The GPU slots of one pod of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSlot {
    /// Resources that the manifest of the pod requests.
    pub resources: PodResources,
    /// CPU and memory that the scheduler gives the pod.
    pub granted: Share,
    /// Node of the slot.
    pub node: NodeId,
    /// GPUs of the slot.
    pub gpus: Vec<u32>,
    /// Uid of the pod in the slot.
    pub pod: Option<String>,
    /// Whether the pod is left from another attempt: its GPUs are in use until it is deleted.
    pub stray: bool,
}

/// A node that a gang avoids because its kubelet rejected a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvoidedNode {
    /// End of the avoidance.
    pub until: Time,
    /// The rejection: node, pod, reason and message.
    pub reason: String,
}

/// Pods that start together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    /// Identifies the gang.
    pub key: GangKey,
    /// Number of pods, once it is known.
    pub size: Option<GangSize>,
    /// Whether the size is being looked up.
    pub size_requested: bool,
    /// Pods by uid.
    pub members: BTreeMap<String, Member>,
    /// Job of the gang, from its submission to its end.
    pub job: Option<JobId>,
    /// Nodes that the job is limited to.
    pub constraint: Option<NodeConstraintId>,
    /// Attempt that the slots belong to.
    pub attempt: Option<AttemptId>,
    /// Slots of that attempt.
    pub slots: Vec<TaskSlot>,
    /// Nodes on which all pods were reported as running.
    pub running_on: BTreeSet<NodeId>,
    /// Pods that its controller is expected to recreate after the policy has stopped it.
    pub recreation: Option<Recreation>,
    /// Since when its pods wait for CPU and memory that other pods are to give back.
    pub awaits_room: Option<Time>,
    /// Events about resizing that were written, by node and reason.
    pub resize_warnings: BTreeSet<(String, &'static str)>,
    /// Why the attempt is being aborted.
    pub abort: Option<Removal>,
    /// Nodes to avoid.
    pub avoided: BTreeMap<NodeId, AvoidedNode>,
    /// Why no job was submitted.
    pub refused: Option<GangError>,
    /// The explanation that was last written on the pods.
    pub explained: String,
    /// The status that was last written on the native pod group.
    pub group_status: String,
    /// Whether a controller recreates the pods.
    pub has_controller: bool,
    /// Whether the remaining pods of a completed gang were stopped.
    pub remaining_stopped: bool,
    /// The gang that this elastic pod belongs to.
    pub parent: Option<GangKey>,
    /// Elastic pods of this gang.
    pub elastic: BTreeSet<GangKey>,
    /// The report of progress that was recorded last, with its attempt and when that was.
    pub reported: Option<(Time, AttemptId, ProgressReport)>,
    /// Whether its pods waited when this process started: an earlier leader may have written about them.
    pub found_at_start: bool,
    /// Attempt up to which its history is written.
    pub history_of: Option<AttemptId>,
    /// Controllers of its pods, when that was written.
    pub history_owners: Vec<Owner>,
}

impl Gang {
    pub(super) fn new(key: GangKey) -> Self {
        Self {
            key,
            size: None,
            size_requested: false,
            members: BTreeMap::new(),
            job: None,
            constraint: None,
            attempt: None,
            slots: Vec::new(),
            running_on: BTreeSet::new(),
            recreation: None,
            awaits_room: None,
            resize_warnings: BTreeSet::new(),
            abort: None,
            avoided: BTreeMap::new(),
            refused: None,
            explained: String::new(),
            group_status: String::new(),
            has_controller: false,
            remaining_stopped: false,
            parent: None,
            elastic: BTreeSet::new(),
            reported: None,
            found_at_start: false,
            history_of: None,
            history_owners: Vec::new(),
        }
    }

    /// Sets an attempt with its slots.
    pub(super) fn begin_attempt(&mut self, attempt: AttemptId, slots: Vec<TaskSlot>) {
        self.clear_attempt();
        self.attempt = Some(attempt);
        self.explained.clear();
        self.slots = slots;
    }

    /// Forgets the attempt and its slots.
    pub(super) fn clear_attempt(&mut self) {
        self.attempt = None;
        self.slots.clear();
        self.running_on.clear();
        self.awaits_room = None;
        self.resize_warnings.clear();
        self.abort = None;
        self.remaining_stopped = false;
    }

    /// Returns the pods that wait for a node, in the order in which they get one.
    pub fn waiting(&self) -> Vec<&Member> {
        let mut waiting: Vec<&Member> = self.members.values().filter(|m| m.is_waiting()).collect();
        waiting.sort_by(|a, b| rank(a).cmp(&rank(b)));
        waiting
    }

    /// Returns the first pod; it represents the gang.
    pub fn first(&self) -> Option<&Member> {
        self.members
            .values()
            .filter(|m| !m.deleting)
            .min_by(|a, b| rank(a).cmp(&rank(b)))
    }

    /// Returns the number of pods with which the gang starts: succeeded pods are not recreated.
    pub fn min_pods(&self) -> Option<usize> {
        let min_pods = self.size?.min_pods as usize;
        Some(min_pods.saturating_sub(self.succeeded().count()).max(1))
    }

    /// Returns the succeeded pods that a controller counts.
    pub(super) fn succeeded(&self) -> impl Iterator<Item = &Member> {
        let counts = |m: &&Member| m.phase == PodPhase::Succeeded && m.identity.controller.is_some();
        self.members.values().filter(counts)
    }

    /// Returns the pods of the next attempt; `None` while there are too few.
    pub(super) fn complete_members(&self) -> Option<Vec<Member>> {
        let min_pods = self.min_pods()?;
        let waiting = self.waiting();
        (waiting.len() >= min_pods).then(|| waiting.into_iter().take(min_pods).cloned().collect())
    }

    /// Returns ids of the pods that use their nodes.
    pub(super) fn pods_on_nodes(&self) -> Vec<PodId> {
        let there = self.members.values().filter(|m| m.occupies_node());
        there.map(|m| m.id.clone()).collect()
    }

    /// Returns the pod of a slot.
    pub(crate) fn pod_in(&self, slot: &TaskSlot) -> Option<&Member> {
        slot.pod.as_ref().and_then(|uid| self.members.get(uid))
    }

    /// Checks whether a slot has no pod, or one that has ended.
    pub(super) fn is_vacant(&self, slot: usize) -> bool {
        let ended = |uid: &String| self.members.get(uid).is_none_or(|m| m.phase.has_ended());
        self.slots[slot].pod.as_ref().is_none_or(ended)
    }

    /// Checks whether a pod has a slot.
    pub(super) fn has_slot(&self, uid: &str) -> bool {
        self.slots.iter().any(|slot| slot.pod.as_deref() == Some(uid))
    }

    /// Takes a pod out of its slot.
    pub(super) fn vacate(&mut self, uid: &str) {
        for slot in &mut self.slots {
            if slot.pod.as_deref() == Some(uid) {
                slot.pod = None;
            }
        }
    }

    /// Returns when the first pod was created, in microseconds since 1970.
    pub(super) fn created(&self) -> Option<i64> {
        self.members.values().map(|m| m.identity.created).min()
    }
}

/// Sort key of pods: by index, then by age and name, where numbers in names compare as numbers.
fn rank(member: &Member) -> (u32, i64, usize, &str) {
    let name = member.id.name.as_str();
    (
        member.identity.index.unwrap_or(u32::MAX),
        member.identity.created,
        name.len(),
        name,
    )
}
