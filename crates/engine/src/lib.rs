//! The scheduling engine: a value with no clock, no socket and no thread.
//!
//! A driver feeds it facts with [`Engine::handle`], takes what it wants done from [`Engine::poll`], and calls again at
//! [`Engine::wake_at`]. The simulator, the bare-metal cluster and Kubernetes are drivers of this same code.
//!
//! One decision reads like the table of contents of the algorithm ([`Engine::poll`] runs it when something changed):
//!
//! 1. **admit** – [`parts::Admission`] lets new and held jobs in;
//! 2. **order** – [`parts::Order`] puts every job on a [`line::Line`]; the engine keeps the lines sorted;
//! 3. **walk** – [`parts::Discipline`] goes down the line: what starts, what is passed over, who gives way;
//! 4. **size, group, place** – [`parts::Sizing`], [`parts::Grouping`], [`parts::Tenancy`] and [`parts::Placement`]
//!    turn a claim into GPUs, on a [`draft::Draft`] that can be rolled back;
//! 5. **diff** – the plan is compared with what is there, in one place, and becomes commands.

mod accounts;
pub mod admit;
mod afresh;
pub mod check;
pub mod cluster;
pub mod crowd;
pub mod draft;
pub mod engine;
pub mod explain;
mod fill;
pub mod job;
pub mod line;
pub mod lineup;
pub mod node_set;
mod nodes;
mod operate;
pub mod parts;
mod replan;
mod returned;
pub mod round;
pub mod shape;
pub mod sharers;
mod snapshot;
pub mod state;

pub use cluster::{Cluster, NodeState};
pub use crowd::Crowd;
pub use engine::{Clock, Engine, Snapshot};
pub use explain::Explanation;
pub use job::{Job, Live};
pub use line::{Line, Rank};
pub use parts::{
    Admission, Ask, Claim, Discipline, Grouping, Guest, Knowledge, Order, Part, Placement, Policy, Sizing,
    Tenancy, Verdict,
};
pub use round::{Candidate, Round};
pub use shape::{Shape, ShapeId};
pub use sharers::Sharers;
