//! The mirror over random histories of a made-up API server that honours the contract of the real one: pods are bound once,
//! answers come late, the scheduler dies at any moment, and owners make pods anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::{
    Actor, Clock, ClusterState, Fact, JobId, JobRequest, JobState, PolicyText, Refusal, RuntimeCommand,
};
use dovetail_kube::{Action, Gang, Ledger, Reconciler, Settings};
use dovetail_kubeapi::{Node, Pod};
use dovetail_model::Time;
use proptest::prelude::*;
use serde_json::json;

struct AtDesk<'a> {
    state: &'a mut ClusterState,
    now: Time,
}

impl Ledger for AtDesk<'_> {
    fn state(&self) -> &ClusterState {
        self.state
    }

    fn record(&mut self, fact: Fact) {
        self.state.apply(self.now, &fact);
    }

    fn submit(&mut self, user: &str, request: JobRequest) -> Result<JobId, Refusal> {
        request.validate()?;
        let job = self.state.next_job();
        self.record(Fact::Submitted {
            job,
            user: user.to_owned(),
            request: Box::new(request),
            key: None,
        });
        Ok(job)
    }
}

const NODES: u32 = 3;
const GPUS: u32 = 4;

/// An API server, nodes, and a scheduler.
struct World {
    policy: String,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeSet<u32>,
    sizes: BTreeMap<String, u32>,
    made: u32,
    now: i64,
    state: ClusterState,
    reconciler: Reconciler,
    /// What is on its way to the server.
    pending: Vec<Action>,
}

fn node(i: u32) -> Node {
    let amounts = json!({"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": GPUS.to_string()});
    serde_json::from_value(json!({"metadata": {"name": format!("n{i}"), "labels": {"zone": i.to_string()}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}}))
    .unwrap()
}

impl World {
    fn new(policy: &str) -> Self {
        let (state, reconciler) = scheduler(policy);
        let mut world = Self {
            policy: policy.to_owned(),
            pods: BTreeMap::new(),
            nodes: (0..NODES).collect(),
            sizes: BTreeMap::new(),
            made: 0,
            now: 1_000_000,
            state,
            reconciler,
            pending: Vec::new(),
        };
        world.list();
        world
    }

    /// The scheduler dies, and another one finds what is there. What was on its way is lost.
    fn crash(&mut self) {
        self.pending.clear();
        (self.state, self.reconciler) = scheduler(&self.policy);
        self.list();
    }

    fn list(&mut self) {
        let nodes: Vec<Node> = self.nodes.iter().map(|i| node(*i)).collect();
        let pods: Vec<Pod> = self.pods.values().cloned().collect();
        self.with(|reconciler, desk| {
            reconciler.all_nodes(&nodes, desk);
            reconciler.all_pods(&pods, desk);
        });
    }

    fn with(&mut self, work: impl FnOnce(&mut Reconciler, &mut AtDesk<'_>)) {
        self.now += 1_000;
        let now = Time(self.now);
        work(
            &mut self.reconciler,
            &mut AtDesk {
                state: &mut self.state,
                now,
            },
        );
        loop {
            let orders = self.state.take_commands();
            if orders.is_empty() {
                break;
            }
            let mut desk = AtDesk {
                state: &mut self.state,
                now,
            };
            for (_, order) in orders {
                match order {
                    RuntimeCommand::Start(task) => self.reconciler.start(task.job, task.attempt, &mut desk),
                    RuntimeCommand::Stop {
                        job,
                        attempt: attempt_id,
                        ..
                    } => self.reconciler.stop(job, attempt_id, &mut desk),
                    RuntimeCommand::Resize { .. } => {}
                }
            }
        }
        let actions = self.reconciler.take_actions();
        self.pending.extend(actions);
        self.state.check().unwrap();
        self.check();
    }

    /// No GPU has two pods.
    fn check(&self) {
        let mut used = BTreeSet::new();
        for pod in self
            .pods
            .values()
            .filter(|p| !p.spec.node_name.is_empty() && !is_over(p))
        {
            for gpu in pod.metadata.annotations["dovetail.io/gpus"].split(',') {
                assert!(
                    used.insert((pod.spec.node_name.clone(), gpu.to_owned())),
                    "GPU {gpu} of {} has two pods",
                    pod.spec.node_name
                );
            }
        }
    }

    fn put(&mut self, pod: Pod) {
        self.pods.insert(pod.metadata.uid.clone(), pod.clone());
        self.with(|reconciler, desk| reconciler.pod_put(&pod, desk));
    }

    fn make_pod(&mut self, gang: &str, owned: bool, gpus: u32, priority: i32) {
        self.made += 1;
        let i = self.made;
        let mut meta = json!({"name": format!("{gang}-{i}"), "namespace": "ns", "uid": format!("uid-{i}"),
            "creationTimestamp": "2026-11-17T00:00:00Z"});
        let size = self.sizes[gang];
        if let Some(least) = least_of(gang, size) {
            meta["annotations"] = json!({"dovetail.io/gang-min": least.to_string()});
        }
        match owned {
            true => {
                meta["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": gang, "uid": gang,
                    "controller": true}]);
            }
            false => {
                meta["annotations"]["dovetail.io/gang"] = json!(gang);
                meta["annotations"]["dovetail.io/gang-size"] = json!(size.to_string());
            }
        }
        let limits = json!({"nvidia.com/gpu": gpus.to_string(), "cpu": "1"});
        let pod = json!({"metadata": meta, "status": {"phase": "Pending"}, "spec": {"schedulerName": "dovetail",
            "priority": priority, "containers": [{"name": "c", "resources": {"limits": limits}}]}});
        let mut pod = pod;
        if let Some(zone) = zone_of(gang) {
            pod["spec"]["nodeSelector"] = json!({"zone": zone});
        }
        self.put(serde_json::from_value(pod).unwrap());
    }

    fn make_gang(&mut self, size: u32, owned: bool, gpus: u32, priority: i32) {
        let gang = format!("g{}", self.sizes.len());
        self.sizes.insert(gang.clone(), size);
        for _ in 0..size {
            self.make_pod(&gang, owned, gpus, priority);
        }
    }

    /// Whoever owned a pod that is gone makes another one.
    fn remove(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.with(|reconciler, desk| reconciler.pod_gone(&pod, desk));
        if let Some(owner) = pod.metadata.controller().cloned().filter(|_| !is_over(&pod)) {
            let gpus = pod.spec.containers[0].resources.limits["nvidia.com/gpu"]
                .parse()
                .unwrap();
            self.make_pod(&owner.name, true, gpus, pod.spec.priority.unwrap());
        }
    }

    fn deliver(&mut self, at: usize) {
        if self.pending.is_empty() {
            return;
        }
        let action = self.pending.remove(at % self.pending.len());
        match action {
            Action::Launch { plan, binds, .. } => {
                if let Some((first, plan)) = plan {
                    let Some(pod) = self.pods.get(&first.uid).cloned() else {
                        for bind in binds {
                            self.with(|reconciler, desk| reconciler.bind_failed(&bind.pod.uid, desk));
                        }
                        return;
                    };
                    let mut pod = pod;
                    pod.metadata
                        .annotations
                        .insert("dovetail.io/plan".to_owned(), plan);
                    self.put(pod);
                }
                // Each binding is a request of its own.
                for bind in binds {
                    let one = Action::Launch {
                        job: 0,
                        attempt: 0,
                        gang: String::new(),
                        plan: None,
                        binds: vec![bind],
                    };
                    self.pending.push(one.clone());
                    if at.is_multiple_of(2) {
                        self.pending.pop();
                        self.bind(one);
                    }
                }
            }
            Action::Remove { pod, .. } => {
                if let Some(mut pod) = self.pods.get(&pod.uid).cloned() {
                    pod.metadata.deletion_timestamp = Some("2026-11-17T00:00:00Z".to_owned());
                    self.put(pod);
                }
            }
            Action::LookUp { gang, .. } => {
                let size = self.sizes[&gang.name];
                self.with(|reconciler, desk| reconciler.size_is(&gang, Ok(size), desk));
            }
            Action::StopOwner { .. } | Action::Explain { .. } | Action::OnGroup { .. } => {}
        }
    }

    fn bind(&mut self, action: Action) {
        let Action::Launch { binds, .. } = action else {
            return;
        };
        for bind in binds {
            let free = |p: &&Pod| p.spec.node_name.is_empty() && p.metadata.deletion_timestamp.is_none();
            match self.pods.get(&bind.pod.uid).filter(free).cloned() {
                Some(mut pod) => {
                    if let Some(zone) = pod.spec.node_selector.get("zone") {
                        assert!(
                            bind.node.ends_with(zone.as_str()),
                            "{} is for n{zone}",
                            pod.metadata.name
                        );
                    }
                    pod.spec.node_name = bind.node;
                    for (key, value) in bind.annotations {
                        pod.metadata.annotations.insert(key.to_owned(), value);
                    }
                    self.put(pod);
                }
                None => self.with(|reconciler, desk| reconciler.bind_failed(&bind.pod.uid, desk)),
            }
        }
    }

    fn some_pod(&self, pick: usize, like: impl Fn(&&Pod) -> bool) -> Option<Pod> {
        let all: Vec<&Pod> = self.pods.values().filter(like).collect();
        all.get(pick % all.len().max(1)).map(|p| (*p).clone())
    }

    fn step(&mut self, what: u8, pick: usize) {
        match what {
            0 | 1 => self.make_gang(
                1 + (pick % 4) as u32,
                !pick.is_multiple_of(3),
                1 + (pick % 2) as u32,
                (pick % 5) as i32 * 10,
            ),
            2..=6 => self.deliver(pick),
            7 | 8 => {
                if let Some(mut pod) = self.some_pod(pick, |p| {
                    !p.spec.node_name.is_empty() && p.status.phase == "Pending"
                }) {
                    pod.status.phase = "Running".to_owned();
                    self.put(pod);
                }
            }
            9 => {
                if let Some(mut pod) = self.some_pod(pick, |p| p.status.phase == "Running") {
                    pod.status.phase = if pick.is_multiple_of(4) {
                        "Failed"
                    } else {
                        "Succeeded"
                    }
                    .to_owned();
                    self.put(pod);
                }
            }
            10 => {
                if let Some(pod) = self.some_pod(pick, |p| p.metadata.deletion_timestamp.is_some()) {
                    self.remove(&pod.metadata.uid);
                }
            }
            11 => {
                if let Some(pod) = self.some_pod(pick, |_| true) {
                    self.remove(&pod.metadata.uid);
                }
            }
            12 => self.crash(),
            13 => {
                let i = (pick as u32) % NODES;
                match self.nodes.remove(&i) {
                    true => {
                        let name = format!("n{i}");
                        self.with(|reconciler, desk| reconciler.node_gone(&name, desk));
                        let there: Vec<String> = self
                            .pods
                            .values()
                            .filter(|p| p.spec.node_name == name)
                            .map(|p| p.metadata.uid.clone())
                            .collect();
                        there.iter().for_each(|uid| self.remove(uid));
                    }
                    false => {
                        self.nodes.insert(i);
                        let node = node(i);
                        self.with(|reconciler, desk| reconciler.node_put(&node, desk));
                    }
                }
            }
            _ => self.list(),
        }
    }

    /// Everything that is on its way arrives, and everything that was told to go is gone.
    fn settle(&mut self) {
        for round in 0..2_000 {
            if let Some(pod) = self.some_pod(0, |p| p.metadata.deletion_timestamp.is_some()) {
                self.remove(&pod.metadata.uid);
            } else if !self.pending.is_empty() {
                self.deliver(0);
            } else {
                return;
            }
            assert!(round < 1_999, "no end in sight");
        }
    }
}

fn scheduler(policy: &str) -> (ClusterState, Reconciler) {
    let text = PolicyText {
        policy: policy.to_owned(),
        parts: BTreeMap::new(),
    };
    (
        ClusterState::new(text, Clock::Events).unwrap(),
        Reconciler::new(Settings::default()),
    )
}

/// Some gangs may be on one node only; nodes are labelled with their numbers.
fn zone_of(gang: &str) -> Option<String> {
    let number: u32 = gang[1..].parse().unwrap();
    (number % 4 == 3).then(|| (number / 4 % NODES).to_string())
}

/// Some gangs start with half of their pods.
fn least_of(gang: &str, size: u32) -> Option<u32> {
    let number: u32 = gang[1..].parse().unwrap();
    (number % 3 == 2).then(|| size.div_ceil(2))
}

fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

proptest! {
    #![proptest_config(dovetail_testkit::any::cases(600))]

    #[test]
    fn no_gpu_has_two_pods_and_gangs_are_whole(
        policy in prop::sample::select(vec!["fifo-backfill:priority=true", "drf", "tiresias", "las", "themis"]),
        steps in prop::collection::vec((0_u8..15, any::<usize>()), 1..120),
    ) {
        let mut world = World::new(policy);
        for (what, pick) in steps {
            world.step(what, pick);
        }
        world.settle();
        for gang in world.reconciler.gangs() {
            let there = gang.members.values().filter(|m| m.is_there()).count();
            let waiting = gang.waiting().len();
            let empty = gang.seats.iter().filter(|s| s.pod.is_none()).count();
            // Pods without an owner that somebody deleted leave a seat that nobody fills.
            prop_assert!(there == 0 || waiting == 0 || empty == 0 || gang.seats.len() != there + waiting,
                "gang {} is half bound: {there} pods there, {waiting} wait, {empty} seats are empty, its job is {:?}\n{gang:#?}",
                gang.key, gang.job.and_then(|no| world.state.job(no)).map(|job| &job.state));
            if there > 0 && waiting > 0 {
                prop_assert!(gang.seats.len() == there, "gang {} is half bound: {gang:#?}", gang.key);
            }
            // Whoever could run beside its gang stands in line for that.
            let is_up = |gang: &Gang| gang.job.and_then(|no| world.state.job(no)).is_some_and(|job| job.state.holds_gpus());
            let room = gang.size.map_or(0, |(size, least)| if least < size { size as usize } else { 0 });
            prop_assert!(!is_up(gang) || waiting == 0 || gang.seats.len() + gang.riders.len() >= room,
                "pods of {} do not stand in line: {gang:#?}", gang.key);
            if let Some(below) = &gang.rides_on {
                let below = world.reconciler.gangs().find(|g| g.key == *below);
                prop_assert!(below.is_some_and(|g| g.riders.contains(&gang.key)), "{gang:#?}");
                prop_assert!(gang.members.len() <= 1, "{gang:#?}");
                // What runs on when its gang has ended rides on a job that is over.
                let on = gang.members.values().find_map(|m| m.rides_on).map(|on| on.job);
                prop_assert!(below.is_some_and(|g| is_up(g) || (on.is_some() && on != g.job)),
                    "a pod rides on what does not run: {gang:#?}\n{below:#?}");
            }
        }
    }
}

#[test]
fn pods_beyond_those_a_gang_starts_with_follow_one_by_one_and_go_with_it() {
    let mut world = World::new("fifo-backfill:priority=true");
    // Two pods of four GPUs start it, and two more belong to it; there is room for three.
    let gang = "g2";
    world.sizes.insert(gang.to_owned(), 4);
    for _ in 0..4 {
        world.make_pod(gang, true, GPUS, 0);
    }
    world.settle();
    let bound = |world: &World| {
        let there = world
            .pods
            .values()
            .filter(|p| !is_over(p) && !p.spec.node_name.is_empty());
        there
            .map(|p| p.metadata.annotations.get("dovetail.io/rides-on").cloned())
            .collect::<Vec<_>>()
    };
    let riders = |world: &World| bound(world).into_iter().flatten().count();
    assert_eq!((bound(&world).len(), riders(&world)), (3, 1));
    // The one that waits stands in line under the name of the gang.
    let jobs = || {
        world
            .state
            .jobs()
            .map(|j| (j.request.name.clone(), j.state.holds_gpus()))
    };
    let named: Vec<(String, bool)> = jobs().collect();
    assert_eq!(named[0], ("ns/g2".to_owned(), true));
    assert!(
        named[1..].iter().all(|(name, _)| name.starts_with("ns/g2 + ")),
        "{named:?}"
    );
    assert_eq!(named.iter().filter(|(_, up)| *up).count(), 2, "{named:?}");

    // After a restart it is the same.
    world.crash();
    world.settle();
    assert_eq!((bound(&world).len(), riders(&world)), (3, 1));

    // Its owner stops it: the rider goes with it, and what is made in their place starts as before.
    let before: BTreeSet<String> = world
        .pods
        .values()
        .filter(|p| !p.spec.node_name.is_empty())
        .map(|p| p.metadata.uid.clone())
        .collect();
    let job = world.state.jobs().find(|j| j.request.name == "ns/g2").unwrap().id;
    world.with(|_, desk| {
        desk.record(Fact::Cancelled {
            job,
            by: Actor::user("alice"),
        });
    });
    assert_eq!(
        world
            .pending
            .iter()
            .filter(|a| matches!(a, Action::Remove { .. }))
            .count(),
        3
    );
    world.settle();
    assert!(
        before.iter().all(|uid| !world.pods.contains_key(uid)),
        "{before:?}"
    );
    assert_eq!((bound(&world).len(), riders(&world)), (3, 1));
}

/// A job that is sent before its pods are there.
fn announce(world: &mut World, job: JobId, gpus: u32) {
    let request = JobRequest {
        name: format!("job-{job}"),
        command: vec!["train".to_owned()],
        gpus,
        gpus_per_task: GPUS,
        ..JobRequest::default()
    };
    world.with(|_, desk| {
        desk.record(Fact::Announced {
            job,
            user: "alice".to_owned(),
            request: Box::new(request.with_external_workload()),
            key: None,
        });
    });
}

/// A pod of four GPUs of such a job.
fn sent_pod(world: &mut World, gang: &str, size: u32, number: JobId, user: &str) {
    world.made += 1;
    let i = world.made;
    let pod = json!({"metadata": {"name": format!("{gang}-{i}"), "namespace": "ns", "uid": format!("uid-{i}"),
            "creationTimestamp": "2026-11-17T00:00:00Z", "annotations": {"dovetail.io/gang": gang,
            "dovetail.io/gang-size": size.to_string(), "dovetail.io/number": number.to_string(),
            "dovetail.io/user": user, "dovetail.io/job-name": format!("job-{number}")}},
        "status": {"phase": "Pending"}, "spec": {"schedulerName": "dovetail",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": GPUS.to_string()}}}]}});
    world.put(serde_json::from_value(pod).unwrap());
}

#[test]
fn jobs_that_were_sent_are_the_same_jobs_after_a_restart() {
    let mut world = World::new("fifo-backfill");
    announce(&mut world, 1, 3 * GPUS);
    announce(&mut world, 2, GPUS);
    for _ in 0..2 {
        sent_pod(&mut world, "one", 3, 1, "alice");
    }
    // Somebody else's pod is not this job, whatever it says.
    sent_pod(&mut world, "thief", 1, 1, "mallory");
    sent_pod(&mut world, "two", 1, 2, "alice");
    while !world.pending.is_empty() {
        world.deliver(0);
    }
    let states = |world: &World| [1, 2].map(|no| world.state.job(no).unwrap().state.clone());
    assert!(
        matches!(states(&world), [JobState::Held(_), JobState::Starting]),
        "{:?}",
        states(&world)
    );
    // The one that came first is whole last, when there is no room for it any more.
    sent_pod(&mut world, "one", 3, 1, "alice");
    assert!(
        matches!(states(&world), [JobState::Queued, JobState::Starting]),
        "{:?}",
        states(&world)
    );
    assert_eq!(world.state.next_job(), 3, "nobody was given another number");
    world.crash();
    assert!(
        matches!(states(&world), [JobState::Queued, JobState::Starting]),
        "{:?}",
        states(&world)
    );
    let first = world.state.job(1).unwrap();
    assert_eq!(
        (first.user.as_str(), first.request.name.as_str()),
        ("alice", "job-1")
    );

    // A job that its owner has ended stays ended, whatever is still made of it.
    world.with(|_, desk| {
        desk.record(Fact::Cancelled {
            job: 1,
            by: Actor::user("alice"),
        });
    });
    sent_pod(&mut world, "one", 3, 1, "alice");
    assert!(world.state.job(1).unwrap().state.has_ended());
    assert_eq!(world.state.next_job(), 3);
}

#[test]
fn a_gang_of_which_pods_are_done_comes_back_with_the_others() {
    for dies in [false, true] {
        let mut world = World::new("fifo-backfill:priority=true");
        // Three pods of four GPUs on three nodes: all there is.
        world.sizes.insert("g0".to_owned(), 3);
        for _ in 0..3 {
            world.make_pod("g0", true, GPUS, 0);
        }
        let deliver = |world: &mut World| {
            while !world.pending.is_empty() {
                world.deliver(0);
            }
        };
        deliver(&mut world);
        let uids: Vec<String> = world.pods.keys().cloned().collect();
        for (i, uid) in uids.iter().enumerate() {
            let mut pod = world.pods[uid].clone();
            pod.status.phase = "Running".to_owned();
            world.put(pod.clone());
            if i == 0 {
                pod.status.phase = "Succeeded".to_owned();
                world.put(pod);
            }
        }
        // The others are deleted, and their Job makes two in their place, since one is done.
        for uid in &uids[1..] {
            let mut pod = world.pods[uid].clone();
            pod.metadata.deletion_timestamp = Some("2026-11-17T00:00:00Z".to_owned());
            world.put(pod);
        }
        for uid in &uids[1..] {
            world.remove(uid);
        }
        if dies {
            world.crash();
        }
        deliver(&mut world);
        let bound = world
            .pods
            .values()
            .filter(|p| !p.spec.node_name.is_empty() && !is_over(p));
        assert_eq!(
            bound.count(),
            2,
            "dies: {dies}\n{:#?}",
            world.reconciler.gangs().collect::<Vec<_>>()
        );
    }
}
