//! The future events of a run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dovetail_model::{AttemptKey, JobKey, NodeId, Time, Work};

/// A future event. The order of the variants is the order of handling at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScheduledEvent {
    /// An attempt ends, if its epoch is still the same.
    End(JobKey, AttemptKey, u32),
    /// An attempt has started up.
    Started(JobKey, AttemptKey),
    /// An attempt has vacated its GPUs, with this work done.
    Stopped(JobKey, AttemptKey, Work),
    /// A node fails, until the given time.
    NodeDown(NodeId, Time),
    /// A node returns.
    NodeUp(NodeId),
}

/// Future events in order of time, and the current time.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    scheduled: BinaryHeap<Reverse<(Time, ScheduledEvent)>>,
    pub(super) now: Time,
    /// Number of events that were handled.
    pub(super) handled: u64,
}

impl EventQueue {
    pub(super) fn schedule(&mut self, at: Time, event: ScheduledEvent) {
        self.scheduled.push(Reverse((at, event)));
    }

    /// Returns the time of the next event.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.scheduled.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and counts the next event that is due.
    pub(super) fn pop_due(&mut self) -> Option<ScheduledEvent> {
        if self.next_time()? > self.now {
            return None;
        }
        let Reverse((_, event)) = self.scheduled.pop()?;
        self.handled += 1;
        Some(event)
    }

    /// Whether no event is scheduled but failures of nodes.
    pub(super) fn has_only_failures(&self) -> bool {
        self.scheduled
            .iter()
            .all(|Reverse((_, event))| matches!(event, ScheduledEvent::NodeDown(..)))
    }
}
