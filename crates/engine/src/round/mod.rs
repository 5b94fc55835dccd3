//! One walk of the queue, as a discipline sees it: candidates in queue order, holders from the end of the queue, and a
//! plan between them.

mod candidates;
mod holders;
mod preempt;

use dovetail_model::{Allocation, JobKey, Reason, Time};

use crate::cluster::Cluster;
use crate::draft::{Draft, Mark};
use crate::job::Job;
use crate::parts::Discipline;
use crate::planner::{Planner, Steps};
use crate::queue_key::Rank;
use crate::replan::Replan;
use crate::shape::ShapeId;
use crate::state::State;
use candidates::Candidates;
use holders::HolderScan;

/// A queued job that is offered to the discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The job.
    pub job: JobKey,
    /// Its rank in the queue.
    pub rank: Rank,
    /// Its shape; none for a job that lost its GPUs in this round.
    pub shape: Option<ShapeId>,
}

impl Candidate {
    /// Returns a holder as the candidate it becomes by [`Round::withdraw`].
    pub fn from_holder(rank: Rank) -> Self {
        Self {
            job: rank.job,
            rank,
            shape: None,
        }
    }
}

/// A point in the round to which it can be rolled back.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint {
    draft: Mark,
    evicted: usize,
    restarted: usize,
}

/// A job for which GPUs are reserved, and when it should start, if that is known.
pub(crate) type Reservation = (JobKey, Option<Time>);

/// The result of a walk.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) draft: Draft,
    /// When the discipline wants to decide again.
    pub(crate) wake: Option<Time>,
    pub(crate) reserved_for: Option<Reservation>,
}

/// One walk of the queue. Nothing is carried out before the walk has ended.
#[derive(Debug)]
pub struct Round<'a> {
    planner: Planner<'a>,
    candidates: Candidates,
    holders: HolderScan,
    wake: Option<Time>,
    reserved_for: Option<Reservation>,
}

impl<'a> Round<'a> {
    pub(crate) fn new(state: &'a mut State, steps: Steps<'a>) -> Self {
        Self {
            planner: Planner::new(state, steps),
            candidates: Candidates::default(),
            holders: HolderScan::default(),
            wake: None,
            reserved_for: None,
        }
    }

    /// Lets the discipline walk the queue and returns the plan. Where the sizing prefers jobs that find headroom, the
    /// discipline starts those alone, and the others follow on what is left.
    pub(crate) fn walk(mut self, discipline: &mut dyn Discipline) -> Plan {
        let filling = self.planner.steps.size.filling();
        let headroom_first = filling.is_some_and(|filling| filling.starts_with_headroom_first());
        if headroom_first && discipline.starts_all_that_fit() {
            self.planner.require_headroom(true);
            self.candidates.keep_passed(true);
            discipline.walk(&mut self);
            self.start_without_headroom();
        } else {
            discipline.walk(&mut self);
        }
        Plan {
            draft: self.planner.draft,
            wake: self.wake,
            reserved_for: self.reserved_for,
        }
    }

    /// Starts every job that fits without headroom, in queue order.
    fn start_without_headroom(&mut self) {
        self.planner.require_headroom(false);
        self.candidates.offer_passed(self.planner.state);
        while let Some(candidate) = self.next_fitting() {
            if self.start(&candidate).is_err() {
                self.pass_over(&candidate);
            }
        }
    }

    /// Returns the moment of this round.
    pub fn now(&self) -> Time {
        self.planner.state.now
    }

    /// Returns the cluster with the changes of the plan.
    pub fn cluster(&self) -> &Cluster {
        &self.planner.state.cluster
    }

    /// Returns an unfinished job.
    ///
    /// # Panics
    /// Panics if the job has ended.
    pub fn job(&self, id: JobKey) -> &Job {
        self.planner.job(id)
    }

    /// Returns the planner, for disciplines that build the plan from scratch.
    pub fn planner(&mut self) -> &mut Planner<'a> {
        &mut self.planner
    }

    /// Returns the next job of the queue without GPUs: queued, or evicted earlier in this round.
    pub fn next_queued(&mut self) -> Option<Candidate> {
        self.candidates.next(self.planner.state, false)
    }

    /// Like [`Round::next_queued`], but jobs that ask for more GPUs than are free are not offered in this round, now or
    /// later.
    pub fn next_fitting(&mut self) -> Option<Candidate> {
        self.candidates.next(self.planner.state, true)
    }

    /// Offers no more jobs of the candidate's shape in this round. A job evicted in this round is dropped alone.
    pub fn pass_over(&mut self, candidate: &Candidate) {
        self.candidates.pass_over(candidate);
    }

    /// Offers all jobs without GPUs again, if the tenancy refused one of them something for which other jobs may have made
    /// room since. Jobs that started in this round can then be evicted like other holders. Returns false if the plan has
    /// not changed since `checkpoint`, because all answers would be the same.
    ///
    /// The round cannot be rolled back to earlier checkpoints afterwards. Every walk that changes the plan starts a job at
    /// the cost only of jobs behind it, so the walks come to an end.
    pub fn revisit(&mut self, checkpoint: &Checkpoint) -> bool {
        if !self.planner.steps.limit.wants_retry() || self.planner.draft.mark() == checkpoint.draft {
            return false;
        }
        let state = &*self.planner.state;
        let changed = self.planner.draft.jobs();
        let started = changed.filter(|id| state.is_in_queue(*id) && state.job(*id).allocation.is_some());
        let mut started: Vec<Rank> = started.map(|id| state.rank(id)).collect();
        started.sort_unstable();
        started.dedup();
        self.holders.restart(state, started);
        self.candidates.restart(state);
        true
    }

    /// Whether jobs start only where they find their headroom. Those that do not are considered again after the walk.
    pub fn requires_headroom(&self) -> bool {
        self.planner.requires_headroom()
    }

    /// Gives GPUs to the candidate, if there are enough for all of it. A job evicted in this round gets its own GPUs back
    /// if they are still free.
    ///
    /// # Errors
    /// Returns the reason when no placement exists.
    pub fn start(&mut self, candidate: &Candidate) -> Result<(), Reason> {
        let lost = self.candidates.lost_by(candidate).cloned();
        let allocation = match lost.filter(|lost| self.planner.may_return_to(candidate.job, lost)) {
            Some(lost) => lost,
            None => self.planner.place_candidate(candidate)?,
        };
        self.assign(candidate, allocation, false);
        Ok(())
    }

    /// Like [`Round::start`], but a job evicted in this round is placed like any other.
    ///
    /// # Errors
    /// Returns the reason when no placement exists.
    pub fn start_anywhere(&mut self, candidate: &Candidate) -> Result<(), Reason> {
        let allocation = self.planner.place_candidate(candidate)?;
        self.assign(candidate, allocation, false);
        Ok(())
    }

    /// Finds GPUs for the candidate at least some of which other jobs hold, as the grouping chooses. A job evicted in this
    /// round gets its own GPUs back if only jobs that shared them before are there.
    pub fn find_beside(&mut self, candidate: &Candidate) -> Option<Allocation> {
        if !self.planner.steps.group.terms().overlap {
            return None;
        }
        let gpu_memory_mib = self.job(candidate.job).spec.gpu_memory_mib;
        if let Some(lost) = self.candidates.lost_by(candidate)
            && self.planner.has_room_as_before(lost, gpu_memory_mib)
        {
            return Some(lost.clone());
        }
        self.planner.place_beside(candidate.job)
    }

    /// Gives the candidate GPUs that other jobs may hold, as [`Round::find_beside`] found them.
    pub fn start_beside(&mut self, candidate: &Candidate, allocation: Allocation) {
        self.assign(candidate, allocation, true);
    }

    fn assign(&mut self, candidate: &Candidate, allocation: Allocation, share: bool) {
        self.candidates.restarted(candidate);
        self.planner.assign(candidate.job, allocation, share);
    }

    /// Returns all jobs that hold GPUs, in queue order.
    pub fn holders(&self) -> Vec<Rank> {
        self.planner.holders()
    }

    /// Returns all jobs, queued or holding GPUs, in queue order.
    pub fn all_jobs(&self) -> Vec<Rank> {
        self.planner.all_jobs()
    }

    /// Returns the queued jobs, in queue order. They can be started in any order, but [`Round::next_queued`] does not take
    /// note of it: a walk uses one or the other.
    pub fn queued(&self) -> Vec<Candidate> {
        let state = &*self.planner.state;
        let all = state.queues.queued.sorted(state.now);
        let candidate = |rank: Rank| Candidate {
            job: rank.job,
            rank,
            shape: Some(state.job(rank.job).shape),
        };
        all.into_iter().map(candidate).collect()
    }

    /// Plans all jobs at once: sizes and groups them, and leaves those in place for which nothing changes. Where tenants
    /// have limits, each account is planned separately.
    pub fn replan(&mut self) {
        if let Some(at) = Replan::new(&mut self.planner).run() {
            self.wake_at(at);
        }
    }

    /// Requests another decision at this moment, whatever happens until then.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    /// Records that GPUs are reserved for the candidate, which explains to jobs behind it why they wait.
    pub fn reserve_for(&mut self, candidate: &Candidate, expected_start: Option<Time>) {
        self.reserved_for = Some((candidate.job, expected_start));
    }
}
