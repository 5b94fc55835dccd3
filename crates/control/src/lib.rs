//! The live driver: one task owns one engine, and everything it learns is in a journal before anything is done about it.
//!
//! ```text
//!  people ──▶ Handle ─┐                    ┌─▶ journal (durable)
//!                     ├─▶ Driver (1 task) ─┤
//!  agents ──▶ Handle ─┘                    └─▶ Book: jobs, nodes, engine ──▶ orders ──▶ Backend ──▶ agents
//! ```
//!
//! The [`Book`] is a plain value that facts are applied to, in order. The same facts give the same book, so a restart
//! is a replay. Orders follow from the book: a backend that has lost some asks for them again.

pub mod book;
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
mod tell;

pub use book::{Book, Cause, Hold, JobState, NodeState, Notice, Order, StartTask};
pub use clusters::{DEFAULT_CLUSTER, Everyone, Promise, VirtualCluster, VirtualClusters};
pub use dovetail_engine::Clock;
pub use dovetail_policies::knobs::parse_span;
pub use driver::{Backend, Desk, Driver, DriverConfig, DriverError, Start};
pub use fact::{Fact, InstanceEnd, Operate, PolicyText, Record, TaskEnd};
pub use handle::{Admittance, Arrival, Ask, Handle, Refusal};
pub use known::{KnownPolicy, known_policies};
pub use load::LoadPoint;
pub use logs::{LogPiece, LogRequest};
pub use private_file::write_private;
pub use request::{After, AfterWhen, ArrayPart, JobRequest, Processes, Retries};
pub use roles::{Instance, Role};
pub use tell::{JobNotify, Occasion, check_pending, check_webhook};

/// The number of a job, as people see it: 1, 2, 3, ...
pub type JobNo = u64;

/// How often a job was launched; it fences off what an older launch left behind.
pub type Launch = u64;
