//! Jobs whose CPU curve is not known are measured with less and more CPU while they run, and then get CPU by need.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_cluster::state::JobState;
use dovetail_cluster::{ClusterState, Fact, JobId, JobRequest, PolicyText, RuntimeCommand};
use dovetail_engine::Clock;
use dovetail_model::{NodeId, NodeSpec, Time};

const CPU_MILLI: u32 = 4_000;
const MEMORY_MIB: u64 = 8_192;

/// A node with two GPUs and four CPUs, whose jobs run as fast as their CPU permits.
struct World {
    state: ClusterState,
    second: i64,
    /// CPU of each job, as its agent was told.
    cpu_milli: BTreeMap<JobId, u32>,
    /// All CPU limits so far.
    limits: Vec<(JobId, u32)>,
    steps: BTreeMap<JobId, f64>,
}

impl World {
    fn new(sizing: &str, whole_cpus: bool) -> Self {
        let policy = PolicyText {
            policy: "fifo-backfill".to_owned(),
            parts: BTreeMap::from([("sizing".to_owned(), sizing.to_owned())]),
        };
        let mut world = Self {
            state: ClusterState::new(policy, Clock::Events).unwrap(),
            second: 1_000,
            cpu_milli: BTreeMap::new(),
            limits: Vec::new(),
            steps: BTreeMap::new(),
        };
        let spec = NodeSpec {
            cpu_milli: CPU_MILLI,
            memory_mib: MEMORY_MIB,
            whole_cpus,
            ..NodeSpec::plain("node", 2)
        };
        world.apply(Fact::NodeJoined {
            node: NodeId(0),
            spec: Box::new(spec),
            gpu_type: "virtual".to_owned(),
            rack: "rack".to_owned(),
            address: String::new(),
            identity: 1,
        });
        world
    }

    fn apply(&mut self, fact: Fact) {
        self.state.apply(Time::from_secs(self.second), &fact);
        self.state.check().unwrap();
        for (_, command) in self.state.take_commands() {
            let (job, cpu_milli) = match command {
                RuntimeCommand::Start(task) => (task.job, task.share.cpu_milli),
                RuntimeCommand::Resize {
                    job,
                    cpu_milli,
                    memory_mib,
                    ..
                } => {
                    let least = MEMORY_MIB / 2;
                    assert!(memory_mib >= least, "memory is not measured: {memory_mib}");
                    (job, cpu_milli)
                }
                RuntimeCommand::Stop { .. } => continue,
            };
            self.cpu_milli.insert(job, cpu_milli);
            self.limits.push((job, cpu_milli));
        }
        let used: u32 = self.cpu_milli.values().sum();
        assert!(used <= CPU_MILLI, "{:?}", self.cpu_milli);
    }

    fn run(&mut self, model: &str) -> JobId {
        let job = self.state.next_job();
        let request = JobRequest {
            command: vec!["true".to_owned()],
            model: Some(model.to_owned()),
            ..JobRequest::default()
        };
        self.apply(Fact::Submitted {
            job,
            user: "ann".to_owned(),
            request: Arc::new(request),
            key: None,
        });
        assert_eq!(self.state.job(job).unwrap().state, JobState::Starting);
        self.apply(Fact::TaskStarted {
            job,
            attempt: 1,
            node: NodeId(0),
            sharing: String::new(),
            remarks: Vec::new(),
        });
        job
    }

    /// Lets jobs report their steps for some seconds. A step takes 10 ms, and what the CPU needs for so many milliseconds of
    /// work that any number of CPUs can share.
    fn pass(&mut self, seconds: i64, parallel_ms: impl Fn(JobId) -> f64) {
        for _ in 0..seconds {
            self.second += 1;
            for job in self.cpu_milli.keys().copied().collect::<Vec<_>>() {
                let cpus = f64::from(self.cpu_milli[&job]) / 1e3;
                let step_ms = 10.0 + parallel_ms(job) / cpus;
                let step = self.steps.entry(job).or_default();
                *step += 1e3 / step_ms;
                let step = *step as u64;
                self.apply(Fact::Progressed {
                    job,
                    attempt: 1,
                    step,
                    total_steps: 0,
                    step_time: Time((step_ms * 1e3) as i64),
                    data_time: Time::ZERO,
                    stages: None,
                    checkpoint_step: 0,
                });
            }
        }
    }
}

#[test]
fn cpu_goes_where_the_measured_curves_say() {
    let mut world = World::new("tune", false);
    let (light, hungry) = (world.run("light"), world.run("hungry"));
    assert_eq!(world.cpu_milli[&light], 2_000);
    assert_eq!(world.cpu_milli[&hungry], 2_000);
    world.pass(120, |job| if job == hungry { 200.0 } else { 0.1 });
    assert!(world.cpu_milli[&light] <= 1_000, "{:?}", world.cpu_milli);
    assert!(world.cpu_milli[&hungry] >= 3_000, "{:?}", world.cpu_milli);
    assert!(
        world.limits.contains(&(hungry, 1_000)),
        "half of its share was tried"
    );
    let count = world.limits.len();
    world.pass(120, |job| if job == hungry { 200.0 } else { 0.1 });
    assert_eq!(world.limits.len(), count, "trials end");
    let attempts = [light, hungry].map(|job| world.state.job(job).unwrap().attempt().unwrap().clone());
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.trial.is_none() && attempt.id == 1)
    );
    // The next job of a known model begins with what was learned.
    let profiles: Vec<&str> = world.state.profiles().iter().map(|(key, _)| key).collect();
    assert_eq!(profiles, ["hungry", "light"]);
}

#[test]
fn a_policy_that_gives_proportional_shares_tries_nothing() {
    let mut world = World::new("proportional", false);
    let job = world.run("hungry");
    world.pass(60, |_| 200.0);
    assert_eq!(world.limits, [(job, 2_000)]);
}

#[test]
fn a_node_that_binds_tasks_to_cpus_tries_whole_ones_only() {
    let mut world = World::new("tune", true);
    let _ = (world.run("light"), world.run("hungry"));
    world.pass(120, |job| if job == 2 { 200.0 } else { 0.1 });
    let trials: Vec<_> = world.limits.iter().filter(|(_, cpu)| cpu % 1_000 != 0).collect();
    assert!(trials.is_empty(), "{trials:?}");
}

#[test]
fn a_trial_survives_a_restart_and_ends_with_its_job() {
    let mut world = World::new("tune", false);
    let job = world.run("hungry");
    while world.cpu_milli[&job] != 1_000 {
        assert!(world.second < 1_100, "no trial has begun");
        world.pass(1, |_| 200.0);
    }
    let trial = |state: &ClusterState| state.job(job).unwrap().attempt().unwrap().trial.clone();
    let saved = ClusterState::load(&world.state.save().unwrap()).unwrap();
    assert_eq!(trial(&saved), trial(&world.state));
    assert!(trial(&saved).is_some());
    world.apply(Fact::TaskEnded {
        job,
        attempt: 1,
        node: NodeId(0),
        end: Box::default(),
    });
    assert!(world.state.job(job).unwrap().state.has_ended());
}
