//! A restart: the state is rebuilt from records, without asking the engine anything. Then a new engine gets what exists.

use dovetail_model::{Allocation, Event, JobHistory, JobKey, RestoredJob, StopReason};

use super::ClusterState;
use super::decisions;
use super::error::PolicyTextError;
use super::jobs::{Attempt, Cause, JobRecord, TaskState};
use super::nodes::NodeState;
use crate::JobId;

/// Returns the reason for which a job stops, as the engine names it.
fn stop_reason(record: &JobRecord, cause: &Cause) -> StopReason {
    match cause {
        _ if record.leaves_engine => StopReason::Cancelled,
        Cause::Cancelled(_) | Cause::Held(_) => StopReason::Cancelled,
        Cause::NodeLost(node) => StopReason::NodeLost(*node),
        Cause::Resized => StopReason::Resized,
        Cause::Preempted(_) => StopReason::Preempted,
        // The engine has no part in the last three, and none of them counts as a preemption.
        Cause::Moved | Cause::TimeLimit | Cause::Failed | Cause::Platform(_) => StopReason::Moved,
    }
}

/// Returns what a stopping attempt still holds: a node on which its task has ended may be lost, or used by others.
fn not_vacated(attempt: &Attempt) -> Allocation {
    let shares = attempt.allocation.shares.iter().zip(&attempt.tasks);
    Allocation {
        shares: shares
            .filter(|(_, task)| !task.has_ended())
            .map(|(share, _)| share.clone())
            .collect(),
    }
}

/// Gives a new engine everything that exists: nodes, queued jobs with their history, and jobs with the GPUs they hold.
pub(super) fn attach(state: &mut ClusterState) -> Result<(), PolicyTextError> {
    state.scheduler.attach(&state.virtual_clusters, &state.nodes)?;
    let profiles = state.learning.profiles().iter();
    for (key, profile) in profiles.filter(|(_, profile)| profile.slowdowns().next().is_some()) {
        state.scheduler.set_slowdowns(key, Some(profile));
    }
    for job in state.scheduler.take_completed() {
        learn_from(state, job);
    }
    hand_over_nodes(state);
    let mut jobs: Vec<(JobKey, JobId)> = state
        .jobs
        .unfinished()
        .filter(|job| job.state.is_in_engine())
        .filter_map(|job| Some((job.job_key?, job.id)))
        .collect();
    jobs.sort_unstable();
    state.jobs.forget_handles();
    for (_, job) in jobs {
        hand_over_job(state, job);
    }
    decisions::settle_adoptions(state);
    state.commands.clear();
    Ok(())
}

fn hand_over_nodes(state: &mut ClusterState) {
    let mut events = Vec::new();
    for (node, record) in state.nodes.iter() {
        let spec = record.spec.clone();
        events.push(Event::NodeUp { node, spec });
        match record.state {
            NodeState::Up => {}
            NodeState::Draining { .. } => events.push(Event::NodeDraining { node }),
            NodeState::Lost => events.push(Event::NodeDown { node }),
        }
    }
    for event in events {
        state.scheduler.handle(state.now, event);
    }
}

/// Lets the order learn from a job that completed.
fn learn_from(state: &mut ClusterState, id: JobId) {
    let Some(record) = state.jobs.get(id) else {
        return;
    };
    let Some(history) = record.history(record.since) else {
        return;
    };
    let (since, spec) = (
        record.since,
        state
            .scheduler
            .preview_spec(&record.user, &record.request, record.submitted),
    );
    state.scheduler.learn(spec, history, since);
}

/// Gives the engine a job that is queued or holds GPUs.
fn hand_over_job(state: &mut ClusterState, id: JobId) {
    let now = state.now;
    let record = state.jobs.known(id);
    let (mut spec, _) = state
        .scheduler
        .register(id, &record.user, &record.request, record.submitted);
    if let Some(learned) = &record.learned {
        learned.fill(&mut spec);
    }
    spec.expected = record.told.or(spec.expected);
    spec.priority = record.queued_priority.unwrap_or(spec.priority);
    let job = spec.id;
    let attempt = record
        .attempt()
        .filter(|a| a.end.is_none() && record.state.holds_gpus());
    let stopping = attempt.and_then(|a| Some(stop_reason(record, a.cause.as_ref()?)));
    let holds = attempt.map(|a| match stopping {
        Some(_) => (a.key, not_vacated(a)),
        None => (a.key, a.allocation.clone()),
    });
    let is_running = attempt.is_some_and(|a| a.tasks.iter().all(|t| *t == TaskState::Running));
    let (done, rate) = record.work_now(now);
    // How many jobs there were during its life is not recorded: as many as now.
    let age = i128::from(now.since(record.submitted).0);
    let alive = Some(age * state.jobs.unfinished_count() as i128);
    let history = JobHistory {
        alive,
        ..record.history(now).unwrap_or_default()
    };
    let key = holds.as_ref().map(|(key, _)| *key);
    let is_stopping = stopping.is_some();
    let event = Event::Restored(Box::new(RestoredJob {
        spec,
        history,
        holds,
        stopping,
    }));
    state.jobs.known_mut(id).job_key = Some(job);
    state.scheduler.handle(now, event);
    let Some(attempt) = key else {
        return;
    };
    if !is_stopping {
        state.scheduler.expect_adoption(job);
    }
    if is_running && !is_stopping {
        state.scheduler.handle(now, Event::Started { job, attempt, rate });
        let progressed = Event::Progressed {
            job,
            attempt,
            done,
            rate,
        };
        state.scheduler.handle(now, progressed);
    }
}
