//! Jobs that interleave their stages on shared GPUs: what agents are told, what they measure, and what that changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_cluster::state::JobState;
use dovetail_cluster::{
    Actor, Capabilities, ClusterState, Decision, Fact, GateReport, JobId, JobRequest, OperatorAction,
    PolicyText, RuntimeCommand, StageReport, StageTimes, TaskEnd,
};
use dovetail_engine::Clock;
use dovetail_model::stages::Ordering;
use dovetail_model::{InterleavingTerms, NodeId, NodeSpec, Stages, Time};

struct World {
    state: ClusterState,
    second: i64,
}

/// A preset, and after a slash its grouping, if that is another one.
fn policy(text: &str) -> PolicyText {
    let (name, grouping) = text.split_once('/').unwrap_or((text, ""));
    let parts = (!grouping.is_empty()).then(|| ("grouping".to_owned(), grouping.to_owned()));
    PolicyText {
        policy: name.to_owned(),
        parts: parts.into_iter().collect(),
    }
}

impl World {
    /// A cluster of one GPU whose agents have stage gates.
    fn new(policy_name: &str) -> Self {
        let state = ClusterState::new(policy(policy_name), Clock::Events).unwrap();
        let mut world = Self {
            state: state.on(Capabilities::ALL).unwrap(),
            second: 1_000,
        };
        world.join();
        world
    }

    /// Adds a node with one GPU.
    fn join(&mut self) {
        self.apply(Fact::NodeJoined {
            node: NodeId(0),
            spec: Box::new(NodeSpec::plain("node".to_owned(), 1)),
            gpu_type: "virtual".to_owned(),
            rack: "rack".to_owned(),
            address: String::new(),
            identity: 1,
        });
    }

    /// Applies a fact a second later, and starts the tasks that follow.
    fn apply(&mut self, fact: Fact) {
        self.second += 1;
        self.state.apply(Time::from_secs(self.second), &fact);
        self.state.check().unwrap();
        let launched: Vec<JobId> = self
            .state
            .active_jobs()
            .filter(|job| job.state == JobState::Starting)
            .map(|job| job.id)
            .collect();
        for job in launched {
            let fact = Fact::TaskStarted {
                job,
                attempt: self.attempt(job),
                node: NodeId(0),
                sharing: "time slices".to_owned(),
                remarks: Vec::new(),
            };
            self.state.apply(Time::from_secs(self.second), &fact);
        }
    }

    fn attempt(&self, job: JobId) -> u64 {
        self.state.job(job).unwrap().attempt().unwrap().id
    }

    /// Submits a job with these stages in milliseconds.
    fn submit(&mut self, name: &str, stages: Option<(i64, i64)>) -> JobId {
        let job = self.state.next_job();
        let request = JobRequest {
            name: name.to_owned(),
            command: vec!["true".to_owned()],
            expected: Some(Time::from_secs(3_600)),
            stages: stages.map(|(data, gpu)| StageTimes {
                data: Time(data * 1_000),
                gpu: Time(gpu * 1_000),
                net: Time::ZERO,
            }),
            ..JobRequest::default()
        };
        self.apply(Fact::Submitted {
            job,
            user: "ann".to_owned(),
            request: std::sync::Arc::new(request),
            key: None,
        });
        job
    }

    /// Reports a step behind gates, with the measured period in milliseconds.
    fn report(&mut self, job: JobId, step: u64, partners: &[JobId], period_ms: i64) {
        let gates = GateReport::new(Time(100_000), Time(period_ms * 1_000), partners.to_vec());
        self.apply(Fact::Progressed {
            job,
            attempt: self.attempt(job),
            step,
            total_steps: 1_000_000,
            step_time: Time(period_ms * 1_000),
            data_time: Time(80_000),
            checkpoint_step: 0,
            stages: Some(Box::new(StageReport {
                gpu_time: Time(20_000),
                network_time: Time::ZERO,
                gate_time: Time(period_ms * 1_000 - 100_000),
                gates,
            })),
        });
    }

    fn running(&self) -> Vec<JobId> {
        let running = self
            .state
            .active_jobs()
            .filter(|job| job.state == JobState::Running);
        running.map(|job| job.id).collect()
    }

    fn end_stopping(&mut self) {
        let stopping: Vec<JobId> = self
            .state
            .active_jobs()
            .filter(|job| matches!(job.state, JobState::Stopping(_)))
            .map(|job| job.id)
            .collect();
        for job in stopping {
            self.apply(Fact::TaskEnded {
                job,
                attempt: self.attempt(job),
                node: NodeId(0),
                end: Box::new(TaskEnd {
                    was_stopped: true,
                    ..TaskEnd::default()
                }),
            });
        }
    }
}

fn terms(data_ms: u32, gpu_ms: u32) -> InterleavingTerms {
    let (data, gpu) = (data_ms * 1_000, gpu_ms * 1_000);
    InterleavingTerms {
        stages: Stages::three(data, gpu, 0, data + gpu),
        ordering: Ordering::Best,
    }
}

/// Returns the terms with which each task was told to start.
fn started(world: &mut World) -> Vec<Option<InterleavingTerms>> {
    let commands = world.state.take_commands().into_iter();
    let terms = |(_, command)| match command {
        RuntimeCommand::Start(task) => Some(task.interleaving),
        RuntimeCommand::Stop { .. } | RuntimeCommand::Resize { .. } => None,
    };
    commands.filter_map(terms).collect()
}

#[test]
fn agents_are_told_the_stages_of_jobs_under_a_policy_that_interleaves_them() {
    let mut world = World::new("muri-s");
    world.submit("loads", Some((80, 20)));
    world.submit("computes", Some((20, 80)));
    assert_eq!(world.running(), [1, 2]);
    assert_eq!(started(&mut world), [Some(terms(80, 20)), Some(terms(20, 80))]);
    let decisions = world.state.take_decisions();
    let Some(launch) = decisions
        .iter()
        .find(|d| matches!(d, Decision::Launch { job: 2, .. }))
    else {
        panic!("{decisions:?}");
    };
    let text = serde_json::to_string(launch).unwrap();
    assert_eq!(&serde_json::from_str::<Decision>(&text).unwrap(), launch);
    let before = text.replace(",\"interleaving\":{\"stages\":{\"times_us\":[20000,80000,0,0],\"four\":false,\"iteration_us\":100000},\"ordering\":\"best\"}", "");
    assert!(before.len() < text.len(), "{text}");
    let old: Decision = serde_json::from_str(&before).unwrap();
    assert!(matches!(
        old,
        Decision::Launch {
            interleaving: None,
            ..
        }
    ));
    // A saved state has them for agents that reconnect.
    let saved = ClusterState::load(&world.state.save().unwrap()).unwrap();
    let attempt = saved.job(1).unwrap().attempt().unwrap();
    assert_eq!(attempt.interleaving, Some(terms(80, 20)));
}

#[test]
fn other_policies_and_jobs_without_stages_have_no_gates() {
    for (name, stages) in [
        ("antman", Some((80, 20))),
        ("fifo", Some((80, 20))),
        ("muri-s", None),
    ] {
        let mut world = World::new(name);
        world.submit("job", stages);
        assert_eq!(started(&mut world), [None], "{name}");
    }
}

#[test]
fn a_group_that_is_slower_than_its_jobs_one_after_the_other_is_dissolved_and_stays_so() {
    for policy in ["muri-s", "muri-l", "muri-s/muri:stable=inf"] {
        is_dissolved_until_it_is_forgotten(policy);
    }
}

fn is_dissolved_until_it_is_forgotten(policy: &str) {
    let mut world = World::new(policy);
    let (a, b) = (
        world.submit("loads", Some((80, 20))),
        world.submit("computes", Some((20, 80))),
    );
    // Planned are 100 ms, and one after the other they take 200 ms. One measurement is not enough.
    world.report(b, 1, &[a], 260);
    world.report(a, 1, &[b], 260);
    assert_eq!(world.running(), [a, b]);
    assert_eq!(
        world
            .state
            .job(a)
            .unwrap()
            .attempt()
            .unwrap()
            .gates()
            .unwrap()
            .partners(),
        [b]
    );
    world.report(a, 2, &[b], 260);
    world.end_stopping();
    let alone = world.running();
    assert_eq!(alone.len(), 1, "{alone:?}");
    world.submit("other", None);
    assert_eq!(world.running(), alone, "not formed again");
    // A restart keeps what was learned.
    let state = ClusterState::load(&world.state.save().unwrap()).unwrap();
    world.state = state.on(Capabilities::ALL).unwrap();
    world.apply(Fact::Woke);
    assert_eq!(world.running(), alone);
    // Another pair of the same models is not formed either, until the profile is forgotten.
    world.apply(Fact::Operated {
        action: OperatorAction::ForgetProfile("~ann/loads".to_owned()),
        by: Actor::user("root"),
    });
    world.end_stopping();
    assert_eq!(world.running(), [a, b]);
}

#[test]
fn a_pair_that_was_dissolved_does_not_come_back_with_a_third_job() {
    for policy in ["muri-s", "muri-l"] {
        let mut world = World::new(policy);
        let (a, b) = (
            world.submit("loads", Some((80, 20))),
            world.submit("computes", Some((20, 80))),
        );
        world.report(a, 1, &[b], 260);
        world.report(a, 2, &[b], 260);
        world.end_stopping();
        let alone = world.running();
        assert_eq!(alone.len(), 1, "{policy}");
        // A third job runs beside the first in the queue, whichever of the two that is.
        let c = world.submit("both", Some((50, 50)));
        world.end_stopping();
        assert_eq!(world.running(), [alone[0], c], "{policy}");
        world.apply(Fact::Woke);
        assert_eq!(world.running(), [alone[0], c], "{policy}");
    }
}

#[test]
fn a_group_that_is_slow_is_kept_where_autopack_is_off() {
    let mut world = World::new("muri-s/muri:autopack=false");
    let (a, b) = (
        world.submit("loads", Some((80, 20))),
        world.submit("computes", Some((20, 80))),
    );
    for step in 1..4 {
        world.report(a, step, &[b], 260);
    }
    assert_eq!(world.running(), [a, b]);
}

#[test]
fn a_group_that_is_nearly_as_fast_as_planned_stays_together() {
    let mut world = World::new("muri-s");
    let (a, b) = (
        world.submit("loads", Some((80, 20))),
        world.submit("computes", Some((20, 80))),
    );
    world.state.take_decisions();
    for step in 1..20 {
        world.report(a, step, &[b], 104 + (step as i64 % 3));
    }
    assert_eq!(
        (world.running(), world.state.take_decisions()),
        (vec![a, b], Vec::new())
    );
    // Without gates, Muri's measurements of other GPUs count: 131 ms.
    let profile = world.state.profiles().get("~ann/loads").unwrap();
    let measured = &profile.measurements[0];
    assert!(measured.conditions.gated && measured.conditions.beside.as_deref() == Some("~ann/computes"));
    assert_eq!(profile.stages(1), Some(Stages::three(80_000, 20_000, 0, 100_000)));
}

#[test]
fn only_where_periods_are_measured_does_an_unknown_group_count_as_fast_as_planned() {
    // By turns they take 180 ms, and one after the other 200 ms: with Muri's contention of 1.31 they are better alone.
    let run = |has_gates: bool| {
        let mut world = World::new("muri-s");
        if !has_gates {
            world.state = ClusterState::new(policy("muri-s"), Clock::Events).unwrap();
            world.join();
        }
        world.submit("computes", Some((10, 90)));
        world.submit("computes", Some((10, 90)));
        world.running().len()
    };
    assert_eq!(run(true), 2);
    assert_eq!(run(false), 1);
}
