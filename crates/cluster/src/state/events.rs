//! The log of recent cluster events.

use std::collections::VecDeque;

use dovetail_model::{NodeId, Time};
use serde::{Deserialize, Serialize};

use super::jobs::{Cause, End, Hold};
use crate::JobId;
use crate::actor::Actor;
use crate::fact::OperatorAction;

/// Number of events that are kept; older ones are only in the journal.
const MAX_EVENTS: usize = 10_000;
/// Number of events that are kept while they cannot be stored elsewhere.
const MAX_UNSTORED_EVENTS: usize = 200_000;

/// An entry in the log of recent events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterEvent {
    /// Number of the event; consecutive.
    pub number: u64,
    /// Time of the event.
    pub at: Time,
    /// Job the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The job was submitted.
    Submitted,
    /// The job waits for something other than GPUs.
    Held(Hold),
    /// The job was queued.
    Queued,
    /// The job has GPUs and is being started.
    Starting {
        /// Nodes of the attempt.
        nodes: Vec<NodeId>,
        /// Number of GPUs in total.
        gpus: u32,
    },
    /// The job runs.
    Running,
    /// The job was told to stop.
    Stopping(Cause),
    /// The job has stopped and is queued again.
    Requeued(Cause),
    /// The job has ended.
    Ended(End),
    /// A node joined or returned.
    NodeJoined {
        /// The node.
        node: NodeId,
    },
    /// A node was lost.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A node was drained: it gets no new jobs.
    NodeDrained {
        /// The node.
        node: NodeId,
        /// User or rule that drained it.
        by: Actor,
        /// Reason given.
        reason: String,
    },
    /// A drained node gets jobs again.
    NodeResumed {
        /// The node.
        node: NodeId,
        /// User who resumed it.
        by: Actor,
    },
    /// An operator changed a setting of the scheduler.
    Operated {
        /// The change.
        action: OperatorAction,
        /// User who made it.
        by: Actor,
    },
    /// A change was not made, with the reason.
    Refused(String),
}

/// Recent events, oldest first.
#[derive(Debug, Clone)]
pub(super) struct EventLog {
    events: VecDeque<ClusterEvent>,
    next: u64,
    /// Number of the last event that is stored elsewhere; older events are not kept for that.
    stored: u64,
}

impl EventLog {
    /// Creates an empty log whose first event gets the number `next`.
    pub(super) fn new(next: u64) -> Self {
        Self {
            events: VecDeque::new(),
            next,
            stored: u64::MAX,
        }
    }

    /// Keeps events until they are stored elsewhere; all before `next` are, except these.
    pub(super) fn keep_unstored(&mut self, unstored: Vec<ClusterEvent>) {
        let first = unstored.first().map_or(self.next, |event| event.number);
        self.stored = first - 1;
        self.events = unstored.into();
    }

    /// Notes that events up to this number are stored elsewhere.
    pub(super) fn note_stored(&mut self, number: u64) {
        self.stored = self.stored.max(number);
        while self.events.len() > MAX_EVENTS && self.events[0].number <= self.stored {
            self.events.pop_front();
        }
    }

    /// Returns the events that are not stored elsewhere.
    pub(super) fn unstored(&self) -> impl Iterator<Item = &ClusterEvent> {
        self.after(self.stored)
    }

    /// Returns whether all events are stored elsewhere.
    pub(super) fn has_stored_all(&self) -> bool {
        self.unstored().next().is_none()
    }

    /// Returns the number of the last event that is stored elsewhere.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn log(&mut self, now: Time, job: Option<JobId>, kind: EventKind) {
        let is_stored = self
            .events
            .front()
            .is_some_and(|event| event.number <= self.stored);
        let most = if is_stored {
            MAX_EVENTS
        } else {
            MAX_UNSTORED_EVENTS
        };
        if self.events.len() >= most {
            self.events.pop_front();
        }
        self.events.push_back(ClusterEvent {
            number: self.next,
            at: now,
            job,
            kind,
        });
        self.next += 1;
    }

    /// Returns the number of the oldest event that is still kept; without one, the number of the next event.
    pub(super) fn oldest(&self) -> u64 {
        self.events.front().map_or(self.next, |event| event.number)
    }

    /// Returns the events after this number that are still kept.
    pub(super) fn after(&self, number: u64) -> impl Iterator<Item = &ClusterEvent> {
        let from = self.events.partition_point(|event| event.number <= number);
        self.events.range(from..)
    }

    /// Adds the events of another log that are older than all events of this one.
    pub(super) fn prepend(&mut self, older: Self) {
        let first = self.events.front().map_or(self.next, |event| event.number);
        let mut events = older.events;
        events.retain(|event| event.number < first);
        events.append(&mut self.events);
        self.events = events;
        self.stored = self.stored.max(older.stored);
    }
}
