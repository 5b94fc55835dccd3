//! The live driver: one task owns one engine, and everything it learns is in a journal before anything is done about it.
//!
//! ```text
//!  people ──▶ Handle ─┐                    ┌─▶ journal (durable)
//!                     ├─▶ Driver (1 task) ─┤
//!  agents ──▶ Handle ─┘                    └─▶ Book: jobs, nodes, engine ──▶ orders ──▶ Backend ──▶ agents
//! ```
//!
//! The [`ClusterState`] is a plain value that facts are applied to, in order. The same facts give the same book, so a restart
//! is a replay. Orders follow from the book: a backend that has lost some asks for them again.

mod actor;
mod amounts;
mod clusters;
mod driver;
mod fact;
pub mod forecast;
mod handle;
pub mod history;
mod known;
mod load;
mod logs;
mod private_file;
mod request;
mod roles;
pub mod state;
mod tell;

pub use actor::{Actor, SystemRule};
pub use amounts::Cpus;
pub use clusters::{DEFAULT_VIRTUAL_CLUSTER, DefaultAccess, GuaranteeMode, VirtualCluster, VirtualClusters};
pub use dovetail_engine::{Clock, QueuePositions};
pub use driver::{Backend, Driver, DriverConfig, DriverError, Recovery, Transaction};
pub use fact::{Fact, InstanceEnd, OperatorAction, PolicyText, Record, TaskEnd};
pub use handle::{DriverCall, Handle, NodeRegistration, Refusal, RegisteredNode};
pub use known::{PolicySummary, policy_summaries};
pub use load::LoadPoint;
pub use logs::{LogPiece, LogRequest};
pub use private_file::write_private;
pub use request::{After, AfterWhen, ArrayPart, JobRequest, Processes, Retries};
pub use roles::{Instance, Role, place_tasks};
pub use state::{Cause, ClusterEvent, ClusterState, Hold, JobState, NodeState, RuntimeCommand, StartTask};
pub use tell::{JobNotifications, NotificationKind, validate_pending_limit, validate_webhook};

/// The number of a job, as people see it: 1, 2, 3, ...
pub type JobId = u64;

/// How often a job was launched; it fences off what an older launch left behind.
pub type AttemptId = u64;
