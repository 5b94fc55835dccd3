//! The Kubernetes driver: pods and nodes become facts, decisions become bindings and evictions.
//!
//! ```text
//!  API server ──watch──▶ Mirror ──facts──▶ Book ──orders──▶ Mirror ──actions──▶ API server
//! ```
//!
//! The API server is the only thing that remembers: the book is built anew from it at every start. What a launch means is
//! written on the pods themselves, in the very request that binds them.

mod action;
mod ask;
mod carry_out;
mod explain;
mod fit;
mod foreseen;
mod groups;
mod hand_claims;
mod identity;
mod lease;
mod manifest;
mod objects;
mod past;
mod plan;
mod promise;
mod reconciler;
mod resources;
mod scheduler;
mod sending;
mod target;
mod watching;
mod words;

pub use action::{Action, Bind, ClaimDevices, PodId, Removal};
pub use carry_out::Events;
pub use identity::{GangKey, Identity, Says, Size};
pub use lease::{Elector, Leadership, LeaseSettings};
pub use manifest::{Manifest, Sender, Several, manifest, object_name, unique_name};
pub use past::{PastJob, SentJob, past_jobs};
pub use plan::Plan;
pub use reconciler::{Beside, Claimed, Gang, Ledger, Member, Phase, Reconciler, Seat, Settings};
pub use resources::{
    API, ClusterTopology, SchedulingPolicy, SchedulingPolicySpec, VirtualCluster, VirtualClusterSpec,
    virtual_clusters,
};
pub use scheduler::{Scheduler, SchedulerError, SchedulerSettings};
pub use sending::{delete, send};
pub use target::{Place, TaskName, place, pods_in};
pub use words::{GROUP, NUMBER, PLAN, SENT_AS, STOPPED_BY};
