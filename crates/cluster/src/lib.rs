//! The live driver: one thread owns the cluster state, and every fact is in the journal before anything follows from it.
//!
//! ```text
//!  users  ──▶ Handle ─┐                      ┌─▶ journal (durable)
//!                     ├─▶ Driver (1 thread) ─┤
//!  agents ──▶ Handle ─┘                      └─▶ ClusterState: jobs, nodes, engine ──▶ commands ──▶ Runtime
//! ```
//!
//! [`ClusterState`] is a plain value to which facts are applied in order. The same facts give the same state, so a restart
//! is a replay. Commands follow from the state, so a runtime that has lost some can ask for them again.

mod actor;
mod amounts;
mod archiver;
mod decision;
mod driver;
mod fact;
mod handle;
pub mod history;
mod load;
mod logs;
mod notifications;
mod past;
mod policy_summary;
mod private_file;
mod recovery;
mod request;
mod runtime;
mod stage_report;
pub mod state;
mod virtual_clusters;

pub use actor::{Actor, SystemRule};
pub use amounts::Cpus;
pub use archiver::EndedJobLimits;
pub use decision::Decision;
pub use dovetail_engine::{Capabilities, Clock, DataWarning, MissingData, Need, Runtime, Support};
pub use driver::{Driver, DriverConfig, Transaction};
pub use fact::{Entry, Fact, InstanceEnd, OperatorAction, PolicyText, Record, TaskEnd};
pub use handle::{
    Conflict, DriverCall, Handle, InvalidRequest, NodeRegistration, NotFound, Refusal, RegisteredNode,
};
pub use load::LoadPoint;
pub use logs::{LogPiece, LogRequest};
pub use notifications::{
    JobNotifications, NotificationError, NotificationKind, validate_pending_limit, validate_webhook,
};
pub use past::PastJobs;
pub use policy_summary::{PolicySummary, policy_summaries};
pub use private_file::write_private;
pub use recovery::{DriverError, Recovery};
pub use request::{
    After, AfterWhen, ArrayPart, Behaviour, Deadline, GangRequest, Instance, JobRequest, PodSet, Processes,
    RequestError, Retries, Role, RoleError, Speeds, StageTimes, has_resources_of, place_tasks,
};
pub use runtime::{
    ArrayIndices, IdleRuntime, LiveRuntime, LogError, NodeActionError, NodeActionFuture, NodeCommand,
    WorkloadError, WorkloadFuture,
};
pub use stage_report::{GateReport, StageReport};
pub use state::{Cause, ClusterEvent, ClusterState, Hold, JobState, NodeState, RuntimeCommand, StartTask};
pub use virtual_clusters::{
    DEFAULT_VIRTUAL_CLUSTER, DefaultAccess, GuaranteeMode, VirtualCluster, VirtualClusters,
    VirtualClustersError,
};

/// Number of a job, as users see it: 1, 2, 3, ...
pub type JobId = u64;

/// Number of an attempt of a job: 1, 2, 3, ... Messages about older attempts are ignored.
pub type AttemptId = u64;
