//! The Kubernetes driver: pods and nodes become facts, decisions become bindings and evictions.
//!
//! ```text
//!  API server ──watch──▶ Reconciler ──facts──▶ ClusterState ──commands──▶ Reconciler ──actions──▶ API server
//! ```
//!
//! The API server is the only store: the cluster state is rebuilt from it at every start. The attempt of a pod is written on the
//! pod itself, in the request that binds it.

mod action;
mod allocate;
mod annotations;
mod convert;
mod crds;
mod exec_target;
mod executor;
mod executor_resize;
mod explain;
mod features;
mod finished;
mod forecast;
mod gang_history;
mod identity;
mod lease;
mod manifest;
mod node_fit;
mod object_cache;
mod plan;
mod pod_groups;
mod pod_progress;
mod pod_resources;
mod pod_size;
mod reconciler;
mod runtime;
mod scheduler;
mod submit;
mod watches;

pub use action::{Action, Bind, ClaimDevices, PodId, Removal, ResizePod};
pub use annotations::{GROUP, NUMBER, PLAN, SENT_AS, STOPPED_BY};
pub use convert::{ConvertError, convert_hived};
pub use crds::{
    API, ClusterTopology, SchedulingPolicy, SchedulingPolicySpec, VirtualCluster, VirtualClusterError,
    VirtualClusterSpec, virtual_clusters,
};
pub use exec_target::{ExecTarget, ExecTargetError, InvalidTaskName, TaskName, find_exec_target, pods_in};
pub use executor::Events;
pub use features::{ClusterFeatures, KUBERNETES, PodResize};
pub use finished::{FinishedJob, SubmittedJob, finished_jobs};
pub use gang_history::{BoundHistory, GangHistory, GangHistorySpec, QueuedAs, Service};
pub use identity::{
    GangKey, GangSize, Identity, IdentityError, SizeError, SizeLookup, SizeSource, WorkloadKind,
};
pub use lease::{Elector, Leadership, LeaseLoss, LeaseSettings};
pub use manifest::{Manifest, ManifestError, ManifestOptions, manifest, object_name, unique_name};
pub use plan::{Plan, PlannedPod};
pub use pod_progress::{PodProgress, PodProgressSpec, ProgressReport};
pub use pod_resources::{PodResources, PodResourcesError};
pub use pod_size::{NewAmounts, PodSize, ResizeTrouble};
pub use reconciler::{
    AvoidedNode, BoundAs, ClaimError, ClusterTransaction, ElasticParent, Gang, GangError, Member, PodClaim,
    PodError, PodPhase, Reconciler, RequestError, ResizeRequest, ResizeState, Settings, TaskSlot,
};
pub use runtime::{KubernetesRuntime, WorkloadSettings};
pub use scheduler::{Scheduler, SchedulerError, SchedulerSettings};
pub use submit::{create_objects, delete_objects};
