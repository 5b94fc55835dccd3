//! Jobs that are confined to some of the nodes: under every policy they run there and nowhere else, and whoever fits
//! there gets his turn.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_engine::{Clock, Engine, Explanation};
use dovetail_model::{
    AttemptKey, ClusterSpec, Command, Event, JobKey, JobSpec, NodeConstraintId, NodeId, NodeSpec, Outcome,
    Rate, Stages, Time, Work,
};
use dovetail_policies::{Overrides, build, presets};
use proptest::prelude::*;

/// Fences that are used.
const FENCES: u32 = 3;

#[derive(Debug, Clone)]
struct Case {
    nodes: Vec<u32>,
    /// For each fence, the nodes within it at first and later on.
    constraints: Vec<[BTreeSet<u32>; 2]>,
    /// GPUs, fence and seconds of work.
    jobs: Vec<(u32, Option<u32>, u64)>,
}

fn case() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec(1..=8u32, 2..6);
    nodes.prop_flat_map(|nodes| {
        let count = nodes.len() as u32;
        let set = || prop::collection::btree_set(0..count, 0..=nodes.len());
        let constraints = prop::collection::vec([set(), set()], FENCES as usize);
        let job = (1..=8u32, prop::option::weighted(0.7, 0..FENCES), 1..500u64);
        let jobs = prop::collection::vec(job, 1..16);
        (Just(nodes.clone()), constraints, jobs).prop_map(|(nodes, constraints, jobs)| Case {
            nodes,
            constraints,
            jobs,
        })
    })
}

struct Play {
    policy: String,
    engine: Engine,
    now: Time,
    within: Vec<BTreeSet<NodeId>>,
    specs: Vec<JobSpec>,
    running: BTreeMap<JobKey, AttemptKey>,
    done: BTreeSet<JobKey>,
}

impl Play {
    fn new(case: &Case, name: &str) -> Self {
        let (policy, _) = build(name, &Overrides::default()).expect("a preset");
        let mut cluster = ClusterSpec::uniform(0, 1);
        for (i, gpus) in case.nodes.iter().enumerate() {
            cluster.nodes.push(NodeSpec::plain(format!("n{i}"), *gpus));
        }
        let spec = |(i, &(gpus, constraint, seconds)): (usize, &(u32, Option<u32>, u64))| JobSpec {
            constraint: constraint.map(NodeConstraintId),
            expected: Some(Work(seconds * 1_000_000)),
            stages: Some(Stages::three(10, 50, 10, 80)),
            ..JobSpec::new(JobKey(i as u32), gpus)
        };
        Self {
            policy: name.to_owned(),
            engine: Engine::with_cluster(policy, Clock::rounds(Time::from_secs(60)), &cluster),
            now: Time::ZERO,
            within: vec![BTreeSet::new(); FENCES as usize],
            specs: case.jobs.iter().enumerate().map(spec).collect(),
            running: BTreeMap::new(),
            done: BTreeSet::new(),
        }
    }

    fn set_fences(&mut self, case: &Case, which: usize) {
        for (i, constraint) in case.constraints.iter().enumerate() {
            let nodes: BTreeSet<NodeId> = constraint[which].iter().map(|n| NodeId(*n)).collect();
            self.within[i].clone_from(&nodes);
            let event = Event::NodeConstraintSet {
                constraint: NodeConstraintId(i as u32),
                nodes: nodes.into_iter().collect(),
            };
            self.engine.handle(self.now, event);
        }
    }

    /// Carries out whatever the engine wants, and looks at every launch.
    fn carry_out(&mut self) {
        self.engine.handle(self.now, Event::Wake);
        while let Some(command) = self.engine.poll() {
            match command {
                Command::Launch {
                    job,
                    attempt,
                    allocation,
                } => {
                    if let Some(constraint) = self.specs[job.0 as usize].constraint {
                        let within = &self.within[constraint.0 as usize];
                        let outside = allocation.shares.iter().find(|s| !within.contains(&s.node));
                        assert!(
                            outside.is_none(),
                            "{}: job {job} is started outside its fence: {allocation:?}",
                            self.policy
                        );
                    }
                    self.running.insert(job, attempt);
                    let rate = Rate::FULL;
                    self.engine
                        .handle(self.now, Event::Started { job, attempt, rate });
                }
                Command::Stop { job, attempt, .. } => {
                    self.running.remove(&job);
                    let done = Work(0);
                    self.engine
                        .handle(self.now, Event::Stopped { job, attempt, done });
                }
                Command::Reject { job, .. } => drop(self.done.insert(job)),
                Command::Resize { .. } => {}
            }
        }
        self.engine.check().expect("the engine's books agree");
    }

    fn end_one(&mut self, pick: usize) {
        let Some((&job, &attempt)) = self.running.iter().nth(pick % self.running.len().max(1)) else {
            return;
        };
        self.running.remove(&job);
        self.done.insert(job);
        let outcome = Outcome::Completed;
        self.engine.handle(
            self.now,
            Event::Exited {
                job,
                attempt,
                outcome,
            },
        );
    }
}

fn play(case: &Case, policy: &str) {
    let mut play = Play::new(case, policy);
    play.set_fences(case, 0);
    for spec in play.specs.clone() {
        play.engine.handle(play.now, Event::Submitted(spec));
    }
    play.carry_out();
    for step in 0..3 {
        play.now += Time::from_secs(60);
        play.end_one(step);
        play.carry_out();
    }
    play.set_fences(case, 1);
    // Everyone in turn, as long as there is someone.
    let mut idle = 0;
    while idle < 40 {
        play.now += Time::from_secs(60);
        idle = if play.running.is_empty() { idle + 1 } else { 0 };
        play.end_one(play.done.len());
        play.carry_out();
    }
    // Who can never start may keep others waiting, under some policies for ever.
    let fits = |spec: &&JobSpec| {
        let within = |n: &u32| {
            spec.constraint
                .is_none_or(|f| play.within[f.0 as usize].contains(&NodeId(*n)))
        };
        let nodes = (0..case.nodes.len() as u32).filter(within);
        nodes
            .map(|n| case.nodes[n as usize])
            .any(|gpus| gpus >= spec.gpus)
    };
    let left: Vec<&JobSpec> = play
        .specs
        .iter()
        .filter(|spec| !play.done.contains(&spec.id))
        .collect();
    if left.iter().all(fits) {
        let why: Vec<String> = left
            .iter()
            .map(|spec| format!("{:?}", play.engine.explain(spec.id)))
            .collect();
        assert!(
            left.is_empty(),
            "{policy}: jobs never start though the cluster is empty: {left:?}: {why:?}"
        );
    }
}

proptest! {
    #![proptest_config(dovetail_testkit::any::cases(400))]

    #[test]
    fn whoever_is_confined_runs_there_and_nowhere_else(case in case()) {
        for preset in presets() {
            play(&case, preset.name);
        }
    }
}

#[test]
fn why_a_confined_job_waits_is_said_in_words() {
    let (policy, _) = build("fifo", &Overrides::default()).expect("a preset");
    let mut engine = Engine::with_cluster(policy, Clock::Events, &ClusterSpec::uniform(2, 8));
    let now = Time::ZERO;
    let constraint = NodeConstraintId(5);
    engine.handle(
        now,
        Event::NodeConstraintSet {
            constraint,
            nodes: vec![NodeId(1)],
        },
    );
    let job = |id: u32, gpus: u32| JobSpec {
        constraint: Some(constraint),
        ..JobSpec::new(JobKey(id), gpus)
    };
    engine.handle(now, Event::Submitted(job(0, 6)));
    engine.handle(now, Event::Submitted(job(1, 4)));
    while engine.poll().is_some() {}
    let Explanation::Waiting { reasons, .. } = engine.explain(JobKey(1)) else {
        panic!("it runs");
    };
    let said: String = reasons.iter().map(|r| format!("{r}; ")).collect();
    assert!(
        said.contains("allows 1 node") && said.contains("2 GPUs are free"),
        "{said}"
    );
}
