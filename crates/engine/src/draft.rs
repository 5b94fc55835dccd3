//! A trial change of who holds what. It is applied at once, written down, and can be rolled back to any mark.

use dovetail_model::{Allocation, JobId};

use crate::parts::Tenancy;
use crate::state::State;

/// One step: the job held `before`.
#[derive(Debug, Clone)]
struct Step {
    job: JobId,
    before: Option<Allocation>,
    shared: bool,
}

/// The steps taken so far. A draft that is rolled back to its start leaves no trace.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    steps: Vec<Step>,
}

/// A point in a draft to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(usize);

/// What a draft changed for one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) job: JobId,
    pub(crate) before: Option<Allocation>,
}

impl Draft {
    /// Here.
    pub fn mark(&self) -> Mark {
        Mark(self.steps.len())
    }

    /// Gives the job these GPUs; it must hold none.
    pub(crate) fn assign(
        &mut self,
        state: &mut State,
        tenancy: &mut dyn Tenancy,
        job: JobId,
        allocation: Allocation,
        shared: bool,
    ) {
        state.hand_out(job, allocation, shared, tenancy);
        self.steps.push(Step {
            job,
            before: None,
            shared,
        });
    }

    /// Takes the job's GPUs away and returns them.
    pub(crate) fn unassign(
        &mut self,
        state: &mut State,
        tenancy: &mut dyn Tenancy,
        job: JobId,
    ) -> Allocation {
        let allocation = state
            .entry(job)
            .job
            .allocation
            .take()
            .expect("only a holder loses GPUs");
        state.give_back(job, &allocation, tenancy);
        self.steps.push(Step {
            job,
            before: Some(allocation.clone()),
            shared: true,
        });
        allocation
    }

    /// Undoes everything since the mark.
    pub(crate) fn rollback(&mut self, state: &mut State, tenancy: &mut dyn Tenancy, mark: Mark) {
        while self.steps.len() > mark.0 {
            let step = self.steps.pop().expect("longer than the mark");
            match step.before {
                Some(allocation) => state.hand_out(step.job, allocation, step.shared, tenancy),
                None => {
                    let allocation = state
                        .entry(step.job)
                        .job
                        .allocation
                        .take()
                        .expect("the step gave it one");
                    state.give_back(step.job, &allocation, tenancy);
                }
            }
        }
    }

    /// The net change, job by job in the order they were first touched.
    pub(crate) fn changes(self, state: &State) -> Vec<Changed> {
        let mut changes: Vec<Changed> = Vec::with_capacity(self.steps.len());
        // Where nobody lost anything, nobody was given anything twice.
        let once = self.steps.iter().all(|step| step.before.is_none());
        let many = self.steps.len() > 16;
        let mut seen = std::collections::BTreeSet::new();
        for step in self.steps {
            let known = if once {
                false
            } else if many {
                !seen.insert(step.job)
            } else {
                changes.iter().any(|c| c.job == step.job)
            };
            if !known {
                changes.push(Changed {
                    job: step.job,
                    before: step.before,
                });
            }
        }
        changes.retain(|c| state.known(c.job).allocation != c.before);
        changes
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}
