//! Random histories: submitted and cancelled jobs, nodes that fail and return.

use dovetail_engine::Clock;
use dovetail_model::sharing::MeasuredSlowdown;
use dovetail_model::{ClusterSpec, JobKey, ModelId, NodeId, Slowdowns, Time};
use proptest::prelude::*;
use proptest::sample::select;

use super::jobs::{Fit, Workloads, workloads};
use super::{clusters, policies};
use crate::scenario::{Behaviour, PolicyText, Scenario, StoryEvent};

/// An incident that is not adapted to a cluster yet: its kind, target, time and duration.
type RawIncident = (u8, u32, i64, i64);

/// Generates up to `max_jobs` jobs that can run on a cluster, without incidents.
pub fn plain(
    cluster: impl Strategy<Value = ClusterSpec>,
    policy: impl Strategy<Value = PolicyText>,
    max_jobs: usize,
    elastic: bool,
) -> impl Strategy<Value = Scenario> {
    let jobs = workloads(max_jobs, Fit::Feasible, elastic);
    (cluster, policy, jobs).prop_map(|(cluster, policy, jobs)| scenario(cluster, policy, &jobs))
}

/// Generates up to `max_jobs` jobs about which everything is known that a policy may need: run time, stages, sensitivity and
/// model. The slowdowns of most models are in [`measured_slowdowns`].
pub fn profiled(
    policy: impl Strategy<Value = PolicyText>,
    max_jobs: usize,
) -> impl Strategy<Value = Scenario> {
    let jobs = workloads(max_jobs, Fit::Feasible, true);
    (clusters(), policy, jobs).prop_map(|(cluster, policy, jobs)| {
        let mut scenario = scenario(cluster, policy, &jobs);
        for (i, story) in scenario.jobs.iter_mut().enumerate() {
            story.job.sensitivity = jobs.curve(i);
            story.job.model = Some(ModelId(i as u32 % (MODELS + 1)));
        }
        scenario
    })
}

/// The number of models of [`profiled`] jobs that were measured beside one another.
const MODELS: u32 = 3;

/// Returns how much the models of [`profiled`] jobs slow one another down: hardly, or a lot.
pub fn measured_slowdowns() -> Slowdowns {
    let pairs = (0..MODELS).flat_map(|of| (0..MODELS).map(move |beside| (of, beside)));
    let slowdown = |(of, beside): (u32, u32)| MeasuredSlowdown {
        of: ModelId(of),
        beside: ModelId(beside),
        gpus: 1,
        plain_ppm: if of == beside { 1_900_000 } else { 1_050_000 },
        mps_ppm: if of == beside { 1_500_000 } else { 1_000_000 },
    };
    pairs.map(slowdown).collect()
}

/// Generates up to `max_jobs` jobs under any policy and clock, with incidents; every node returns at the end.
pub fn histories(max_jobs: usize, fit: Fit) -> impl Strategy<Value = Scenario> {
    histories_of(policies(), max_jobs, fit)
}

/// Generates histories like [`histories`], under these policies.
pub fn histories_of(
    policy: impl Strategy<Value = PolicyText>,
    max_jobs: usize,
    fit: Fit,
) -> impl Strategy<Value = Scenario> {
    let clock = prop_oneof![2 => Just(None), 1 => select(&[5i64, 30, 60][..]).prop_map(Some)];
    let delays = prop_oneof![1 => Just((0i64, 0i64)), 1 => (0..3i64, 0..8i64)];
    let jobs = workloads(max_jobs, fit, true);
    (clusters(), policy, jobs, clock, delays, raw_incidents()).prop_map(
        |(cluster, policy, jobs, clock, (start, stop), raw)| {
            let mut history = scenario(cluster, policy, &jobs);
            history.clock = clock.map_or(Clock::Events, |s| Clock::rounds(Time::from_secs(s)));
            history.behaviour = Behaviour {
                start_delay: Time::from_secs(if history.policy.takes_turns() { 0 } else { start }),
                stop_delay: Time::from_secs(stop),
                chaos: None,
                profiles_change: false,
            };
            add_incidents(&mut history, &raw);
            history
        },
    )
}

fn scenario(cluster: ClusterSpec, policy: PolicyText, jobs: &Workloads) -> Scenario {
    let cut = jobs.on(&cluster);
    let by_need = policy.sizes_by_need();
    let mut scenario = Scenario::plain(cluster, policy, cut);
    for (i, story) in scenario.jobs.iter_mut().enumerate() {
        story.stages = jobs.stages(i);
        if by_need {
            story.job.sensitivity = jobs.curve(i);
        }
    }
    scenario.names.tenants = ["default", "x", "y"].map(str::to_owned).into_iter().collect();
    scenario.names.users = ["default", "u", "v", "w"]
        .map(str::to_owned)
        .into_iter()
        .collect();
    scenario
}

fn raw_incidents() -> impl Strategy<Value = Vec<RawIncident>> {
    prop::collection::vec((0..6u8, any::<u32>(), 0..400i64, 0..120i64), 0..12)
}

fn add_incidents(scenario: &mut Scenario, raw: &[RawIncident]) {
    let (nodes, jobs) = (scenario.cluster.nodes.len() as u32, scenario.jobs.len() as u32);
    let submits: Vec<Time> = scenario.jobs.iter().map(|j| j.job.submit).collect();
    let mut add = |at: Time, event| scenario.events.push((at, event));
    for &(kind, which, at, span) in raw {
        let (node, job) = (NodeId(which % nodes), JobKey(which % jobs));
        let (at, span) = (Time::from_secs(at), Time::from_secs(span));
        let at_job = at.max(submits[job.0 as usize]);
        match kind {
            0 | 1 => {
                add(at, StoryEvent::NodeDown(node));
                add(at + span, StoryEvent::NodeUp(node));
            }
            2 => {
                add(at, StoryEvent::Drain(node));
                add(at + span, StoryEvent::Resume(node));
            }
            3 | 4 => add(at_job, StoryEvent::Cancel(job)),
            _ => add(at_job, StoryEvent::Fail(job)),
        }
    }
    // A story is in order of time. At its end, all nodes are up.
    scenario.events.sort_by_key(|(at, _)| *at);
    let end = scenario.events.last().map_or(Time::ZERO, |(at, _)| *at);
    for node in 0..nodes {
        scenario.events.push((end, StoryEvent::NodeUp(NodeId(node))));
    }
}
