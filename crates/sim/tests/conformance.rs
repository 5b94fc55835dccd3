//! The same world under every preset, in the simulator and on a live cluster: equal commands at equal times.
//!
//! The world is a script of arrivals, a lost node and its return. The simulator runs it and records every event that it
//! reports to the engine. Each event then reaches a [`ClusterState`] as the fact that an agent or a user would report:
//! steps instead of work, checkpoints instead of what is done, tasks instead of attempts. The decisions of the state must be
//! the commands of the simulator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use dovetail_cluster::{ClusterState, Decision, Fact, JobId, JobRequest, PolicyText, StageTimes, TaskEnd};
use dovetail_engine::{Clock, Knowledge};
use dovetail_model::{Allocation, ClusterSpec, Event, JobKey, NodeId, Outcome, Time, Work};
use dovetail_policies::{Overrides, build, presets};
use dovetail_sim::{Journal, SimConfig, simulate_with};
use dovetail_testkit::{CommandLine, assert_same_commands, command_line, draws, place_text};
use dovetail_workload::{JobLabel, TraceJob, Workload};

/// Duration of a step, in microseconds: a report has whole steps, and the duration of a step in whole microseconds, so shorter
/// steps make speeds too coarse for exactly equal sort keys, and longer ones the work done.
const STEP_US: u64 = 10_000;
const MODELS: [&str; 3] = ["vgg", "bert", "dqn"];
/// Stages of an iteration of each model, in milliseconds: data, GPU, network.
const STAGES_MS: [[u64; 3]; 3] = [[60, 20, 20], [10, 70, 20], [20, 10, 70]];

/// Returns jobs with distinct times of submission, each with everything that a policy can be told.
fn world() -> Workload {
    let mut workload = Workload {
        source: "conformance".to_owned(),
        extra_columns: (0..3).map(|i| format!("resource_time_{i}")).collect(),
        ..Workload::default()
    };
    let models: Vec<_> = MODELS
        .iter()
        .map(|name| workload.names.models.push((*name).to_owned()))
        .collect();
    let mut next = draws();
    let mut at = 0;
    for i in 0..30 {
        at += 3_000_001 + next(9_000) * 1_003;
        let gpus = [1, 1, 1, 2, 2, 4, 8][next(7) as usize];
        let model = next(3) as usize;
        let iterations = 200 + next(1_500);
        let work = Work(iterations * 100_000);
        let submit = Time(i64::try_from(at).unwrap());
        let mut job = TraceJob::new(JobLabel::Number(i), submit, work, gpus);
        (job.model, job.iterations) = (Some(models[model]), Some(iterations));
        job.expected_us = NonZeroU64::new(work.0);
        (job.min_gpus, job.max_gpus) = (gpus.div_ceil(2), (gpus * 2).min(8));
        job.extra = Some(STAGES_MS[model].map(|ms| ms.to_string().into_boxed_str()).into());
        (job.cpu_milli_per_gpu, job.memory_mib_per_gpu) = (1_000 + 1_000 * next(3) as u32, 1_024);
        workload.jobs.push(job);
    }
    workload
}

fn cluster() -> ClusterSpec {
    let mut cluster = ClusterSpec::uniform(2, 4);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (16_000, 65_536);
    }
    cluster
}

/// Runs the world in the simulator. Returns the events and the commands.
fn simulate(preset: &str) -> (Vec<(Time, Event)>, Vec<CommandLine>) {
    let overrides = Overrides {
        admission: Some("accept-all".to_owned()),
        ..Overrides::default()
    };
    let (policy, _) = build(preset, &overrides).unwrap();
    let needs = policy.knowledge();
    let config = SimConfig {
        knowledge: Some(Knowledge::Estimate),
        ..SimConfig::new(cluster())
    };
    let mut journal = Journal::default();
    simulate_with(&world(), policy, needs, &config, Some(&mut journal), &mut |_| {}).unwrap();
    let commands = journal.commands.iter().map(command_line).collect();
    (journal.events, commands)
}

/// A live cluster that is told what happened in the simulator.
struct Live {
    state: ClusterState,
    world: Workload,
    commands: Vec<CommandLine>,
    /// Allocation of each running job.
    placed: BTreeMap<JobId, Allocation>,
}

impl Live {
    fn new(preset: &str) -> Self {
        let policy = PolicyText {
            policy: preset.to_owned(),
            parts: BTreeMap::new(),
        };
        Self {
            state: ClusterState::new(policy, Clock::Events).unwrap(),
            world: world(),
            commands: Vec::new(),
            placed: BTreeMap::new(),
        }
    }

    fn apply(&mut self, at: Time, fact: &Fact) {
        self.state.apply(at, fact);
        self.state.check().unwrap();
        for decision in self.state.take_decisions() {
            let text = match &decision {
                Decision::Launch { job, allocation, .. } => {
                    self.placed.insert(*job, allocation.clone());
                    format!("launch {} on {}", job - 1, place_text(allocation))
                }
                Decision::Resize { job, allocation, .. } => {
                    format!("resize {} to {}", job - 1, place_text(allocation))
                }
                Decision::Stop { job, .. } => format!("stop {}", job - 1),
                Decision::Reject { job, .. } => format!("reject {}", job - 1),
                other => panic!("unexpected decision {other:?}"),
            };
            self.commands.push((at, text));
        }
    }

    /// Returns the request of a job, which states what the trace does.
    fn request(&self, job: JobKey) -> JobRequest {
        let traced = &self.world.jobs[job.0 as usize];
        let model = traced.model.unwrap();
        let [data, gpu, net] = STAGES_MS[model.0 as usize].map(|ms| Time(ms as i64 * 1_000));
        JobRequest {
            command: vec!["train".to_owned()],
            gpus: traced.gpus,
            min_gpus: Some(traced.min_gpus),
            max_gpus: Some(traced.max_gpus),
            cpus_per_gpu: dovetail_cluster::Cpus::from_milli(traced.cpu_milli_per_gpu.into()),
            memory_mib_per_gpu: traced.memory_mib_per_gpu,
            model: Some(self.world.names.models[model].clone()),
            stages: Some(StageTimes { data, gpu, net }),
            expected: Some(Time(traced.work.0 as i64)),
            total_steps: Some(traced.work.0 / STEP_US),
            ..JobRequest::default()
        }
    }

    fn attempt(&self, id: JobId) -> u64 {
        self.state.job(id).unwrap().attempt().unwrap().id
    }

    /// Ends the tasks of a job.
    fn end_tasks(&mut self, at: Time, id: JobId, end: &TaskEnd) {
        let attempt = self.attempt(id);
        for share in self.placed.remove(&id).unwrap().shares {
            let fact = Fact::TaskEnded {
                job: id,
                attempt,
                node: share.node,
                end: Box::new(end.clone()),
            };
            self.apply(at, &fact);
        }
    }

    /// Reports an event as an agent or a user does.
    fn report(&mut self, at: Time, event: &Event) {
        let id = |job: &JobKey| JobId::from(job.0) + 1;
        match event {
            Event::NodeUp { node, spec } => self.apply(
                at,
                &Fact::NodeJoined {
                    node: *node,
                    spec: Box::new(spec.clone()),
                    gpu_type: "gpu".to_owned(),
                    rack: "rack".to_owned(),
                    address: String::new(),
                    identity: u64::from(node.0) + 1,
                },
            ),
            Event::NodeDown { node } => self.apply(at, &Fact::NodeLost { node: *node }),
            Event::Submitted(spec) => {
                let fact = Fact::Submitted {
                    job: id(&spec.id),
                    user: "ann".to_owned(),
                    request: Arc::new(self.request(spec.id)),
                    key: None,
                };
                self.apply(at, &fact);
            }
            Event::Started { job, .. } => {
                let (job, nodes) = (id(job), self.nodes_of(id(job)));
                let attempt = self.attempt(job);
                for node in nodes {
                    let (sharing, remarks) = (String::new(), Vec::new());
                    self.apply(
                        at,
                        &Fact::TaskStarted {
                            job,
                            attempt,
                            node,
                            sharing,
                            remarks,
                        },
                    );
                }
            }
            Event::Progressed { job, done, rate, .. } => {
                let total_steps = self.world.jobs[job.0 as usize].work.0 / STEP_US;
                let fact = Fact::Progressed {
                    job: id(job),
                    attempt: self.attempt(id(job)),
                    step: done.0 / STEP_US,
                    total_steps,
                    step_time: Time((STEP_US * 1_000_000 / u64::from(rate.0.max(1))) as i64),
                    data_time: Time::ZERO,
                    checkpoint_step: 0,
                    stages: None,
                };
                self.apply(at, &fact);
            }
            Event::Stopped { job, done, .. } => {
                let end = TaskEnd {
                    was_stopped: true,
                    checkpoint_step: done.0 / STEP_US,
                    ..TaskEnd::default()
                };
                self.end_tasks(at, id(job), &end);
            }
            Event::Exited {
                job,
                outcome: Outcome::Completed,
                ..
            } => {
                self.end_tasks(at, id(job), &TaskEnd::default());
            }
            Event::Wake => self.apply(at, &Fact::Woke),
            other => panic!("unexpected event {other:?}"),
        }
    }

    fn nodes_of(&self, id: JobId) -> Vec<NodeId> {
        let placed = self.placed.get(&id);
        placed.map_or(Vec::new(), |allocation| {
            allocation.shares.iter().map(|share| share.node).collect()
        })
    }
}

/// Moves the end of a job behind what other jobs report at the same moment, such as their speed without it. The simulator
/// decides after all events of a moment, and a live cluster after each.
fn ends_last(events: &mut [(Time, Event)]) {
    for i in (1..events.len()).rev() {
        let mut at = i;
        while at < events.len() - 1
            && matches!(events[at].1, Event::Exited { .. })
            && matches!(events[at + 1].1, Event::Progressed { .. })
            && events[at].0 == events[at + 1].0
        {
            events.swap(at, at + 1);
            at += 1;
        }
    }
}

fn check(preset: &str) -> usize {
    let (mut events, simulated) = simulate(preset);
    ends_last(&mut events);
    let mut live = Live::new(preset);
    let mut next = 0;
    for (at, event) in &events {
        // What was launched in the simulator before must be launched here.
        while let Some(missing) = simulated.get(next).filter(|(before, _)| before < at) {
            let found = live.commands.contains(missing);
            assert!(found, "missing {missing:?}; last {:?}", live.commands.last());
            next += 1;
        }
        live.report(*at, event);
    }
    assert_same_commands(live.commands, simulated)
}

#[test]
fn every_preset_decides_live_as_in_the_simulator() {
    let mut failures = Vec::new();
    for preset in presets() {
        let result = std::panic::catch_unwind(|| check(preset.name));
        match result {
            Ok(commands) => assert!(commands >= 30, "{}: every job is launched", preset.name),
            Err(error) => {
                let text = error.downcast_ref::<String>().cloned().unwrap_or_default();
                failures.push(format!("{}: {text}", preset.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn steps_correct_an_expected_run_time_as_on_a_live_cluster() {
    // The first job takes twice as long as expected. The last one fits before it ends, if the policy knows.
    let job = |i: u64, submit: i64, (work, expected): (u64, u64), gpus: u32| TraceJob {
        expected_us: NonZeroU64::new(expected * 1_000_000),
        iterations: Some(10 * work),
        ..TraceJob::new(
            JobLabel::Number(i),
            Time::from_secs(submit),
            Work(work * 1_000_000),
            gpus,
        )
    };
    let workload = Workload {
        jobs: vec![
            job(0, 0, (40, 20), 1),
            job(1, 1, (10, 10), 2),
            job(2, 25, (10, 10), 1),
        ],
        ..Workload::default()
    };
    let start_of_last = |reports_steps: bool| {
        let (policy, _) = build("fifo-easy", &Overrides::default()).unwrap();
        let needs = policy.knowledge();
        let config = SimConfig {
            knowledge: Some(Knowledge::Estimate),
            reports_steps,
            ..SimConfig::new(ClusterSpec::uniform(1, 2))
        };
        let record = dovetail_sim::simulate(&workload, policy, needs, &config).unwrap();
        record.rows[2].first_start.unwrap()
    };
    assert_eq!(start_of_last(true), Time::from_secs(25));
    assert_eq!(start_of_last(false), Time::from_secs(50));
}
