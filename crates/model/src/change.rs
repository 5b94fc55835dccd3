//! What would let a job start.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};
use crate::reason::Words;

/// A change that would let a job start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// The end of these jobs.
    JobsEnd(Vec<JobId>),
    /// The return of these nodes.
    NodesReturn(Vec<NodeId>),
    /// More cells: it asks for more GPUs than its tenant owns of the kind.
    MoreCells {
        /// GPUs asked for.
        asked: u32,
        /// GPUs owned.
        owned: u32,
    },
    /// Larger cells: none of its tenant's holds its largest part.
    LargerCells {
        /// GPUs of the largest part.
        asked: u32,
        /// GPUs of the largest cell.
        largest: u32,
    },
    /// A higher limit for its user, or the end of some of the user's jobs.
    HigherLimit,
    /// No single kind of change that was found.
    Unknown,
}

impl Change {
    /// Says it with names.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, words: &dyn Words) -> fmt::Result {
        let list = |ids: Vec<String>| ids.join(" and ");
        match self {
            Self::JobsEnd(jobs) => {
                let jobs = jobs.iter().map(|j| format!("job {}", words.job(*j))).collect();
                write!(f, "could start if {} ended", list(jobs))
            }
            Self::NodesReturn(nodes) => {
                let nodes = nodes.iter().map(|n| format!("node {}", words.node(*n))).collect();
                write!(f, "could start if {} came back", list(nodes))
            }
            Self::MoreCells { asked, owned } => {
                write!(
                    f,
                    "could start if its tenant owned more than {owned} GPUs of the kind: it asks for {asked}"
                )
            }
            Self::LargerCells { asked, largest } => {
                write!(
                    f,
                    "could start in larger cells: {asked} of its GPUs belong together, the largest cell has {largest}"
                )
            }
            Self::HigherLimit => write!(f, "could start if its user might hold more, or held less"),
            Self::Unknown => write!(f, "no single kind of change was found that lets it start"),
        }
    }
}
