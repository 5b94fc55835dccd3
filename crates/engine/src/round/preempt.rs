//! Preemption within a round: which holders are behind a candidate, their eviction, and its rollback.

use dovetail_model::JobKey;

use super::{Candidate, Checkpoint, Round};
use crate::job::Job;
use crate::queue_key::Rank;

impl Round<'_> {
    /// Returns the last holder of the queue, behind the candidate, that `may_go` and the tenancy allow to be evicted.
    pub fn last_holder_behind(
        &mut self,
        candidate: &Candidate,
        may_go: impl Fn(&Job) -> bool,
    ) -> Option<JobKey> {
        let (state, limit) = (&*self.planner.state, &*self.planner.steps.limit);
        let job = state.job(candidate.job);
        let mut at = self.holders.start();
        while let Some(holder) = self.holders.next_behind(state, candidate.rank, &mut at) {
            let victim = state.job(holder.job);
            if may_go(victim) && limit.may_evict(job, victim) {
                return Some(holder.job);
            }
        }
        None
    }

    /// Whether any holder is behind the candidate, whether it may be evicted or not. If none is, none is behind later
    /// candidates either.
    pub fn has_holder_behind(&mut self, candidate: &Candidate) -> bool {
        let mut at = self.holders.start();
        self.holders
            .next_behind(self.planner.state, candidate.rank, &mut at)
            .is_some()
    }

    /// Whether enough GPUs are free, or held by jobs behind the candidate that `may_go` accepts. Under a tenancy with
    /// limits this may overestimate: which jobs have to be evicted beside others is known only after those are.
    pub fn has_enough_gpus_behind(&mut self, candidate: &Candidate, may_go: impl Fn(&Job) -> bool) -> bool {
        let ask = self.planner.ask(candidate.job);
        let (state, limit) = (&*self.planner.state, &*self.planner.steps.limit);
        let job = state.job(candidate.job);
        let mut gpus = state.cluster.free_gpus(ask.gpu_type);
        let mut at = self.holders.start();
        while gpus < ask.gpus {
            let Some(holder) = self.holders.next_behind(state, candidate.rank, &mut at) else {
                return false;
            };
            let victim = state.job(holder.job);
            if may_go(victim) && (limit.has_limits() || limit.may_evict(job, victim)) {
                gpus += victim.width();
            }
        }
        true
    }

    /// Takes the GPUs of a holder away that [`Round::last_holder_behind`] returned. It is offered again at its rank in the
    /// queue.
    pub fn evict(&mut self, victim: JobKey) {
        let lost = self.planner.unassign(victim);
        let rank = self.holders.evict(victim);
        self.candidates.evict(rank, lost);
    }

    /// Takes the GPUs of any holder away. Returns it as a candidate: it may start again, on its own GPUs if these are
    /// still free.
    pub fn withdraw(&mut self, holder: Rank) -> Candidate {
        let lost = self.planner.unassign(holder.job);
        self.holders.withdraw(holder.job);
        self.candidates.evict(holder, lost);
        Candidate::from_holder(holder)
    }

    /// Returns a checkpoint of the present point.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            draft: self.planner.draft.mark(),
            evicted: self.holders.evictions(),
            restarted: self.candidates.restarts(),
        }
    }

    /// Undoes all evictions and starts since the checkpoint.
    pub fn rollback(&mut self, checkpoint: Checkpoint) {
        self.planner.rollback(checkpoint.draft);
        self.candidates.undo_restarts(checkpoint.restarted);
        let candidates = &mut self.candidates;
        self.holders
            .undo_evictions(checkpoint.evicted, |job| candidates.undo_eviction(job));
    }
}
