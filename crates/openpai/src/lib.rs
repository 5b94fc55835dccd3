//! Job files of OpenPAI, protocol version 2: a parser that names every mistake at once, templates, secrets, completion
//! rules and the table of exit codes.
//!
//! Nothing here runs a job. [`parse`] gives a [`Job`], [`script`] the text one of its roles runs.

mod exits;
mod job;
mod mask;
mod node;
mod read;
mod remark;
mod script;
mod template;

pub use exits::{Blame, EXITS, Exit, Reaction, exit};
pub use job::{
    Affinity, Auth, CellWish, Deployment, Event, FailurePolicy, Hooks, Image, Job, Plugin, Prerequisite,
    PrerequisiteKind, PriorityClass, Role, Storage,
};
pub use mask::{MASK, masked};
pub use node::Node;
pub use read::{Mode, Parsed, is_openpai, parse, parse_all};
pub use remark::{Faults, Remark};
pub use script::{Script, script};
pub use template::{SECRET_CLOSE, SECRET_OPEN};
