//! A trial change of allocations. It is applied at once, recorded, and can be rolled back to any mark.

use std::collections::BTreeSet;

use dovetail_model::{Allocation, JobKey};
use smallvec::SmallVec;

use crate::parts::Tenancy;
use crate::state::State;

/// One recorded step: the job held `before`.
#[derive(Debug, Clone)]
struct Step {
    job: JobKey,
    before: Option<Allocation>,
    shared: bool,
}

/// The steps taken so far. A draft that is rolled back to its start leaves no trace.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    steps: Vec<Step>,
}

/// A point in a draft to which it can be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(usize);

/// The net change of a draft.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Jobs that held nothing and have GPUs now.
    pub(crate) placed: Vec<JobKey>,
    /// Jobs that hold other GPUs now, or none, with what they held before, in the order in which they first changed.
    pub(crate) changed: Vec<(JobKey, Allocation)>,
}

/// The jobs seen so far. Up to 16 of them are searched linearly, which is fastest.
enum SeenJobs {
    Few(SmallVec<[JobKey; 16]>),
    Many(BTreeSet<JobKey>),
}

impl SeenJobs {
    /// Returns an empty set for up to `count` jobs.
    fn for_count(count: usize) -> Self {
        match count <= 16 {
            true => Self::Few(SmallVec::new()),
            false => Self::Many(BTreeSet::new()),
        }
    }

    /// Adds a job. Returns whether it is new.
    fn insert(&mut self, job: JobKey) -> bool {
        match self {
            Self::Many(jobs) => jobs.insert(job),
            Self::Few(jobs) if jobs.contains(&job) => false,
            Self::Few(jobs) => {
                jobs.push(job);
                true
            }
        }
    }
}

impl Draft {
    /// Returns a mark of the current point.
    pub fn mark(&self) -> Mark {
        Mark(self.steps.len())
    }

    /// Whether no step was taken.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the job of each step.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobKey> {
        self.steps.iter().map(|step| step.job)
    }

    /// Gives GPUs to a job that holds none.
    pub(crate) fn assign(
        &mut self,
        state: &mut State,
        tenancy: &mut dyn Tenancy,
        job: JobKey,
        allocation: Allocation,
        shared: bool,
    ) {
        state.allocate(job, allocation, shared, tenancy);
        self.steps.push(Step {
            job,
            before: None,
            shared,
        });
    }

    /// Takes the GPUs of a job away and returns them.
    pub(crate) fn unassign(
        &mut self,
        state: &mut State,
        tenancy: &mut dyn Tenancy,
        job: JobKey,
    ) -> Allocation {
        let allocation = release(state, tenancy, job);
        self.steps.push(Step {
            job,
            before: Some(allocation.clone()),
            shared: true,
        });
        allocation
    }

    /// Undoes all steps since the mark.
    pub(crate) fn rollback(&mut self, state: &mut State, tenancy: &mut dyn Tenancy, mark: Mark) {
        while self.steps.len() > mark.0 {
            let step = self.steps.pop().expect("there are more steps than at the mark");
            match step.before {
                Some(allocation) => state.allocate(step.job, allocation, step.shared, tenancy),
                None => drop(release(state, tenancy, step.job)),
            }
        }
    }

    /// Returns the net change, job by job.
    pub(crate) fn changes(self, state: &State) -> Changes {
        // If no job lost anything, each job was given GPUs once and still has them.
        if self.steps.iter().all(|step| step.before.is_none()) {
            return Changes {
                placed: self.steps.iter().map(|step| step.job).collect(),
                ..Changes::default()
            };
        }
        let mut changes = Changes::default();
        let mut seen = SeenJobs::for_count(self.steps.len());
        for step in self.steps {
            if !seen.insert(step.job) || state.job(step.job).allocation == step.before {
                continue;
            }
            match step.before {
                None => changes.placed.push(step.job),
                Some(before) => changes.changed.push((step.job, before)),
            }
        }
        changes
    }
}

fn release(state: &mut State, tenancy: &mut dyn Tenancy, job: JobKey) -> Allocation {
    let allocation = state.entry(job).job.allocation.take();
    let allocation = allocation.expect("only a job with an allocation loses it");
    state.release(job, &allocation, tenancy);
    allocation
}
