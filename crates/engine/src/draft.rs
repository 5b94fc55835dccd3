//! A trial change of who holds what. It is applied at once, written down, and can be rolled back to any mark.

use std::collections::BTreeSet;

use dovetail_model::{Allocation, JobId};
use smallvec::SmallVec;

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

/// What a draft changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Who held nothing and has GPUs now.
    pub(crate) come: Vec<JobId>,
    /// What everyone else held whose GPUs are others now, or none, in the order they were first touched.
    pub(crate) others: Vec<(JobId, Allocation)>,
}

/// Jobs that were met. Of a few, looking at all of them is fastest.
enum Seen {
    Few(SmallVec<[JobId; 16]>),
    Many(BTreeSet<JobId>),
}

impl Seen {
    /// At most so many.
    fn of(count: usize) -> Self {
        match count <= 16 {
            true => Self::Few(SmallVec::new()),
            false => Self::Many(BTreeSet::new()),
        }
    }

    /// Whether it is new.
    fn insert(&mut self, job: JobId) -> bool {
        match self {
            Self::Many(seen) => seen.insert(job),
            Self::Few(seen) if seen.contains(&job) => false,
            Self::Few(seen) => {
                seen.push(job);
                true
            }
        }
    }
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

    /// The net change, job by job.
    pub(crate) fn changes(self, state: &State) -> Changes {
        // Where nobody lost anything, nobody was given anything twice, and everybody has what he was given.
        if self.steps.iter().all(|step| step.before.is_none()) {
            return Changes {
                come: self.steps.iter().map(|step| step.job).collect(),
                ..Changes::default()
            };
        }
        let mut changes = Changes::default();
        let mut seen = Seen::of(self.steps.len());
        for step in self.steps {
            if !seen.insert(step.job) || state.known(step.job).allocation == step.before {
                continue;
            }
            match step.before {
                None => changes.come.push(step.job),
                Some(before) => changes.others.push((step.job, before)),
            }
        }
        changes
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}
