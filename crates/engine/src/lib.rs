//! The scheduling engine: a value with no clock, no socket and no thread.
//!
//! A driver gives it events with [`Engine::handle`], takes commands from [`Engine::poll`], and calls again at
//! [`Engine::wake_at`]. The simulator, the bare-metal cluster and Kubernetes are drivers of this same code.
//!
//! [`Engine::poll`] takes a decision when something changed. A decision has these steps:
//!
//! 1. **admit**: [`parts::Admission`] admits new and held jobs;
//! 2. **order**: [`parts::QueueOrder`] gives every job a [`queue_key::QueueKey`], by which the engine keeps the queue
//!    sorted;
//! 3. **walk**: [`parts::Discipline`] walks the queue and decides which jobs start, which are passed over and which are
//!    preempted;
//! 4. **size, group, place**: [`parts::Sizing`], [`parts::Grouping`], [`parts::Tenancy`] and [`parts::Placement`] turn a
//!    claim into GPUs, on a [`draft::Draft`] that can be rolled back;
//! 5. **diff**: the plan is compared with what runs, in one place, and the difference becomes commands.

mod admit;
pub mod check;
mod clock;
pub mod cluster;
pub mod composition;
mod demand;
mod dispatch;
pub mod draft;
pub mod engine;
mod events;
pub mod explain;
pub mod feasibility;
mod fill;
pub mod job;
mod job_queues;
pub mod load;
pub mod missing;
pub mod needs;
pub mod node_set;
pub mod occupancy;
pub mod parts;
mod planner;
pub mod queue;
pub mod queue_key;
mod rekey;
mod replan;
pub mod round;
pub mod runtime;
pub mod shape;
mod snapshot;
pub mod state;

pub use check::CheckError;
pub use clock::Clock;
pub use cluster::{Cluster, NodeState};
pub use composition::{Feature, UnmetRequirement};
pub use demand::Demand;
pub use engine::Engine;
pub use explain::{Explanation, QueuePositions};
pub use job::{Job, RunState};
pub use load::ClusterLoad;
pub use missing::{DataCheck, DataWarning, MissingData, MissingDatum};
pub use needs::{Need, NeedSet, PartNeed, PolicyNeeds};
pub use occupancy::Occupancy;
pub use parts::{
    Admission, Ask, Claim, Discipline, Grouping, JobClass, Knowledge, LoadError, NodeFilling, NodeJob, Part,
    Placement, Policy, QueueOrder, Sizing, Tenancy, TenancyLedger, TenantAccounts, Verdict, Widths,
};
pub use planner::Planner;
pub use queue_key::{QueueKey, Rank};
pub use round::{Candidate, Round};
pub use runtime::{Capabilities, Runtime, Support, UnsupportedNeed};
pub use shape::{Shape, ShapeId};
pub use snapshot::Snapshot;
