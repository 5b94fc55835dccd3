//! Actions to perform at the API server. They follow from the tables of the reconciler: an action that is lost is requested
//! again by the next leader.

use dovetail_cluster::{AttemptId, JobId};
use dovetail_kubeapi::Meta;
use dovetail_model::Share;

use crate::gang_history::{GangHistory, QueuedAs};
use crate::identity::{GangKey, SizeLookup};
use crate::pod_size::NewAmounts;

/// Identifies one pod, also after another pod of the same name was created.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
}

impl PodId {
    /// Returns the id of the object with this metadata.
    pub(crate) fn of(meta: &Meta) -> Self {
        Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
        }
    }

    /// Returns the path of the pod at the API server.
    pub fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }

    /// Returns metadata with this namespace, name and uid.
    pub(crate) fn meta(&self) -> Meta {
        Meta {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            uid: self.uid.clone(),
            ..Meta::default()
        }
    }
}

impl std::fmt::Display for PodId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Binding of a pod to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The pod.
    pub pod: PodId,
    /// Name of the node.
    pub node: String,
    /// Annotations that the binding adds to the pod.
    pub annotations: Vec<(&'static str, String)>,
    /// Devices to allocate to the claims of the pod first.
    pub claims: Vec<ClaimDevices>,
    /// CPU and memory to give the pod first, if they are not those of its manifest.
    pub resize: Option<ResizePod>,
}

/// A change of CPU and memory of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizePod {
    /// The pod.
    pub pod: PodId,
    /// What the pod gets.
    pub target: Share,
    /// New amounts of its container.
    pub amounts: NewAmounts,
    /// Annotation with what its manifest requested, if it is not written yet.
    pub requested: Option<String>,
}

/// Devices for a ResourceClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDevices {
    /// Path of the claim at the API server.
    pub path: String,
    /// `status.allocation` of the claim.
    pub allocation: serde_json::Value,
}

/// An action at the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Bind pods of one gang.
    Launch {
        /// Job of the gang.
        job: JobId,
        /// Attempt that the pods belong to.
        attempt: AttemptId,
        /// Name of the gang, for events.
        gang: String,
        /// Plan to write before the first binding, and the pod to write it on.
        plan: Option<(PodId, String)>,
        /// The bindings.
        binds: Vec<Bind>,
    },
    /// Change CPU and memory of a pod in place.
    Resize(ResizePod),
    /// Write an event about a pod.
    Warn {
        /// The pod.
        pod: PodId,
        /// Reason for programs.
        reason: &'static str,
        /// Message for people.
        message: String,
    },
    /// Evict or delete a pod.
    Remove {
        /// The pod.
        pod: PodId,
        /// Why it is removed.
        removal: Removal,
    },
    /// Write the history of a gang, then perform other actions.
    SaveHistory {
        /// The history.
        history: Box<GangHistory>,
        /// Actions that lose the history from the pods: they wait until it is written.
        then: Vec<Action>,
    },
    /// Delete the history of a gang.
    DeleteHistory {
        /// The gang.
        gang: GangKey,
    },
    /// Suspend a Job, so that it creates no more pods.
    StopOwner {
        /// Namespace of the Job.
        namespace: String,
        /// Name of the `batch/v1` Job.
        job: String,
    },
    /// Write on a pod why it is pending.
    Explain {
        /// The pod.
        pod: PodId,
        /// Reason for programs.
        reason: &'static str,
        /// Message for people.
        message: String,
        /// Place of its gang in the queue, for the next leader.
        queued: Option<QueuedAs>,
    },
    /// Write on a native pod group whether its pods are bound.
    GroupStatus {
        /// Namespace of the group.
        namespace: String,
        /// Name of the group.
        group: String,
        /// Reason for programs.
        reason: &'static str,
        /// Message for people.
        message: String,
    },
    /// Look up the number of pods of a gang.
    LookUpSize {
        /// The gang.
        gang: GangKey,
        /// Object that has the number.
        lookup: SizeLookup,
    },
}

/// Why a pod is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Reason for programs.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
    /// Whether PodDisruptionBudgets may delay the removal.
    pub respects_budgets: bool,
    /// Seconds between the warning and the removal.
    pub warn_s: u32,
}

impl Removal {
    /// Returns a removal that no budget delays.
    pub(crate) fn now(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            respects_budgets: false,
            warn_s: 0,
        }
    }
}
