//! Compares the objects of the API server with the cluster state, and derives facts and actions.
//!
//! The reconciler is a value without clock, socket or thread. It is level-triggered: a gang is visited whenever something of it
//! has changed, and the result does not depend on events that were missed. Tables hold what is known ([`nodes`], [`devices`],
//! [`gang_table`], [`constraints`]); [`machine`] is the state machine of one gang, with a module for each state.

mod active;
mod adopt;
mod bind;
mod completion;
mod constraints;
mod devices;
mod elastic;
mod ends;
mod error;
mod events;
mod foreign;
mod gang;
mod gang_table;
mod machine;
pub(crate) mod memory;
mod node_events;
mod nodes;
mod over;
mod pods;
mod progress;
mod queued;
mod recreation;
mod request;
mod resize;
mod slots;
mod stopping;
mod submitted;

use std::collections::{BTreeMap, VecDeque};

use dovetail_cluster::{AttemptId, ClusterState, Fact, GangRequest, JobId, Refusal};
use dovetail_model::NodeId;

use crate::action::Action;
use crate::features::ClusterFeatures;
use crate::finished::FinishedJob;
use crate::identity::GangKey;

pub use devices::{ClaimError, PodClaim, RequestError};
pub use elastic::ElasticParent;
pub use error::GangError;
pub use gang::{AvoidedNode, BoundAs, Gang, Member, PodPhase, TaskSlot};
pub use pods::PodError;
pub use resize::{ResizeRequest, ResizeState};

/// A transaction on the cluster state: it reads the state and records facts.
pub trait ClusterTransaction {
    /// Returns the cluster state.
    fn state(&self) -> &ClusterState;
    /// Records a fact and applies it to the state.
    fn record(&mut self, fact: Fact);
    /// Checks whether the job of a gang may be submitted.
    ///
    /// # Errors
    /// If it may not, or the cluster could never run it.
    fn check(&self, request: &GangRequest) -> Result<(), Refusal>;
}

/// Names of the cluster that an administrator can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `schedulerName` of the pods that Dovetail schedules.
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

/// Compares the objects of the API server with the cluster state, and derives facts and actions.
#[derive(Debug)]
pub struct Reconciler {
    settings: Settings,
    features: ClusterFeatures,
    nodes: nodes::NodeTable,
    devices: devices::DeviceTable,
    pub(crate) gangs: gang_table::GangTable,
    constraints: constraints::ConstraintTable,
    /// Pods that are not scheduled because of an error, by uid.
    invalid_pods: BTreeMap<String, PodError>,
    /// Jobs that ended before this process started.
    finished: BTreeMap<JobId, FinishedJob>,
    /// What earlier leaders wrote about gangs that they stopped.
    histories: memory::Histories,
    progress: progress::ProgressTable,
    /// Pods that have more CPU and memory than they were granted.
    over: over::OverTable,
    /// Gangs to visit; the first one is being visited.
    visits: VecDeque<GangKey>,
    actions: Vec<Action>,
    /// Whether pods and nodes were listed.
    listed: bool,
    /// The gang that was explained last, see [`crate::explain`].
    pub(crate) last_explained: Option<GangKey>,
}

impl Reconciler {
    /// Creates a reconciler that knows no objects.
    pub fn new(settings: Settings, features: ClusterFeatures) -> Self {
        Self {
            devices: devices::DeviceTable::new(settings.device_classes.clone()),
            settings,
            features,
            nodes: nodes::NodeTable::default(),
            gangs: gang_table::GangTable::default(),
            constraints: constraints::ConstraintTable::default(),
            invalid_pods: BTreeMap::new(),
            finished: BTreeMap::new(),
            histories: memory::Histories::default(),
            progress: progress::ProgressTable::default(),
            over: over::OverTable::default(),
            visits: VecDeque::new(),
            actions: Vec::new(),
            listed: false,
            last_explained: None,
        }
    }

    /// Returns and removes the actions to perform.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Returns the numbers of pods and gangs.
    pub fn counts(&self) -> (usize, usize) {
        self.gangs.counts()
    }

    /// Returns the gang of a job.
    pub fn gang_of(&self, job: JobId) -> Option<&Gang> {
        self.gangs.of_job(job)
    }

    /// Returns the pods that were bound to a node for an attempt of a job, in the order of their indexes.
    pub fn pods_of(&self, job: JobId, attempt: AttemptId, node: NodeId) -> Vec<crate::PodId> {
        self.gangs.pods_of(job, attempt, &self.nodes.name(node))
    }

    /// Returns all gangs.
    pub fn gangs(&self) -> impl Iterator<Item = &Gang> {
        self.gangs.iter()
    }
}
