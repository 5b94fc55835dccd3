//! The first step of a decision: which jobs enter the queue.

use std::borrow::Cow;
use std::collections::VecDeque;

use dovetail_model::{Command, JobKey, JobSpec, Reason};

use crate::job::Stage;
use crate::parts::{Policy, Verdict};
use crate::state::State;

/// Admits held jobs, in order of submission within each lane, and then new ones, which queue up behind those held.
pub(crate) fn admit(state: &mut State, policy: &mut Policy, commands: &mut VecDeque<Command>) {
    if state.held.is_empty() && state.inbox.is_empty() {
        return;
    }
    let mut held = std::mem::take(&mut state.held);
    for lane in held.values_mut() {
        while let Some(id) = lane.front() {
            if judge(*id, state, policy, commands) == Judgement::Held {
                break;
            }
            lane.pop_front();
        }
    }
    held.retain(|_, lane| !lane.is_empty());
    state.held = held;
    for id in std::mem::take(&mut state.inbox) {
        let lane = policy.admission.lane(&state.job(id).spec);
        let must_wait = state.held.contains_key(&lane);
        if must_wait || judge(id, state, policy, commands) == Judgement::Held {
            state.entry(id).job.stage = Stage::Held;
            state.held.entry(lane).or_default().push_back(id);
        }
    }
}

/// Whether admission is done with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    /// The job was admitted or rejected.
    Final,
    /// The job is to be held.
    Held,
}

/// Admits or rejects a job, unless it is to be held.
fn judge(id: JobKey, state: &mut State, policy: &mut Policy, commands: &mut VecDeque<Command>) -> Judgement {
    match verdict(policy, state, id) {
        Verdict::Admit => {
            let State { jobs, demand, .. } = state;
            let entry = jobs[id].as_mut().expect("the job is in the table");
            entry.job.stage = Stage::Admitted;
            demand.add(&entry.job.spec);
            state.mark_stale(id);
        }
        Verdict::Reject(reason) => {
            state.remove_job(id, &mut *policy.tenancy);
            commands.push_back(Command::Reject { job: id, reason });
        }
        Verdict::Hold(_) => return Judgement::Held,
    }
    Judgement::Final
}

/// Returns the verdict of admission on a job. A job without GPUs, or with contradictory bounds, is always rejected.
pub(crate) fn verdict(policy: &mut Policy, state: &State, id: JobKey) -> Verdict {
    let spec = &state.job(id).spec;
    if spec.gpus == 0 || spec.min_gpus == 0 || spec.min_gpus > spec.max_gpus {
        return Verdict::Reject(Reason::Malformed {
            gpus: spec.gpus,
            min_gpus: spec.min_gpus,
            max_gpus: spec.max_gpus,
        });
    }
    // A sizing that does not shrink jobs needs room for all that was asked for.
    let min_gpus = policy.sizing.min_gpus(spec);
    let spec = match min_gpus == spec.min_gpus {
        true => Cow::Borrowed(spec),
        false => Cow::Owned(JobSpec {
            min_gpus,
            ..spec.clone()
        }),
    };
    if let Err(reason) = policy.tenancy.check_feasible(&spec) {
        return Verdict::Reject(reason);
    }
    policy.admission.admit(&spec, &state.demand, &state.cluster)
}
