//! Discipline: how the queue is walked.

use super::{Part, cloneable};
use crate::round::Round;

/// **Discipline**: decides what happens when the next job does not fit: skip it, stop, reserve GPUs for it, or preempt
/// other jobs.
pub trait Discipline: Part + CloneDiscipline {
    /// Walks the queue and starts the jobs that should run.
    fn walk(&mut self, round: &mut Round<'_>);

    /// Whether the walk looks at jobs that hold GPUs. If not, the engine does not keep them sorted.
    fn needs_holders(&self) -> bool;

    /// Whether a job that fits may start although one ahead of it does not.
    fn passes_over(&self) -> bool {
        true
    }

    /// Whether every job that still fits may start after the walk, because the walk reserves nothing.
    fn starts_all_that_fit(&self) -> bool {
        false
    }

    /// Whether running jobs can lose their GPUs to jobs ahead of them, so that the passing of time alone can change which
    /// jobs should run.
    fn preempts(&self) -> bool;
}

cloneable!(Discipline, CloneDiscipline);
