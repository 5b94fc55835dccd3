//! Jobs with a node constraint: under every policy they run only on its nodes, and every job that fits on them
//! eventually runs.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_engine::{Clock, Engine, Explanation};
use dovetail_model::{
    AttemptKey, ClusterSpec, Command, Event, JobKey, JobSpec, NodeConstraintId, NodeId, NodeSpec, Outcome,
    Rate, Stages, Time, Work,
};
use dovetail_policies::{Overrides, build, presets};
use proptest::prelude::*;

/// Number of constraints in a case.
const CONSTRAINTS: u32 = 3;

#[derive(Debug, Clone)]
struct Case {
    nodes: Vec<u32>,
    /// For each constraint, its nodes at first and later on.
    constraints: Vec<[BTreeSet<u32>; 2]>,
    /// GPUs, constraint and seconds of work.
    jobs: Vec<(u32, Option<u32>, u64)>,
}

fn case() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec(1..=8u32, 2..6);
    nodes.prop_flat_map(|nodes| {
        let count = nodes.len() as u32;
        let set = || prop::collection::btree_set(0..count, 0..=nodes.len());
        let constraints = prop::collection::vec([set(), set()], CONSTRAINTS as usize);
        let job = (1..=8u32, prop::option::weighted(0.7, 0..CONSTRAINTS), 1..500u64);
        let jobs = prop::collection::vec(job, 1..16);
        (Just(nodes.clone()), constraints, jobs).prop_map(|(nodes, constraints, jobs)| Case {
            nodes,
            constraints,
            jobs,
        })
    })
}

struct Run {
    policy: String,
    engine: Engine,
    now: Time,
    within: Vec<BTreeSet<NodeId>>,
    specs: Vec<JobSpec>,
    running: BTreeMap<JobKey, AttemptKey>,
    done: BTreeSet<JobKey>,
}

impl Run {
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
            within: vec![BTreeSet::new(); CONSTRAINTS as usize],
            specs: case.jobs.iter().enumerate().map(spec).collect(),
            running: BTreeMap::new(),
            done: BTreeSet::new(),
        }
    }

    fn set_constraints(&mut self, case: &Case, which: usize) {
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

    /// Carries out all commands of the engine, and checks every launch.
    fn carry_out(&mut self) {
        self.engine.handle(self.now, Event::Wake);
        while let Some(command) = self.engine.poll() {
            match command {
                Command::Launch {
                    job,
                    attempt,
                    allocation,
                    ..
                } => {
                    if let Some(constraint) = self.specs[job.0 as usize].constraint {
                        let within = &self.within[constraint.0 as usize];
                        let outside = allocation.shares.iter().find(|s| !within.contains(&s.node));
                        assert!(
                            outside.is_none(),
                            "{}: job {job} is started outside its node constraint: {allocation:?}",
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
        self.engine.check().expect("the engine's state is consistent");
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

fn check(case: &Case, policy: &str) {
    let mut run = Run::new(case, policy);
    run.set_constraints(case, 0);
    for spec in run.specs.clone() {
        run.engine.handle(run.now, Event::Submitted(spec));
    }
    run.carry_out();
    for step in 0..3 {
        run.now += Time::from_secs(60);
        run.end_one(step);
        run.carry_out();
    }
    run.set_constraints(case, 1);
    // Ends one job after the other until none is left.
    let mut idle = 0;
    while idle < 40 {
        run.now += Time::from_secs(60);
        idle = if run.running.is_empty() { idle + 1 } else { 0 };
        run.end_one(run.done.len());
        run.carry_out();
    }
    // Under some policies a job that can never start keeps others waiting forever.
    let fits = |spec: &&JobSpec| {
        let within = |n: &u32| {
            spec.constraint
                .is_none_or(|f| run.within[f.0 as usize].contains(&NodeId(*n)))
        };
        let nodes = (0..case.nodes.len() as u32).filter(within);
        nodes
            .map(|n| case.nodes[n as usize])
            .any(|gpus| gpus >= spec.gpus)
    };
    let left: Vec<&JobSpec> = run
        .specs
        .iter()
        .filter(|spec| !run.done.contains(&spec.id))
        .collect();
    if left.iter().all(fits) {
        let explanations: Vec<String> = left
            .iter()
            .map(|spec| format!("{:?}", run.engine.explain(spec.id)))
            .collect();
        assert!(
            left.is_empty(),
            "{policy}: jobs never start though the cluster is empty: {left:?}: {explanations:?}"
        );
    }
}

proptest! {
    #![proptest_config(dovetail_testkit::any::cases(400))]

    #[test]
    fn jobs_run_only_on_nodes_of_their_constraint_and_all_that_fit_run(case in case()) {
        for preset in presets() {
            check(&case, preset.name);
        }
    }
}

#[test]
fn the_waiting_reason_of_a_constrained_job_names_nodes_and_free_gpus() {
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
        panic!("the job is not queued");
    };
    let text: String = reasons.iter().map(|r| format!("{r}; ")).collect();
    assert!(
        text.contains("allows 1 node") && text.contains("2 GPUs are free"),
        "{text}"
    );
}
