//! Policies on a live cluster: what a runtime cannot do is refused, missing data are counted, and a switch loses nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_cluster::state::JobState;
use dovetail_cluster::{
    Actor, Capabilities, ClusterState, Driver, Fact, JobId, JobRequest, OperatorAction, PolicyText, TaskEnd,
    VirtualCluster, VirtualClusters,
};
use dovetail_engine::{Clock, Support};
use dovetail_model::{NodeId, NodeSpec, Time};

/// A runtime that gives each job the GPUs, CPU and memory it asks for, alone, and reports no progress.
const PLAIN: Capabilities = Capabilities {
    runtime: "the plain runtime",
    sharing: Support::No("one job for each GPU"),
    stage_gates: Support::No("one job for each GPU"),
    resize: Support::No("jobs keep their CPU and memory"),
    width: Support::No("jobs keep their GPUs"),
    progress: Support::No("it reports none"),
    ..Capabilities::ALL
};

fn policy(name: &str) -> PolicyText {
    PolicyText {
        policy: name.to_owned(),
        parts: BTreeMap::new(),
    }
}

struct World {
    state: ClusterState,
    now: Time,
}

impl World {
    /// Returns a cluster of one node under a policy.
    fn new(name: &str, gpus: u32, runtime: Capabilities) -> Self {
        let state = ClusterState::new(policy(name), Clock::Events).unwrap();
        let mut world = Self {
            state: state.on(runtime).unwrap(),
            now: Time::from_secs(1_000),
        };
        world.apply(Fact::NodeJoined {
            node: NodeId(0),
            spec: Box::new(NodeSpec::plain("gpu-01", gpus)),
            gpu_type: "virtual".to_owned(),
            rack: "rack".to_owned(),
            address: String::new(),
            identity: 1,
        });
        world
    }

    fn apply(&mut self, fact: Fact) {
        self.now += Time::from_secs(1);
        self.state.apply(self.now, &fact);
        self.state.check().unwrap();
    }

    fn submit(&mut self, gpus: u32, expected: Option<i64>) -> JobId {
        let job = self.state.next_job();
        let request = JobRequest {
            command: vec!["true".to_owned()],
            gpus,
            expected: expected.map(Time::from_secs),
            ..JobRequest::default()
        };
        self.apply(Fact::Submitted {
            job,
            user: "ann".to_owned(),
            request: Arc::new(request),
            key: None,
        });
        job
    }

    fn complete(&mut self, job: JobId) {
        self.apply(Fact::TaskStarted {
            job,
            attempt: 1,
            node: NodeId(0),
            sharing: String::new(),
            remarks: Vec::new(),
        });
        self.apply(Fact::TaskEnded {
            job,
            attempt: 1,
            node: NodeId(0),
            end: Box::new(TaskEnd::default()),
        });
    }

    fn switch_to(&mut self, name: &str) {
        self.apply(Fact::Operated {
            action: OperatorAction::Policy(policy(name)),
            by: Actor::user("root"),
        });
    }

    fn warnings(&self) -> Vec<String> {
        let warnings = self.state.data_warnings();
        warnings.iter().map(ToString::to_string).collect()
    }

    fn restart(&mut self) {
        self.state = ClusterState::load(&self.state.save().unwrap()).unwrap();
    }

    /// Returns the run times that order `gittins` has learned.
    fn history(&self) -> usize {
        let learned = self.state.engine().policy().order.save();
        let history = learned.get("history").or_else(|| learned["base"].get("history"));
        history.unwrap().as_array().unwrap().len()
    }
}

#[test]
fn a_policy_that_the_runtime_cannot_carry_out_is_refused_at_the_start() {
    let state = ClusterState::new(policy("sjf-ffs"), Clock::Events).unwrap();
    assert_eq!(
        state.on(PLAIN).unwrap_err().to_string(),
        "grouping `pair:by=ffs` needs GPU sharing, which the plain runtime does not support: one job for each GPU; \
         use grouping `none`"
    );
    let opened = Driver::without_journal(policy("tune"), Clock::Events, PLAIN);
    assert!(opened.is_err_and(|error| error.to_string().starts_with("policy: unknown policy")));
    let opened = Driver::without_journal(policy("synergy"), Clock::Events, PLAIN);
    assert!(opened.is_err_and(|error| error.to_string().contains("use sizing `rigid`")));
}

#[test]
fn a_refused_switch_keeps_the_policy_in_force() {
    let mut world = World::new("fifo", 4, PLAIN);
    for name in [
        "sjf-ffs",
        "antman",
        "muri-s",
        "muri-l",
        "synergy",
        "sjf-bsbf",
        "elastic-fifo",
        "optimus",
    ] {
        let error = world.state.check_policy(&policy(name)).unwrap_err().to_string();
        assert!(
            error.contains("which the plain runtime does not support"),
            "{name}: {error}"
        );
        world.switch_to(name);
        assert_eq!(world.state.policy(), &policy("fifo"));
    }
    let sizing = PolicyText {
        parts: BTreeMap::from([("sizing".to_owned(), "opt".to_owned())]),
        ..policy("fifo")
    };
    let error = world.state.check_policy(&sizing).unwrap_err().to_string();
    assert!(
        error.starts_with("sizing `opt` needs resizing of CPU and memory"),
        "{error}"
    );
    assert!(world.state.check_policy(&policy("srtf")).is_ok());
}

#[test]
fn jobs_without_data_are_counted_as_they_come() {
    let mut world = World::new("srtf", 1, Capabilities::ALL);
    world.submit(1, Some(60));
    assert_eq!(world.warnings(), Vec::<String>::new());
    let unknown = world.submit(1, None);
    assert_eq!(
        world.warnings(),
        ["srtf orders by remaining time; 1 of 1 queued job has none: it is ordered last"]
    );
    world.submit(1, Some(90));
    world.submit(1, None);
    assert_eq!(
        world.warnings(),
        ["srtf orders by remaining time; 2 of 3 queued jobs have none: they are ordered last"]
    );
    let explanation = world.state.explain(unknown).unwrap();
    let expected = "no run time known: ordered last".to_owned();
    assert!(
        explanation.reasons.contains(&expected),
        "{:?}",
        explanation.reasons
    );
    assert_eq!(explanation.blockers.last().unwrap().code, "missing-data");
    world.switch_to("fifo");
    assert_eq!(world.warnings(), Vec::<String>::new());
    let explanation = world.state.explain(unknown).unwrap();
    assert!(
        !explanation.reasons.contains(&expected),
        "{:?}",
        explanation.reasons
    );
}

#[test]
fn data_that_the_runtime_does_not_provide_are_named() {
    let world = World::new("srtf", 1, PLAIN);
    assert_eq!(
        world.warnings(),
        [
            "srtf needs progress; the plain runtime provides none (it reports none): \
             jobs are assumed to run at full speed"
        ]
    );
}

#[test]
fn the_order_of_a_virtual_cluster_concerns_its_own_jobs() {
    let mut world = World::new("fifo", 1, Capabilities::ALL);
    let vision = VirtualCluster {
        order: Some("srtf".to_owned()),
        ..VirtualCluster::default()
    };
    let clusters = VirtualClusters {
        named: BTreeMap::from([("vision".to_owned(), vision)]),
        ..VirtualClusters::default()
    };
    world.apply(Fact::Operated {
        action: OperatorAction::VirtualClusters(Box::new(clusters)),
        by: Actor::user("root"),
    });
    world.submit(1, None);
    world.submit(1, None);
    assert_eq!(world.warnings(), Vec::<String>::new());
    let job = world.state.next_job();
    let request = JobRequest {
        command: vec!["true".to_owned()],
        tenant: "vision".to_owned(),
        ..JobRequest::default()
    };
    world.apply(Fact::Submitted {
        job,
        user: "ann".to_owned(),
        request: Arc::new(request),
        key: None,
    });
    assert_eq!(
        world.warnings(),
        ["srtf orders by remaining time; 1 of 1 queued job has none: it is ordered last"]
    );
}

#[test]
fn a_refused_switch_names_the_jobs_that_users_know() {
    let mut world = World::new("sjf-ffs-no-preempt", 1, Capabilities::ALL);
    let jobs = [world.submit(1, Some(60)), world.submit(1, Some(60))];
    assert_eq!(jobs, [1, 2]);
    let error = world.state.check_policy(&policy("fifo")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "running jobs contradict the policy: job 1, job 2 are placed on GPU 0 of node gpu-01, which allows 1"
    );
}

#[test]
fn a_stop_keeps_the_wording_of_the_policy_that_was_in_force() {
    let mut world = World::new("srtf", 1, Capabilities::ALL);
    let (long, short) = (world.submit(1, Some(600)), world.submit(1, Some(5)));
    world.switch_to("fifo");
    world.restart();
    let job = world.state.job(long).unwrap();
    let JobState::Stopping(cause) = &job.state else {
        panic!("{:?}", job.state);
    };
    assert_eq!(
        cause.sentence(&world.state, job.since),
        format!("job {short} is ahead of it under policy srtf and needs its GPUs")
    );
    assert!(
        world
            .state
            .explain(long)
            .unwrap()
            .sentence
            .contains("under policy srtf")
    );
    assert_eq!(world.state.policy_at(world.now), "fifo");
}

#[test]
fn an_order_keeps_what_it_has_learned() {
    let mut world = World::new("gittins", 4, Capabilities::ALL);
    for _ in 0..3 {
        let job = world.submit(1, None);
        world.complete(job);
    }
    assert_eq!(world.history(), 3);
    let mut placement = policy("gittins");
    placement
        .parts
        .insert("placement".to_owned(), "spread".to_owned());
    world.apply(Fact::Operated {
        action: OperatorAction::Policy(placement),
        by: Actor::user("root"),
    });
    assert_eq!(world.history(), 3);
    for order in [Some("las"), Some("fifo"), None] {
        let vision = VirtualCluster {
            order: order.map(str::to_owned),
            ..VirtualCluster::default()
        };
        let clusters = VirtualClusters {
            named: BTreeMap::from([("vision".to_owned(), vision)]),
            ..VirtualClusters::default()
        };
        world.apply(Fact::Operated {
            action: OperatorAction::VirtualClusters(Box::new(clusters)),
            by: Actor::user("root"),
        });
        assert_eq!(world.history(), 3, "{order:?}");
    }
    world.switch_to("gittins:window=10");
    assert_eq!(world.history(), 0);
}
