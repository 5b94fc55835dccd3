//! The two queues of the engine: jobs that wait, and jobs that hold GPUs.

use std::collections::BTreeSet;

use dovetail_model::{JobKey, Time};
use serde::{Deserialize, Serialize};

use crate::queue::{Batch, Queue};
use crate::shape::{ShapeId, Shapes};
use crate::state::Entry;

/// Which queue a job is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Membership {
    #[default]
    None,
    #[serde(alias = "Waiting")]
    Queued,
    #[serde(alias = "Holding")]
    Holder,
}

/// The sorted queues. Not part of a snapshot: they are rebuilt from the jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobQueues {
    pub(crate) shapes: Shapes,
    /// Jobs that wait for GPUs.
    pub(crate) queued: Queue<ShapeId>,
    /// Jobs that hold GPUs; empty under a discipline that does not look at them.
    pub(crate) holders: Queue<()>,
    /// When the sort keys of these jobs expire.
    pub(crate) expiries: BTreeSet<(Time, JobKey)>,
}

/// From this many moves on, jobs change queues in batches.
pub(crate) const BATCH: usize = 256;

/// Jobs that change queues together, if there are many of them.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    batched: bool,
    from_queued: Batch<ShapeId>,
    from_holders: Batch<()>,
    to_queued: Batch<ShapeId>,
    to_holders: Batch<()>,
}

impl Moves {
    /// Prepares for up to `count` moves.
    pub(crate) fn for_count(count: usize) -> Self {
        Self {
            batched: count >= BATCH,
            ..Self::default()
        }
    }
}

impl JobQueues {
    /// Puts a job into a queue by its sort key and shape; in a batch, when [`JobQueues::finish`] is called.
    pub(crate) fn enter(&mut self, entry: &mut Entry, to: Membership, moves: &mut Moves) {
        let (id, shape, sort_key) = (entry.job.spec.id, entry.job.shape, &entry.job.sort_key);
        match (to, moves.batched) {
            (Membership::None, _) => return,
            (Membership::Queued, true) => moves.to_queued.push(shape, sort_key, id),
            (Membership::Queued, false) => self.queued.insert(shape, sort_key, id),
            (Membership::Holder, true) => moves.to_holders.push((), sort_key, id),
            (Membership::Holder, false) => self.holders.insert((), sort_key, id),
        }
        if let Some(until) = sort_key.until {
            self.expiries.insert((until, id));
        }
        entry.membership = to;
    }

    /// Takes a job out of the queue it is in; in a batch, when [`JobQueues::finish`] is called.
    pub(crate) fn leave(&mut self, entry: &mut Entry, moves: &mut Moves) {
        let (id, shape, sort_key) = (entry.job.spec.id, entry.job.shape, &entry.job.sort_key);
        match (entry.membership, moves.batched) {
            (Membership::None, _) => return,
            (Membership::Queued, true) => moves.from_queued.push(shape, sort_key, id),
            (Membership::Queued, false) => self.queued.remove(shape, sort_key, id),
            (Membership::Holder, true) => moves.from_holders.push((), sort_key, id),
            (Membership::Holder, false) => self.holders.remove((), sort_key, id),
        }
        entry.membership = Membership::None;
        if let Some(until) = sort_key.until {
            self.expiries.remove(&(until, id));
        }
    }

    /// Carries out batched moves: all departures, then all arrivals.
    pub(crate) fn finish(&mut self, moves: Moves) {
        if moves.batched {
            self.queued.remove_all(moves.from_queued);
            self.holders.remove_all(moves.from_holders);
            self.queued.insert_all(moves.to_queued);
            self.holders.insert_all(moves.to_holders);
        }
    }
}
