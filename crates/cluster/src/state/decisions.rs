//! Decisions: what the engine wants becomes a record first, and then a change of the state. A restart applies the records
//! alone.

use dovetail_engine::Clock;
use dovetail_model::{AttemptKey, Command, Event, JobKey};

use super::ClusterState;
use super::error::VirtualClusterChangeError;
use super::events::EventKind;
use super::jobs::{Attempt, End, Restart};
use super::trials;
use super::virtual_clusters::check_owners;
use crate::actor::Actor;
use crate::decision::Decision;
use crate::fact::OperatorAction;
use crate::virtual_clusters::VirtualClusters;
use crate::{AttemptId, JobId};

/// Lets the engine decide until it has nothing more to do.
pub(super) fn decide(state: &mut ClusterState) {
    loop {
        settle_adoptions(state);
        let command = state.scheduler.next_command();
        for error in state.scheduler.take_refusals() {
            record(state, Decision::Refuse { error });
        }
        let Some(command) = command else {
            return;
        };
        if let Some(decision) = decision(state, command) {
            if let Decision::Launch { allocation, .. } | Decision::Resize { allocation, .. } = &decision
                && !state.in_trial.is_empty()
            {
                trials::make_room(state, allocation);
            }
            record(state, decision);
        }
    }
}

/// Applies a decision and keeps it for the journal.
pub(super) fn record(state: &mut ClusterState, decision: Decision) {
    apply(state, &decision);
    state.decisions.push(decision);
}

/// Records what becomes of jobs that the engine got with GPUs they hold already.
pub(super) fn settle_adoptions(state: &mut ClusterState) {
    for (job, kept) in state.scheduler.take_adoptions() {
        settle_adoption(state, job, kept);
    }
}

/// Records what becomes of a job that the engine got with GPUs it holds already.
fn settle_adoption(state: &mut ClusterState, job: JobId, kept: Option<dovetail_model::Allocation>) {
    let Some(attempt) = state.jobs.get(job).and_then(|record| record.attempt()) else {
        return;
    };
    match kept {
        None => record(state, Decision::Displace { job }),
        Some(allocation) if allocation != attempt.allocation => {
            let attempt = attempt.id;
            record(
                state,
                Decision::Resize {
                    job,
                    attempt,
                    allocation,
                },
            );
        }
        Some(_) => {}
    }
}

/// Returns a command of the engine as a decision; `None` if it is about an attempt that is not the last one.
fn decision(state: &mut ClusterState, command: Command) -> Option<Decision> {
    match command {
        Command::Launch {
            job,
            attempt: key,
            allocation,
            interleaving,
        } => {
            let job = state.scheduler.job_id(job);
            Some(Decision::Launch {
                job,
                attempt: state.jobs.known(job).last_attempt() + 1,
                key,
                allocation,
                interleaving,
            })
        }
        Command::Resize {
            job,
            attempt,
            allocation,
        } => {
            let (job, attempt) = last_attempt(state, job, attempt)?;
            Some(Decision::Resize {
                job,
                attempt,
                allocation,
            })
        }
        Command::Stop {
            job: job_key,
            attempt,
            reason,
        } => {
            let (job, attempt) = last_attempt(state, job_key, attempt)?;
            let is_stopping = state.jobs.known(job).attempt()?.cause.is_some();
            let cause = state.attempt_lifecycle().stop_cause(job_key, reason);
            (!is_stopping).then_some(Decision::Stop { job, attempt, cause })
        }
        Command::Reject { job, reason } => {
            let reason = state.reason(&reason);
            let job = state.scheduler.job_id(job);
            Some(Decision::Reject { job, reason })
        }
    }
}

/// Returns the numbers of a job and its last attempt, if that is the one with this handle.
fn last_attempt(state: &ClusterState, job: JobKey, attempt: AttemptKey) -> Option<(JobId, AttemptId)> {
    let job = state.scheduler.job_id(job);
    let last = state.jobs.known(job).attempt().filter(|a| a.key == attempt)?;
    Some((job, last.id))
}

/// Applies a decision to the state.
pub(super) fn apply(state: &mut ClusterState, decision: &Decision) {
    match decision {
        Decision::Launch {
            job,
            attempt,
            key,
            allocation,
            interleaving,
        } => {
            let attempt = Attempt {
                interleaving: *interleaving,
                restart: Restart::of(state.jobs.known(*job)),
                ..Attempt::new(*attempt, *key, state.now, allocation.clone())
            };
            state.attempt_lifecycle().launch(*job, attempt);
        }
        Decision::Resize {
            job,
            attempt,
            allocation,
        } => state.attempt_lifecycle().resize(*job, *attempt, allocation),
        Decision::Try {
            job,
            attempt,
            cpu_milli_per_gpu,
        } => {
            state
                .attempt_lifecycle()
                .try_cpu(*job, *attempt, *cpu_milli_per_gpu);
            trials::note(state, *job, cpu_milli_per_gpu.is_some());
        }
        Decision::Stop { job, attempt, cause } => {
            state
                .attempt_lifecycle()
                .stop_attempt(*job, *attempt, cause.clone());
        }
        Decision::Reject { job, reason } => {
            let end = End::Rejected(reason.clone());
            state.attempt_lifecycle().jobs.end(*job, end);
        }
        Decision::Displace { job } => state.attempt_lifecycle().jobs.displace(*job),
        Decision::Operate { action, by } => enforce(state, action, by),
        Decision::Refuse { error } => state
            .events
            .log(state.now, None, EventKind::Refused(error.clone())),
    }
}

/// Changes a setting of the engine, and decides whether that is in force.
pub(super) fn operate(state: &mut ClusterState, action: &OperatorAction, by: &Actor) {
    if !state.scheduler.is_attached() {
        // The decision is the next record.
        return;
    }
    // Changes are checked before they become facts; an older release may still have accepted one that fails now.
    let changed = match action {
        OperatorAction::Policy(text) => state
            .scheduler
            .set_policy(text, &state.virtual_clusters, &state.nodes)
            .map_err(|error| format!("policy {}: {error}", text.policy)),
        OperatorAction::VirtualClusters(clusters) => {
            set_virtual_clusters(state, clusters).map_err(|error| format!("virtual clusters: {error}"))
        }
        OperatorAction::Round(_)
        | OperatorAction::Pause
        | OperatorAction::Resume
        | OperatorAction::ForgetProfile(_) => Ok(()),
    };
    let decision = match changed {
        Ok(()) => Decision::Operate {
            action: action.clone(),
            by: by.clone(),
        },
        Err(error) => Decision::Refuse { error },
    };
    record(state, decision);
}

fn set_virtual_clusters(
    state: &mut ClusterState,
    clusters: &VirtualClusters,
) -> Result<(), VirtualClusterChangeError> {
    check_owners(state, clusters)?;
    state.scheduler.set_virtual_clusters(clusters, &state.nodes)?;
    state.scheduler.handle(state.now, Event::Wake);
    Ok(())
}

/// Notes a setting that is in force.
fn enforce(state: &mut ClusterState, action: &OperatorAction, by: &Actor) {
    match action {
        OperatorAction::Policy(text) => state.scheduler.note_policy(state.now, text),
        OperatorAction::Round(period) => {
            let clock = period.map_or(Clock::Events, Clock::rounds);
            state.scheduler.set_clock(clock);
        }
        OperatorAction::Pause => state.scheduler.set_paused(true),
        OperatorAction::Resume => state.scheduler.set_paused(false),
        OperatorAction::ForgetProfile(key) => {
            for models in state.learning.forget_profile(key) {
                state.scheduler.set_group_factor(&models, None);
            }
            state.scheduler.set_slowdowns(key, None);
        }
        OperatorAction::VirtualClusters(clusters) => {
            state.scheduler.note_virtual_clusters(clusters);
            state.virtual_clusters = (**clusters).clone();
            if state.scheduler.is_recomputing() {
                decide(state);
            }
            state.attempt_lifecycle().jobs.enqueue_below_caps();
        }
    }
    let kind = EventKind::Operated {
        action: action.clone(),
        by: by.clone(),
    };
    state.events.log(state.now, None, kind);
}
