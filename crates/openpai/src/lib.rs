//! OpenPAI: job files of protocol version 2, environment variables and exit codes.
//!
//! [`parse`] reads a [`Job`] and reports all mistakes of a file at once, [`script`] returns the shell script of a role, and
//! [`environment`] the variables of its instances. This crate does not run jobs.

pub mod environment;
mod exits;
mod job;
mod mask;
mod read;
mod remark;
mod script;
mod template;
mod value;

pub use exits::{EXITS, Exit, ExitKind, Reaction, exit};
pub use job::{
    Affinity, Auth, CellRequest, Deployment, Event, FailurePolicy, Hooks, Image, Job, Plugin, Prerequisite,
    PrerequisiteKind, PriorityClass, Role, Storage,
};
pub use mask::{MASK, masked};
pub use read::{Mode, Parsed, is_openpai, parse, parse_all};
pub use remark::{Faults, Remark};
pub use script::{Script, script};
pub use template::{SECRET_CLOSE, SECRET_OPEN};
pub use value::Value;
