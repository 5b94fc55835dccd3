//! Holders from the end of the queue: the order in which they are preempted.

use dovetail_model::JobKey;

use crate::queue_key::{Position, Rank};
use crate::state::State;

/// A holder that the scan has reached.
#[derive(Debug, Clone, Copy)]
struct Holder {
    rank: Rank,
    evicted: bool,
}

/// A scan of the holders, the last of the queue first, that extends as far as it is needed.
#[derive(Debug, Default)]
pub(super) struct HolderScan {
    /// Holders reached so far.
    reached: Vec<Holder>,
    /// All holders before this index are evicted.
    first: usize,
    /// For each slope, the last holder not yet reached.
    cursors: Option<Vec<(i64, Option<Position>)>>,
    /// Jobs that started in an earlier walk of this round and were not reached yet, in queue order.
    started: Vec<Rank>,
    /// Jobs evicted in this round, for a rollback.
    evicted: Vec<JobKey>,
}

impl HolderScan {
    /// Returns the index at which a search for holders begins.
    pub(super) fn start(&self) -> usize {
        self.first
    }

    /// Returns the next holder behind `rank` that is not evicted, from index `at` on, and moves `at` behind it.
    pub(super) fn next_behind(&mut self, state: &State, rank: Rank, at: &mut usize) -> Option<Rank> {
        loop {
            if *at == self.reached.len() && !self.extend(state) {
                return None;
            }
            let holder = self.reached[*at];
            if holder.rank <= rank {
                return None;
            }
            *at += 1;
            if !holder.evicted {
                return Some(holder.rank);
            }
        }
    }

    /// Reaches one more holder. Returns false if there is none.
    fn extend(&mut self, state: &State) -> bool {
        let Some(rank) = self.pull(state) else {
            return false;
        };
        let evicted = self.evicted.contains(&rank.job);
        self.reached.push(Holder { rank, evicted });
        true
    }

    /// Returns the last holder not yet reached: the largest end of all groups, or the last job started in this round.
    fn pull(&mut self, state: &State) -> Option<Rank> {
        let holders = &state.queues.holders;
        let cursors = self
            .cursors
            .get_or_insert_with(|| holders.groups().map(|g| (g.slope, g.last())).collect());
        let last = cursors
            .iter()
            .enumerate()
            .filter_map(|(i, (slope, position))| position.map(|p| (i, p.rank(*slope, state.now))))
            .max_by_key(|(_, rank)| *rank);
        if let Some(started) = self
            .started
            .pop_if(|rank| last.is_none_or(|(_, other)| *rank > other))
        {
            return Some(started);
        }
        let (i, rank) = last?;
        let (slope, position) = cursors[i];
        cursors[i].1 = position.and_then(|p| holders.group((), slope).before(p));
        Some(rank)
    }

    /// Begins the scan again, for another walk of the same round: jobs that `started` in it, given in queue order, can be
    /// evicted like other holders. Earlier evictions cannot be undone any more.
    pub(super) fn restart(&mut self, state: &State, started: Vec<Rank>) {
        let mut evicted = std::mem::take(&mut self.evicted);
        evicted.retain(|job| state.job(*job).allocation.is_none());
        *self = Self {
            started,
            evicted,
            ..Self::default()
        };
    }

    /// Marks a holder that the scan has reached as evicted, and returns its rank.
    pub(super) fn evict(&mut self, victim: JobKey) -> Rank {
        let reached = (self.first..self.reached.len()).find(|i| self.reached[*i].rank.job == victim);
        let reached = reached.expect("a victim was found by the scan");
        self.reached[reached].evicted = true;
        while self.reached.get(self.first).is_some_and(|h| h.evicted) {
            self.first += 1;
        }
        self.evicted.push(victim);
        self.reached[reached].rank
    }

    /// Marks any holder as evicted, whether the scan has reached it or not.
    pub(super) fn withdraw(&mut self, job: JobKey) {
        if let Some(holder) = self.reached.iter_mut().find(|h| h.rank.job == job) {
            holder.evicted = true;
        }
        self.evicted.push(job);
    }

    /// Returns how many holders were evicted so far.
    pub(super) fn evictions(&self) -> usize {
        self.evicted.len()
    }

    /// Undoes all evictions beyond the first `evictions`, and passes each job to `undone`.
    pub(super) fn undo_evictions(&mut self, evictions: usize, mut undone: impl FnMut(JobKey)) {
        for job in self.evicted.drain(evictions..) {
            undone(job);
            if let Some(i) = self.reached.iter().position(|h| h.rank.job == job) {
                self.reached[i].evicted = false;
                self.first = self.first.min(i);
            }
        }
    }
}
