//! The candidates of a round: the first job of each group of the queue, merged in queue order, and the jobs evicted in
//! this round.

use dovetail_model::{Allocation, GpuTypeId, JobKey};

use super::Candidate;
use crate::queue::Group;
use crate::queue_key::{Position, Rank};
use crate::shape::ShapeId;
use crate::state::State;

/// The first job still offered of one group of the queue.
#[derive(Debug, Clone)]
struct Head {
    shape: ShapeId,
    slope: i64,
    gpus: u32,
    gpu_type: Option<GpuTypeId>,
    position: Position,
    rank: Rank,
    /// How many more jobs the next lookup fetches; grows with the number of jobs taken.
    prefetch: u32,
    /// Jobs fetched ahead. Boxed because heads are moved often and most never have any.
    fetched: Option<Box<Fetched>>,
}

/// Jobs of a group that were fetched ahead, the next one last.
#[derive(Debug, Clone, Default)]
struct Fetched(Vec<Position>);

/// The most jobs of a group that one lookup fetches.
const MAX_PREFETCH: u32 = 64;

impl Head {
    fn new(group: &Group<'_, ShapeId>, state: &State) -> Option<Self> {
        let shape = state.queues.shapes.get(group.key);
        let position = group.first()?;
        Some(Self {
            shape: group.key,
            slope: group.slope,
            gpus: shape.gpus,
            gpu_type: shape.gpu_type,
            position,
            rank: position.rank(group.slope, state.now),
            prefetch: 0,
            fetched: None,
        })
    }

    /// Advances to the next job of the group. Returns false if there is none. The queue does not change during a walk.
    fn advance(&mut self, state: &State) -> bool {
        let fetched = self.fetched.as_mut().and_then(|fetched| fetched.0.pop());
        let Some(next) = fetched.or_else(|| self.fetch(state)) else {
            return false;
        };
        (self.position, self.rank) = (next, next.rank(self.slope, state.now));
        true
    }

    /// Looks up the next job of the group, and some after it.
    fn fetch(&mut self, state: &State) -> Option<Position> {
        let group = state.queues.queued.group(self.shape, self.slope);
        let mut behind = group.after(self.position);
        let next = behind.next();
        if self.prefetch > 0 {
            let fetched = &mut self.fetched.get_or_insert_default().0;
            fetched.extend(behind.take(self.prefetch as usize));
            fetched.reverse();
        }
        self.prefetch = (self.prefetch * 2 + 1).min(MAX_PREFETCH);
        next
    }

    /// Advances to the next job without GPUs, starting with the present one. Returns false if there is none.
    fn skip_placed(&mut self, state: &State) -> bool {
        while state.job(self.rank.job).allocation.is_some() {
            if !self.advance(state) {
                return false;
            }
        }
        true
    }
}

/// A job that was evicted in this round and may get GPUs again.
#[derive(Debug, Clone)]
struct Evicted {
    rank: Rank,
    /// What it held.
    lost: Allocation,
}

/// The candidates of a round.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// The first job of every group still offered; none before the first lookup.
    heads: Option<Vec<Head>>,
    /// The head that was offered last.
    offered: Option<usize>,
    /// Jobs evicted in this round.
    evicted: Vec<Evicted>,
    /// Evicted jobs that started again, for a rollback.
    restarted: Vec<Evicted>,
    /// Evicted jobs that were passed over.
    dropped: Vec<Evicted>,
    /// Groups that were passed over or did not fit, if they are offered again after the walk.
    passed: Vec<Head>,
    keep_passed: bool,
    /// Whether the queue was walked before in this round, so that any job of it may have GPUs.
    is_retry: bool,
}

impl Candidates {
    /// Sets whether groups that are passed over are kept for [`Candidates::offer_passed`].
    pub(super) fn keep_passed(&mut self, keep: bool) {
        self.keep_passed = keep;
    }

    /// Offers the groups again that were passed over, from the job at which each was left.
    pub(super) fn offer_passed(&mut self, state: &State) {
        self.keep_passed = false;
        let mut heads = std::mem::take(&mut self.passed);
        heads.extend(self.heads.take().unwrap_or_default());
        heads.retain_mut(|head| head.skip_placed(state));
        (self.heads, self.offered) = (Some(heads), None);
    }

    /// Offers all jobs without GPUs again. Earlier restarts cannot be undone any more.
    pub(super) fn restart(&mut self, state: &State) {
        (self.heads, self.offered, self.is_retry) = (None, None, true);
        self.passed.clear();
        self.restarted.clear();
        self.evicted.append(&mut self.dropped);
        // A job that started and was evicted in this round is still in the queue, and offered from there.
        self.evicted
            .retain(|evicted| !state.is_in_queue(evicted.rank.job));
    }

    /// Returns the next candidate, in queue order.
    pub(super) fn next(&mut self, state: &State, only_fitting: bool) -> Option<Candidate> {
        let mut heads = match self.heads.take() {
            Some(heads) => heads,
            None => first_of_groups(state, only_fitting),
        };
        if let Some(i) = self.offered.take() {
            let head = &mut heads[i];
            if !head.advance(state) || self.is_retry && !head.skip_placed(state) {
                heads.swap_remove(i);
            }
        }
        if only_fitting {
            let too_wide = |head: &mut Head| head.gpus > state.cluster.free_gpus(head.gpu_type);
            self.passed
                .extend(heads.extract_if(.., too_wide).filter(|_| self.keep_passed));
        }
        let best = heads
            .iter()
            .enumerate()
            .min_by_key(|(_, h)| h.rank)
            .map(|(i, h)| (i, h.rank, h.shape));
        self.heads = Some(heads);
        let evicted = self.evicted.iter().map(|r| r.rank).min();
        match (best, evicted) {
            (Some((i, rank, shape)), evicted) if evicted.is_none_or(|other| rank < other) => {
                self.offered = Some(i);
                Some(Candidate {
                    job: rank.job,
                    rank,
                    shape: Some(shape),
                })
            }
            (_, Some(rank)) => Some(Candidate::from_holder(rank)),
            (_, None) => None,
        }
    }

    /// Offers no more jobs of the candidate's shape; an evicted job is dropped alone.
    pub(super) fn pass_over(&mut self, candidate: &Candidate) {
        match candidate.shape {
            None => {
                let is_it = |r: &mut Evicted| r.rank.job == candidate.job;
                self.dropped.extend(self.evicted.extract_if(.., is_it));
            }
            Some(shape) => {
                self.offered = None;
                if let Some(heads) = &mut self.heads {
                    let passed = heads.extract_if(.., |h| h.shape == shape);
                    self.passed.extend(passed.filter(|_| self.keep_passed));
                }
            }
        }
    }

    /// Adds a job that lost its GPUs.
    pub(super) fn evict(&mut self, rank: Rank, lost: Allocation) {
        self.evicted.push(Evicted { rank, lost });
    }

    /// Returns what the candidate lost in this round.
    pub(super) fn lost_by(&self, candidate: &Candidate) -> Option<&Allocation> {
        self.find_evicted(candidate).map(|i| &self.evicted[i].lost)
    }

    /// Notes that the candidate has GPUs again, if it was evicted in this round.
    pub(super) fn restarted(&mut self, candidate: &Candidate) {
        if let Some(i) = self.find_evicted(candidate) {
            self.restarted.push(self.evicted.swap_remove(i));
        }
    }

    fn find_evicted(&self, candidate: &Candidate) -> Option<usize> {
        match candidate.shape {
            Some(_) => None,
            None => self.evicted.iter().position(|r| r.rank.job == candidate.job),
        }
    }

    /// Returns how many evicted jobs started again so far.
    pub(super) fn restarts(&self) -> usize {
        self.restarted.len()
    }

    /// Undoes all restarts beyond the first `restarts`.
    pub(super) fn undo_restarts(&mut self, restarts: usize) {
        self.evicted.extend(self.restarted.drain(restarts..));
    }

    /// Undoes the eviction of a job.
    pub(super) fn undo_eviction(&mut self, job: JobKey) {
        self.evicted.retain(|r| r.rank.job != job);
        self.dropped.retain(|r| r.rank.job != job);
    }
}

/// Returns the first job without GPUs of every group of the queue; only of groups that may fit, if so asked.
fn first_of_groups(state: &State, only_fitting: bool) -> Vec<Head> {
    if only_fitting && state.cluster.free_gpus(None) == 0 {
        return Vec::new();
    }
    let head = |group: Group<'_, ShapeId>| {
        let shape = state.queues.shapes.get(group.key);
        if only_fitting && shape.gpus > state.cluster.free_gpus(shape.gpu_type) {
            return None;
        }
        let mut head = Head::new(&group, state)?;
        // When the queue is walked again, its first jobs may have been given GPUs.
        head.skip_placed(state).then_some(head)
    };
    state.queues.queued.groups().filter_map(head).collect()
}
