//! The invariants of the engine, checked from scratch. Tests and `--check` run this after every step.

mod error;
mod gpus;

use dovetail_model::SharingTerms;

use crate::job::{Job, Stage};
use crate::job_queues::Membership;
use crate::state::State;
pub use error::{CheckError, JobList};

/// Checks the invariants of the state.
pub(crate) fn check(state: &State, terms: SharingTerms) -> Result<(), CheckError> {
    check_jobs(state)?;
    gpus::check(state, terms)?;
    check_queues(state)
}

/// Checks that every job holds what its stage allows, and that jobs are counted correctly.
fn check_jobs(state: &State) -> Result<(), CheckError> {
    let (mut idle, mut holding) = (0, 0);
    for job in state.jobs() {
        check_job(state, job)?;
        match job.allocation {
            None => idle += 1,
            Some(_) => holding += 1,
        }
    }
    if (idle, holding) != (state.idle_jobs, state.holding_jobs) {
        return Err(CheckError::JobCounts {
            idle,
            holding,
            counted_idle: state.idle_jobs,
            counted_holding: state.holding_jobs,
        });
    }
    Ok(())
}

fn check_job(state: &State, job: &Job) -> Result<(), CheckError> {
    let id = job.spec.id;
    let Some(allocation) = &job.allocation else {
        return match job.holds_gpus() {
            true => Err(CheckError::RunsWithoutAllocation { job: id }),
            false => Ok(()),
        };
    };
    let least = job.spec.min_gpus.min(job.spec.gpus);
    let most = job.spec.max_gpus.max(job.spec.gpus);
    if !(least..=most).contains(&allocation.gpus()) {
        return Err(CheckError::IncompleteGang {
            job: id,
            gpus: allocation.gpus(),
            asked: job.spec.gpus,
        });
    }
    if job.stage != Stage::Admitted {
        return Err(CheckError::NotAdmitted { job: id });
    }
    if !job.holds_gpus() && !state.pending.contains(&id) {
        return Err(CheckError::NeverLaunched { job: id });
    }
    Ok(())
}

/// Checks that every job is in the queue, and at the position, where it belongs.
fn check_queues(state: &State) -> Result<(), CheckError> {
    let (mut queued, mut holders) = (0, 0);
    for entry in state.jobs.values().flatten() {
        let job = &entry.job;
        let id = job.spec.id;
        let is_there = match entry.membership {
            Membership::None if job.is_queued() && !entry.stale => {
                return Err(CheckError::NotQueued { job: id });
            }
            Membership::None => continue,
            Membership::Queued => {
                queued += 1;
                state.queues.queued.contains(job.shape, &job.sort_key, id)
            }
            Membership::Holder => {
                holders += 1;
                state.queues.holders.contains((), &job.sort_key, id)
            }
        };
        if !is_there {
            return Err(CheckError::WrongPosition { job: id });
        }
    }
    if (queued, holders) != (state.queues.queued.len(), state.queues.holders.len()) {
        return Err(CheckError::UnknownInQueue);
    }
    Ok(())
}
