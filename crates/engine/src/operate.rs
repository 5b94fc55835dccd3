//! What an operator may change while the engine runs.

use dovetail_model::JobId;

use crate::engine::{Clock, Engine};
use crate::parts::Policy;

impl Engine {
    /// Goes on under another policy. Nobody is stopped for it; the next decision is the new policy's.
    ///
    /// # Errors
    /// When jobs run in a way the new policy does not allow, such as two on a GPU; it stays with the old one then.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), String> {
        let mut trial = self.clone();
        trial.change_policy(policy);
        trial.check()?;
        *self = trial;
        Ok(())
    }

    fn change_policy(&mut self, policy: Policy) {
        self.policy = policy;
        let all: Vec<JobId> = self.state.jobs().map(|j| j.spec.id).collect();
        for id in &all {
            self.state.unseat(*id);
        }
        self.state.occupants = Default::default();
        self.state.suit(&self.policy);
        for id in all {
            let job = self.state.known(id);
            if let Some(allocation) = job.allocation.clone() {
                self.state.occupants.come(id, &allocation);
                self.state.touch(&allocation);
                let fills = self.state.fills;
                let job = &mut self.state.entry(id).job;
                // A sizing that grants nothing beyond what it promised leaves everyone with that.
                if !fills && job.granted.take().is_some() && job.is_up() {
                    self.resize(id, allocation);
                }
            }
            self.state.mark_stale(id);
        }
        self.tell_tenancy();
        self.books.wake = None;
        self.books.kept_for = None;
        self.books.dirty = true;
    }

    /// Decides at other moments from now on.
    pub fn set_clock(&mut self, clock: Clock) {
        self.books.clock = clock;
        self.books.dirty = true;
    }

    /// When decisions are taken.
    pub fn clock(&self) -> Clock {
        self.books.clock
    }

    /// Stops deciding: nobody is started and nobody is stopped, but facts are still heard. Or goes on.
    pub fn set_paused(&mut self, paused: bool) {
        self.books.paused = paused;
        self.books.dirty |= !paused;
    }

    /// Whether it is not deciding.
    pub fn is_paused(&self) -> bool {
        self.books.paused
    }
}
