//! CPU trials: a running job gets less or more CPU for some seconds, and its steps show how its speed depends on CPU.
//!
//! Trials take place only under a policy that needs CPU curves, one job per node at a time, and never take CPU that the
//! engine gave to another job. A trial that begins or ends is a decision, and so a record of the journal.

use dovetail_engine::Need;
use dovetail_learning::LearnedProfile;
use dovetail_model::{Allocation, NodeId, Time};
use serde::{Deserialize, Serialize};

use super::ClusterState;
use super::commands::tasks_on;
use super::jobs::{Attempt, JobRecord, JobState};
use super::learning::key_of;
use crate::decision::Decision;
use crate::{AttemptId, JobId};

/// Samples of steps after which a trial ends.
const SAMPLES: u32 = 2;
/// Longest time of a trial whose job reports too few steps.
const LONGEST: Time = Time::from_secs(60);
/// Number of trials of one attempt.
const MAX_TRIALS: usize = 6;
/// Least CPU of a trial on one node, in milli-cores.
const LEAST: u32 = 100;

/// A trial of a running attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTrial {
    /// CPU per GPU, in milli-cores.
    pub cpu_milli_per_gpu: u32,
    /// When it began.
    pub since: Time,
    /// Steps measured so far.
    #[serde(default)]
    pub samples: u32,
}

impl CpuTrial {
    pub(super) fn is_complete(&self, now: Time) -> bool {
        self.samples >= SAMPLES || now.since(self.since) > LONGEST
    }
}

/// Begins or ends trials after a job has reported its progress.
pub(super) fn advance(state: &mut ClusterState, id: JobId) {
    if !state.scheduler.is_attached() || state.scheduler.is_recomputing() {
        return;
    }
    let Some((attempt, next)) = next_step(state, id) else {
        return;
    };
    super::decisions::record(
        state,
        Decision::Try {
            job: id,
            attempt,
            cpu_milli_per_gpu: next,
        },
    );
}

/// Ends the trials on the nodes of an allocation in which a job has more CPU than the engine gave it.
pub(super) fn make_room(state: &mut ClusterState, allocation: &Allocation) {
    let takes_more = |attempt: &Attempt| {
        let is_there = allocation
            .shares
            .iter()
            .any(|share| attempt.place_of(share.node).is_some());
        let more = |trial: &CpuTrial| trial.cpu_milli_per_gpu > attempt.cpu_milli_per_gpu();
        is_there && attempt.trial.as_ref().is_some_and(more)
    };
    let trials = trials(state).filter(|(_, attempt)| takes_more(attempt));
    let ending: Vec<(JobId, AttemptId)> = trials.map(|(job, attempt)| (job, attempt.id)).collect();
    for (job, attempt) in ending {
        super::decisions::record(
            state,
            Decision::Try {
                job,
                attempt,
                cpu_milli_per_gpu: None,
            },
        );
    }
}

/// Returns the attempts that are in a trial.
fn trials(state: &ClusterState) -> impl Iterator<Item = (JobId, &Attempt)> {
    let attempt = |id: &JobId| Some((*id, state.jobs.get(*id)?.attempt()?));
    let in_trial = state.in_trial.iter().filter_map(attempt);
    in_trial.filter(|(_, attempt)| attempt.trial.is_some() && attempt.end.is_none())
}

/// Notes whether a job is in a trial.
pub(super) fn note(state: &mut ClusterState, job: JobId, is_in_trial: bool) {
    match is_in_trial {
        true => drop(state.in_trial.insert(job)),
        false => drop(state.in_trial.remove(&job)),
    }
    let ended: Vec<JobId> = state.in_trial.iter().copied().collect();
    let current: Vec<JobId> = trials(state).map(|(job, _)| job).collect();
    for job in ended.into_iter().filter(|job| !current.contains(job)) {
        state.in_trial.remove(&job);
    }
}

/// Returns the attempt of a job whose trial begins, changes or ends, with the CPU per GPU from now on; `None` for what the
/// engine gave it.
fn next_step(state: &ClusterState, id: JobId) -> Option<(AttemptId, Option<u32>)> {
    let record = state.jobs.get(id)?;
    let attempt = record.attempt().filter(|a| a.end.is_none())?;
    if let Some(trial) = &attempt.trial {
        if !trial.is_complete(state.now) && is_wanted(state) {
            return None;
        }
        return Some((attempt.id, candidate(state, record, attempt)));
    }
    let next = candidate(state, record, attempt)?;
    Some((attempt.id, Some(next)))
}

/// Returns whether the policy uses CPU curves, and the runtime can change CPU and measure jobs with it.
fn is_wanted(state: &ClusterState) -> bool {
    let policy = state.scheduler.engine().policy();
    policy.sizing.needs().contains(Need::CpuCurve)
        && state.scheduler.runtime().resize.is_available()
        && state.scheduler.runtime().cpu_trials.is_available()
        && !state.scheduler.shares_gpus()
}

/// Returns the CPU per GPU that is tried next; none if enough is known.
fn candidate(state: &ClusterState, record: &JobRecord, attempt: &Attempt) -> Option<u32> {
    let is_running = record.state == JobState::Running && attempt.cause.is_none();
    if !is_wanted(state) || !is_running || attempt.tried.len() >= MAX_TRIALS {
        return None;
    }
    let shares = &attempt.allocation.shares;
    let profile = state.learning.profiles().get(&key_of(record))?;
    let curve = MeasuredCurve::new(profile, attempt.allocation.gpus(), attempt.cpu_milli_per_gpu())?;
    let is_whole = |node: NodeId| state.nodes.get(node).is_some_and(|node| node.spec.whole_cpus);
    let whole = shares.iter().any(|share| is_whole(share.node));
    let least_gpus = shares.iter().map(|share| share.gpus.count()).min().unwrap_or(1);
    let fits = |amount: &u32| {
        let on_node = amount.saturating_mul(least_gpus);
        let is_enforced = !whole
            || shares
                .iter()
                .all(|s| amount.saturating_mul(s.gpus.count()) % 1000 == 0);
        on_node >= LEAST && is_enforced && !attempt.tried.contains(amount)
    };
    // A look at the nodes takes longer than the rest.
    curve.wanted(u32::MAX).into_iter().next()?;
    let is_here = |other: &Attempt| shares.iter().any(|share| other.place_of(share.node).is_some());
    if trials(state).any(|(job, other)| job != record.id && is_here(other)) {
        return None;
    }
    let spare = shares
        .iter()
        .map(|share| spare_per_gpu(state, record.id, share.node, share.gpus.count()));
    curve.wanted(spare.min().unwrap_or(0)).into_iter().find(fits)
}

/// Returns the CPU of a node that no job has, per GPU of this job there.
fn spare_per_gpu(state: &ClusterState, job: JobId, node: NodeId, gpus: u32) -> u32 {
    let all = state.nodes.get(node).map_or(0, |record| record.spec.cpu_milli);
    let used: u32 = tasks_on(&state.jobs, node)
        .iter()
        .map(|(record, attempt, place)| {
            let given = attempt.allocation.shares[*place].cpu_milli;
            if record.id == job {
                given
            } else {
                given.max(attempt.cpu_milli_at(*place))
            }
        })
        .sum();
    all.saturating_sub(used) / gpus.max(1)
}

/// Step times of a model by CPU, seen from what its job has now.
struct MeasuredCurve {
    base: u32,
    /// CPU per GPU, and microseconds of a step; by CPU.
    steps: Vec<(u32, u32)>,
}

impl MeasuredCurve {
    /// Returns the curve of a model on this many GPUs; none unless it was measured with the CPU that the job has.
    fn new(profile: &LearnedProfile, gpus: u32, base: u32) -> Option<Self> {
        let steps = profile.steps_by_cpu(gpus);
        let is_measured = steps.iter().any(|(cpu, _)| *cpu == base);
        (base > 0 && is_measured).then_some(Self { base, steps })
    }

    /// Returns the step time near an amount of CPU.
    fn near(&self, amount: u32) -> Option<u32> {
        let is_near = |cpu: u32| cpu.abs_diff(amount) * 100 <= amount * 15;
        let found = self.steps.iter().find(|(cpu, _)| is_near(*cpu));
        found.map(|(_, step)| *step)
    }

    /// Returns amounts worth trying, the most useful first: half, a quarter if half is enough, and up to twice as much if
    /// less is not.
    fn wanted(&self, spare: u32) -> Vec<u32> {
        let mut amounts = Vec::new();
        let Some(now) = self.near(self.base) else {
            return amounts;
        };
        let half = self.near(self.base / 2);
        let is_enough = |step: u32| u64::from(step) * 97 <= u64::from(now) * 100;
        match half {
            None => amounts.push(self.base / 2),
            Some(step) if is_enough(step) && self.near(self.base / 4).is_none() => {
                amounts.push(self.base / 4)
            }
            Some(_) => {}
        }
        let more = self.base.saturating_mul(2).min(self.base.saturating_add(spare));
        let is_hungry = half.is_some_and(|step| !is_enough(step));
        if is_hungry && more >= self.base + self.base / 4 && self.near(more).is_none() {
            amounts.push(more);
        }
        amounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(steps: &[(u32, u32)]) -> MeasuredCurve {
        MeasuredCurve {
            base: 1_000,
            steps: steps.to_vec(),
        }
    }

    #[test]
    fn half_the_cpu_is_tried_first_then_less_or_more() {
        assert_eq!(curve(&[(1_000, 100)]).wanted(5_000), [500]);
        assert_eq!(curve(&[(500, 101), (1_000, 100)]).wanted(5_000), [250], "light");
        assert_eq!(
            curve(&[(500, 190), (1_000, 100)]).wanted(5_000),
            [2_000],
            "hungry"
        );
        assert_eq!(
            curve(&[(500, 190), (1_000, 100)]).wanted(700),
            [1_700],
            "what is free"
        );
        assert!(
            curve(&[(500, 190), (1_000, 100)]).wanted(100).is_empty(),
            "too little is free"
        );
        let known = curve(&[(250, 150), (500, 101), (1_000, 100)]);
        assert!(known.wanted(5_000).is_empty());
        assert!(
            curve(&[(500, 190), (1_000, 100), (1_900, 60)])
                .wanted(5_000)
                .is_empty()
        );
    }

    #[test]
    fn a_trial_ends_after_two_samples_or_a_minute() {
        let mut trial = CpuTrial {
            cpu_milli_per_gpu: 500,
            since: Time::from_secs(10),
            samples: 1,
        };
        assert!(!trial.is_complete(Time::from_secs(60)));
        assert!(trial.is_complete(Time::from_secs(71)));
        trial.samples = 2;
        assert!(trial.is_complete(Time::from_secs(11)));
    }
}
