//! What Kubernetes has and the book knows, side by side.
//!
//! The mirror is a value: it is told what was seen at the API server, tells the book facts, and collects what is to be
//! done. It has no clock, no socket and no thread. Everything is level-triggered: a gang is looked at whenever something
//! about it changed, and what follows does not depend on what was missed.

mod claims;
mod constraints;
mod done;
mod found;
mod gang;
mod gangs;
mod launch;
mod nodes;
mod others;
mod pods;
mod riders;
mod sent;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dovetail_cluster::{ClusterState, Fact, JobId, JobRequest, Refusal};
use dovetail_model::NodeId;

use crate::action::Action;
use crate::identity::GangKey;
use crate::past::PastJob;

pub use claims::Claimed;
pub use gang::{Gang, Member, Phase, Seat};
pub use riders::Beside;

/// Where facts go.
pub trait Ledger {
    /// How things stand.
    fn state(&self) -> &ClusterState;
    /// Something happened.
    fn record(&mut self, fact: Fact);
    /// A job comes.
    ///
    /// # Errors
    /// When it cannot be taken.
    fn submit(&mut self, user: &str, request: JobRequest) -> Result<JobId, Refusal>;
}

/// What an administrator can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Pods of this name are ours.
    pub scheduler_name: String,
    /// Resources that are GPUs.
    pub gpu_resources: Vec<String>,
    /// Device classes that are GPUs; their drivers have the same names.
    pub device_classes: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler_name: "dovetail".to_owned(),
            gpu_resources: vec!["nvidia.com/gpu".to_owned(), "amd.com/gpu".to_owned()],
            device_classes: vec!["gpu.nvidia.com".to_owned(), "gpu.amd.com".to_owned()],
        }
    }
}

/// The cluster as the API server has it.
#[derive(Debug, Default)]
pub struct Reconciler {
    pub(crate) settings: Settings,
    pub(crate) nodes: BTreeMap<String, nodes::Seen>,
    /// Nodes as the API server has them: their slices come and go without them.
    pub(crate) node_objects: BTreeMap<String, dovetail_kubeapi::Node>,
    pub(crate) claims: claims::Claims,
    pub(crate) node_names: BTreeMap<NodeId, String>,
    /// Pods of ours, by uid, and the gang of each.
    pub(crate) pods: BTreeMap<String, GangKey>,
    /// Pods of others that use a node.
    pub(crate) others: others::Others,
    /// On which nodes pods may be.
    pub(crate) constraints: constraints::NodeConstraints,
    pub(crate) gangs: BTreeMap<GangKey, Gang>,
    pub(crate) jobs: BTreeMap<JobId, GangKey>,
    /// Nodes whose use by others has changed.
    pub(crate) changed_nodes: BTreeSet<String>,
    /// Nodes that were lost and are back, while pods of before are still there.
    pub(crate) returning: BTreeMap<String, dovetail_kubeapi::Node>,
    /// Pods that cannot be understood, and why.
    pub(crate) strange: BTreeMap<String, String>,
    pub(crate) actions: Vec<Action>,
    /// Jobs that were over before we looked.
    pub(crate) past: BTreeMap<JobId, PastJob>,
    /// Gangs that are to be looked at; the first of them is looked at now.
    pub(crate) to_look_at: VecDeque<GangKey>,
    /// Pods and nodes were listed once.
    pub(crate) settled: bool,
}

impl Reconciler {
    /// Nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// What is to be done.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Pods of gangs, and gangs, that are known.
    pub fn counts(&self) -> (usize, usize) {
        (self.pods.len(), self.gangs.len())
    }

    /// The gang of a job.
    pub fn gang_of(&self, job: JobId) -> Option<&Gang> {
        self.gangs.get(self.jobs.get(&job)?)
    }

    /// Pods that were bound for a launch of a job on a node, the first first.
    pub fn pods_of(
        &self,
        job: JobId,
        attempt_id: dovetail_cluster::AttemptId,
        node: NodeId,
    ) -> Vec<crate::PodId> {
        let node = self.node_name(node);
        let here = |m: &&Member| {
            let of_launch = m
                .bound_as
                .as_ref()
                .is_some_and(|(j, l, _)| (*j, *l) == (job, attempt_id));
            of_launch && m.node.as_ref() == Some(&node)
        };
        let mut pods: Vec<&Member> = self
            .gangs
            .values()
            .flat_map(|g| g.members.values())
            .filter(here)
            .collect();
        pods.sort_by_key(|m| (m.identity.index, m.id.name.clone()));
        pods.into_iter().map(|m| m.id.clone()).collect()
    }

    /// All gangs.
    pub fn gangs(&self) -> impl Iterator<Item = &Gang> {
        self.gangs.values()
    }

    /// The name of a node.
    pub(crate) fn node_name(&self, node: NodeId) -> String {
        self.node_names.get(&node).cloned().unwrap_or_default()
    }
}
