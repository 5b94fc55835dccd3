//! What happened, for people and pages that watch.

use dovetail_model::{NodeId, Time};
use serde::{Deserialize, Serialize};

use super::{Cause, ClusterState, End, Hold};
use crate::JobId;
use crate::actor::Actor;
use crate::fact::OperatorAction;

/// Notices that are kept; whoever is further behind reads the journal.
const KEPT: usize = 10_000;

/// Something people may want to know at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterEvent {
    /// Counts up without a gap.
    pub number: u64,
    /// When.
    pub at: Time,
    /// The job it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// What.
    pub kind: EventKind,
}

/// What a notice says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It came in.
    Submitted,
    /// It waits for something other than GPUs.
    Held(Hold),
    /// It stands in line.
    Queued,
    /// It has GPUs on these nodes, and is being started.
    Starting {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// GPUs in all.
        gpus: u32,
    },
    /// It runs.
    Running,
    /// It was told to stop.
    Stopping(Cause),
    /// It has stopped and stands in line again.
    Requeued(Cause),
    /// It is over.
    Ended(End),
    /// A node joined or came back.
    NodeJoined {
        /// The node.
        node: NodeId,
    },
    /// A node is gone.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A node takes no new jobs.
    NodeDrained {
        /// The node.
        node: NodeId,
        /// Who, or which rule.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// A node takes jobs again.
    NodeResumed {
        /// The node.
        node: NodeId,
        /// Who.
        by: Actor,
    },
    /// An operator changed something.
    Operated {
        /// What.
        action: OperatorAction,
        /// Who.
        by: Actor,
    },
    /// Something was not done: why.
    Refused(String),
}

impl ClusterState {
    pub(super) fn log_event(&mut self, job: Option<JobId>, kind: EventKind) {
        if self.notices.len() == KEPT {
            self.notices.pop_front();
        }
        self.notices.push_back(ClusterEvent {
            number: self.next_event,
            at: self.now,
            job,
            kind,
        });
        self.next_event += 1;
    }

    /// Notices after this number that are still kept.
    pub fn events_after(&self, number: u64) -> impl Iterator<Item = &ClusterEvent> {
        let from = self.notices.partition_point(|n| n.number <= number);
        self.notices.range(from..)
    }

    /// The number of the last notice.
    pub fn last_event(&self) -> u64 {
        self.next_event - 1
    }
}
