//! Changes that would let a job start.

use serde::{Deserialize, Serialize};

use crate::ids::{JobKey, NodeId};

/// A change that would let a job start. [`crate::Reason::render`] gives its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// These jobs end.
    JobsEnd(Vec<JobKey>),
    /// These nodes return.
    NodesReturn(Vec<NodeId>),
    /// The tenant gets more cells: the job asks for more GPUs than its tenant owns of this type.
    MoreCells {
        /// GPUs asked for.
        asked: u32,
        /// GPUs owned.
        owned: u32,
    },
    /// The tenant gets larger cells: none of its cells holds the job's largest task.
    LargerCells {
        /// GPUs of the largest task.
        asked: u32,
        /// GPUs of the largest cell.
        largest: u32,
    },
    /// The user's limit is raised, or some of the user's jobs end.
    HigherLimit,
    /// No single change was found.
    Unknown,
}
