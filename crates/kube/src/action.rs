//! What is to be done at the API server. Actions follow from what is known; whoever loses one finds out later, and it is
//! asked for again.

use dovetail_cluster::{AttemptId, JobId};
use dovetail_kubeapi::Meta;

use crate::identity::{GangKey, LookUp};

/// Names a pod for ever.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl PodId {
    /// Where it is.
    pub fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }

    /// The same as metadata.
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

/// A pod goes to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The pod.
    pub pod: PodId,
    /// The node.
    pub node: String,
    /// What is written on it.
    pub annotations: Vec<(&'static str, String)>,
    /// What is written on its claims before.
    pub claims: Vec<ClaimDevices>,
}

/// A claim gets devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDevices {
    /// Where the claim is.
    pub path: String,
    /// `status.allocation` of it.
    pub allocation: serde_json::Value,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Bind these pods. With a plan, that is first written on the pod it names.
    Launch {
        /// The job.
        job: JobId,
        /// The launch.
        attempt: AttemptId,
        /// The name of the gang, for people.
        gang: String,
        /// On which pod, and what.
        plan: Option<(PodId, String)>,
        /// The pods.
        binds: Vec<Bind>,
    },
    /// Take the pod away.
    Remove {
        /// The pod.
        pod: PodId,
        /// Why: a word, and a sentence.
        why: Removal,
    },
    /// Keep the owner from making pods anew.
    StopOwner {
        /// The namespace.
        namespace: String,
        /// The name of the `batch/v1` Job.
        job: String,
    },
    /// Say why the pod waits.
    Explain {
        /// The pod.
        pod: PodId,
        /// A word.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// Say on a native pod group whether its pods have a place.
    OnGroup {
        /// The namespace.
        namespace: String,
        /// The name of the group.
        group: String,
        /// A word.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// Find out how many pods a gang has.
    LookUp {
        /// The gang.
        gang: GangKey,
        /// Where it says so.
        at: LookUp,
    },
}

/// Why a pod is taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// Budgets for disruptions are asked first.
    pub may_wait: bool,
    /// Seconds it gets after a warning, before it is told to end.
    pub warn_s: u32,
}
