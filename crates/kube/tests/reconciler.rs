//! The reconciler over random histories of a simulated API server: pods are bound once, requests arrive late, the scheduler
//! crashes at any moment, and controllers recreate pods.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/resized.rs"]
mod resized;
#[path = "support/transaction.rs"]
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dovetail_cluster::{
    Actor, Clock, ClusterState, Fact, Hold, JobId, JobRequest, JobState, PolicyText, RuntimeCommand,
};
use dovetail_kube::{
    Action, ClusterFeatures, ClusterTransaction, Gang, GangHistory, PodProgress, QueuedAs, Reconciler,
    ResizePod, Service, Settings,
};
use dovetail_kubeapi::{Node, Pod, cpu_milli};
use dovetail_model::Time;
use proptest::prelude::*;
use resized::resized;
use serde_json::json;
use transaction::TestTransaction;

/// Earliest creation of pods.
const CREATED: i64 = 1_794_873_600_000_000;
const NODES: u32 = 3;
const GPUS: u32 = 4;
const CORES: u32 = 64;

/// An API server, nodes, and a scheduler.
struct World {
    policy: String,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeSet<u32>,
    sizes: BTreeMap<String, u32>,
    /// Histories of gangs, by path.
    histories: BTreeMap<String, GangHistory>,
    /// Annotations of the pods of a gang.
    stated: BTreeMap<String, serde_json::Value>,
    made: u32,
    now: i64,
    state: ClusterState,
    reconciler: Reconciler,
    /// Actions that have not reached the API server.
    pending: Vec<Action>,
}

fn node(i: u32) -> Node {
    let amounts = json!({"cpu": CORES.to_string(), "memory": "256Gi", "nvidia.com/gpu": GPUS.to_string()});
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
            histories: BTreeMap::new(),
            stated: BTreeMap::new(),
            made: 0,
            now: 1_000_000,
            state,
            reconciler,
            pending: Vec::new(),
        };
        world.list();
        world
    }

    /// Replaces the scheduler by one that only knows the objects. Pending actions are lost.
    fn crash(&mut self) {
        self.pending.clear();
        (self.state, self.reconciler) = scheduler(&self.policy);
        let histories = self.histories.values().cloned().collect();
        self.reconciler.set_histories(histories);
        self.list();
    }

    fn list(&mut self) {
        let nodes: Vec<Node> = self.nodes.iter().map(|i| node(*i)).collect();
        let pods: Vec<Pod> = self.pods.values().cloned().collect();
        self.with(|reconciler, tx| {
            reconciler.list_nodes(&nodes, tx);
            reconciler.list_pods(&pods, tx);
        });
    }

    fn with(&mut self, work: impl FnOnce(&mut Reconciler, &mut TestTransaction<'_>)) {
        self.now += 1_000;
        let now = Time(self.now);
        work(
            &mut self.reconciler,
            &mut TestTransaction {
                state: &mut self.state,
                now,
            },
        );
        loop {
            let commands = self.state.take_commands();
            if commands.is_empty() {
                break;
            }
            let mut tx = TestTransaction {
                state: &mut self.state,
                now,
            };
            for (_, command) in commands {
                match command {
                    RuntimeCommand::Start(task) => self.reconciler.start(task.job, task.attempt, &mut tx),
                    RuntimeCommand::Stop { job, attempt, .. } => self.reconciler.stop(job, attempt, &mut tx),
                    RuntimeCommand::Resize { job, .. } => self.reconciler.resize(job, &mut tx),
                }
            }
        }
        let actions = self.reconciler.take_actions();
        self.pending.extend(actions);
        self.state.check().unwrap();
        self.check();
    }

    /// Checks that no GPU has two pods, and that the pods of a node have no more CPU than it has.
    fn check(&self) {
        let (mut used, mut cpu) = (BTreeSet::new(), BTreeMap::new());
        for pod in self
            .pods
            .values()
            .filter(|p| !p.spec.node_name.is_empty() && !has_ended(p))
        {
            let on_node: &mut u32 = cpu.entry(&pod.spec.node_name).or_default();
            let limits = &pod.spec.containers[0].resources.limits;
            *on_node += limits.get("cpu").map_or(0, |cpu| cpu_milli(cpu).unwrap());
            assert!(
                *on_node <= CORES * 1000,
                "pods on {} have {on_node}m",
                pod.spec.node_name
            );
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
        self.with(|reconciler, tx| reconciler.put_pod(&pod, tx));
    }

    fn make_pod(&mut self, gang: &str, owned: bool, gpus: u32, priority: i32) {
        self.made += 1;
        let i = self.made;
        let mut meta = json!({"name": format!("{gang}-{i}"), "namespace": "ns", "uid": format!("uid-{i}"),
            "creationTimestamp": dovetail_kubeapi::seconds_time(self.now.max(CREATED))});
        let size = self.sizes[gang];
        if let Some(min_pods) = min_pods_of(gang, size) {
            meta["annotations"] = json!({"dovetail.io/gang-min": min_pods.to_string()});
        }
        if let Some(stated) = self.stated.get(gang) {
            meta["annotations"] = stated.clone();
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
        self.make_named_gang(&gang, size, (owned, gpus, priority));
    }

    fn make_named_gang(&mut self, gang: &str, size: u32, (owned, gpus, priority): (bool, u32, i32)) {
        self.sizes.insert(gang.to_owned(), size);
        for _ in 0..size {
            self.make_pod(gang, owned, gpus, priority);
        }
    }

    /// Deletes a pod; its controller creates another one.
    fn remove(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.with(|reconciler, tx| reconciler.delete_pod(&pod, tx));
        if let Some(owner) = pod.metadata.controller().cloned().filter(|_| !has_ended(&pod)) {
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
                            self.with(|reconciler, tx| reconciler.bind_failed(&bind.pod.uid, tx));
                        }
                        return;
                    };
                    let mut pod = pod;
                    pod.metadata
                        .annotations
                        .insert("dovetail.io/plan".to_owned(), plan);
                    self.put(pod);
                }
                // Each binding is one request.
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
            Action::LookUpSize { gang, .. } => {
                let size = self.sizes[&gang.name];
                self.with(|reconciler, tx| reconciler.set_size(&gang, Ok(size), tx));
            }
            Action::SaveHistory { history, then } => {
                self.histories.insert(history.path(), *history);
                self.pending.extend(then);
            }
            Action::DeleteHistory { gang } => self.histories.retain(|_, history| history.key() != gang),
            Action::StopOwner { .. }
            | Action::Explain { .. }
            | Action::GroupStatus { .. }
            | Action::Warn { .. } => {}
            Action::Resize(resize) => self.resize(&resize),
        }
    }

    fn bind(&mut self, action: Action) {
        let Action::Launch { binds, .. } = action else {
            return;
        };
        for mut bind in binds {
            if let Some(resize) = bind.resize.take() {
                self.resize(&resize);
            }
            let is_unbound =
                |p: &&Pod| p.spec.node_name.is_empty() && p.metadata.deletion_timestamp.is_none();
            match self.pods.get(&bind.pod.uid).filter(is_unbound).cloned() {
                Some(mut pod) => {
                    if let Some(zone) = pod.spec.node_selector.get("zone") {
                        assert!(
                            bind.node.ends_with(zone.as_str()),
                            "{} must run on n{zone}",
                            pod.metadata.name
                        );
                    }
                    pod.spec.node_name = bind.node;
                    for (key, value) in bind.annotations {
                        pod.metadata.annotations.insert(key.to_owned(), value);
                    }
                    self.put(pod);
                }
                None => self.with(|reconciler, tx| reconciler.bind_failed(&bind.pod.uid, tx)),
            }
        }
    }

    /// Changes a pod, if it still exists.
    fn resize(&mut self, resize: &ResizePod) {
        let uid = &resize.pod.uid;
        let Some(pod) = self.pods.get(uid).cloned() else {
            return;
        };
        self.put(resized(&pod, resize));
        self.with(|reconciler, tx| reconciler.resized(uid, resize.target, Ok(()), tx));
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
                        self.with(|reconciler, tx| reconciler.delete_node(&name, tx));
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
                        self.with(|reconciler, tx| reconciler.put_node(&node, tx));
                    }
                }
            }
            _ => self.list(),
        }
    }

    /// Delivers all actions and deletes all pods that are being deleted.
    fn settle(&mut self) {
        for round in 0..2_000 {
            if let Some(pod) = self.some_pod(0, |p| p.metadata.deletion_timestamp.is_some()) {
                self.remove(&pod.metadata.uid);
            } else if !self.pending.is_empty() {
                self.deliver(0);
            } else {
                return;
            }
            assert!(round < 1_999, "actions do not end");
        }
    }
}

/// Returns a scheduler with a policy, and with a sizing that follows after a slash.
fn scheduler(policy: &str) -> (ClusterState, Reconciler) {
    let (policy, sizing) = policy
        .split_once('/')
        .map_or((policy, None), |(p, s)| (p, Some(s)));
    let part = |sizing: &str| ("sizing".to_owned(), sizing.to_owned());
    let text = PolicyText {
        policy: policy.to_owned(),
        parts: sizing.map(part).into_iter().collect(),
    };
    let features = match sizing {
        Some(_) => ClusterFeatures::ALL,
        None => ClusterFeatures::NONE,
    };
    let state = ClusterState::new(text, Clock::Events).unwrap();
    let state = state.on(features.capabilities()).unwrap();
    (state, Reconciler::new(Settings::default(), features))
}

/// Some gangs may run on one node only; nodes are labelled with their numbers.
fn zone_of(gang: &str) -> Option<String> {
    let number: u32 = gang[1..].parse().unwrap();
    (number % 4 == 3).then(|| (number / 4 % NODES).to_string())
}

/// Some gangs start with half of their pods.
fn min_pods_of(gang: &str, size: u32) -> Option<u32> {
    let number: u32 = gang[1..].parse().unwrap();
    (number % 3 == 2).then(|| size.div_ceil(2))
}

fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

proptest! {
    #![proptest_config(dovetail_testkit::any::cases(600))]

    #[test]
    fn no_gpu_has_two_pods_and_gangs_are_complete(
        policy in prop::sample::select(vec!["fifo-backfill:priority=true", "drf", "tiresias", "las", "themis",
            "las/proportional", "fifo-backfill:priority=true/proportional"]),
        steps in prop::collection::vec((0_u8..15, any::<usize>()), 1..120),
    ) {
        let mut world = World::new(policy);
        for (what, pick) in steps {
            world.step(what, pick);
        }
        world.settle();
        for gang in world.reconciler.gangs() {
            let bound = gang.members.values().filter(|m| m.occupies_node()).count();
            let waiting = gang.waiting().len();
            let vacant = gang.slots.iter().filter(|s| s.pod.is_none()).count();
            // A deleted pod without a controller leaves a slot that stays vacant.
            prop_assert!(bound == 0 || waiting == 0 || vacant == 0 || gang.slots.len() != bound + waiting,
                "gang {} is half bound: {bound} pods bound, {waiting} waiting, {vacant} slots vacant, its job is {:?}\n{gang:#?}",
                gang.key, gang.job.and_then(|id| world.state.job(id)).map(|job| &job.state));
            if bound > 0 && waiting > 0 {
                prop_assert!(gang.slots.len() == bound, "gang {} is half bound: {gang:#?}", gang.key);
            }
            // Waiting pods of a running gang are queued as elastic pods.
            let is_active = |gang: &Gang| gang.job.and_then(|id| world.state.job(id)).is_some_and(|job| job.state.holds_gpus());
            let room = gang.size.map_or(0, |size| if size.min_pods < size.pods { size.pods as usize } else { 0 });
            prop_assert!(!is_active(gang) || waiting == 0 || gang.slots.len() + gang.elastic.len() >= room,
                "pods of {} are not queued: {gang:#?}", gang.key);
            if let Some(parent) = &gang.parent {
                let parent = world.reconciler.gangs().find(|g| g.key == *parent);
                prop_assert!(parent.is_some_and(|g| g.elastic.contains(&gang.key)), "{gang:#?}");
                prop_assert!(gang.members.len() <= 1, "{gang:#?}");
                // An elastic pod may outlive the job of its gang.
                let beside = gang.members.values().find_map(|m| m.elastic_of).map(|parent| parent.job);
                prop_assert!(parent.is_some_and(|g| is_active(g) || (beside.is_some() && beside != g.job)),
                    "an elastic pod runs without its gang: {gang:#?}\n{parent:#?}");
            }
        }
    }
}

#[test]
fn elastic_pods_start_one_by_one_and_stop_with_their_gang() {
    let mut world = World::new("fifo-backfill:priority=true");
    // The gang starts with two pods of four GPUs and has two elastic pods; there is room for three pods.
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
            .filter(|p| !has_ended(p) && !p.spec.node_name.is_empty());
        there
            .map(|p| p.metadata.annotations.get("dovetail.io/rides-on").cloned())
            .collect::<Vec<_>>()
    };
    let elastic = |world: &World| bound(world).into_iter().flatten().count();
    assert_eq!((bound(&world).len(), elastic(&world)), (3, 1));
    // The waiting elastic pod is queued under the name of the gang.
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
    assert_eq!(named.iter().filter(|(_, active)| *active).count(), 2, "{named:?}");

    // A restart changes nothing.
    world.crash();
    world.settle();
    assert_eq!((bound(&world).len(), elastic(&world)), (3, 1));

    // A user stops the gang: the elastic pod stops with it, and the recreated pods start as before.
    let before: BTreeSet<String> = world
        .pods
        .values()
        .filter(|p| !p.spec.node_name.is_empty())
        .map(|p| p.metadata.uid.clone())
        .collect();
    let job = world.state.jobs().find(|j| j.request.name == "ns/g2").unwrap().id;
    world.with(|_, tx| {
        tx.record(Fact::Cancelled {
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
    assert_eq!((bound(&world).len(), elastic(&world)), (3, 1));
}

/// Announces a job before its pods exist.
fn announce(world: &mut World, job: JobId, gpus: u32) {
    let request = JobRequest {
        name: format!("job-{job}"),
        command: vec!["train".to_owned()],
        gpus,
        gpus_per_task: GPUS,
        ..JobRequest::default()
    };
    world.with(|_, tx| {
        tx.record(Fact::Announced {
            job,
            user: "alice".to_owned(),
            request: Arc::new(request.with_external_workload()),
            key: None,
        });
    });
}

/// Creates a pod of four GPUs of an announced job.
fn announced_pod(world: &mut World, gang: &str, size: u32, number: JobId, user: &str) {
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
fn announced_jobs_keep_their_ids_after_a_restart() {
    let mut world = World::new("fifo-backfill");
    announce(&mut world, 1, 3 * GPUS);
    announce(&mut world, 2, GPUS);
    for _ in 0..2 {
        announced_pod(&mut world, "one", 3, 1, "alice");
    }
    // A pod of another user does not join the job.
    announced_pod(&mut world, "thief", 1, 1, "mallory");
    announced_pod(&mut world, "two", 1, 2, "alice");
    while !world.pending.is_empty() {
        world.deliver(0);
    }
    let states = |world: &World| [1, 2].map(|id| world.state.job(id).unwrap().state.clone());
    assert!(
        matches!(states(&world), [JobState::Held(_), JobState::Starting]),
        "{:?}",
        states(&world)
    );
    // The first gang is complete last, when there is no room for it.
    announced_pod(&mut world, "one", 3, 1, "alice");
    assert!(
        matches!(states(&world), [JobState::Queued, JobState::Starting]),
        "{:?}",
        states(&world)
    );
    assert_eq!(world.state.next_job(), 3, "no job got another id");
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

    // A cancelled job stays cancelled when its controller creates more pods.
    world.with(|_, tx| {
        tx.record(Fact::Cancelled {
            job: 1,
            by: Actor::user("alice"),
        });
    });
    announced_pod(&mut world, "one", 3, 1, "alice");
    assert!(world.state.job(1).unwrap().state.has_ended());
    assert_eq!(world.state.next_job(), 3);
}

#[test]
fn a_gang_with_succeeded_pods_restarts_with_the_others() {
    for crashes in [false, true] {
        let mut world = World::new("fifo-backfill:priority=true");
        // Three pods of four GPUs fill all three nodes.
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
        // The others are deleted, and their Job recreates two, because one has succeeded.
        for uid in &uids[1..] {
            let mut pod = world.pods[uid].clone();
            pod.metadata.deletion_timestamp = Some("2026-11-17T00:00:00Z".to_owned());
            world.put(pod);
        }
        for uid in &uids[1..] {
            world.remove(uid);
        }
        if crashes {
            world.crash();
        }
        deliver(&mut world);
        let bound = world
            .pods
            .values()
            .filter(|p| !p.spec.node_name.is_empty() && !has_ended(p));
        assert_eq!(
            bound.count(),
            2,
            "crashes: {crashes}\n{:#?}",
            world.reconciler.gangs().collect::<Vec<_>>()
        );
    }
}

#[test]
fn pods_of_earlier_versions_are_adopted_after_an_upgrade() {
    let mut world = World::new("fifo-backfill");
    world.make_gang(2, true, GPUS, 0);
    world.settle();
    let nodes = |world: &World| {
        let pods = world.pods.values();
        pods.map(|p| p.spec.node_name.clone()).collect::<Vec<_>>()
    };
    let before = nodes(&world);
    assert!(before.iter().all(|node| !node.is_empty()), "{before:?}");
    // Earlier versions wrote the attempt under another name, in the plan and in an annotation.
    for pod in world.pods.values_mut() {
        pod.status.phase = "Running".to_owned();
        let annotations = &mut pod.metadata.annotations;
        let attempt = annotations.remove("dovetail.io/attempt").unwrap();
        annotations.insert("dovetail.io/launch".to_owned(), attempt);
        if let Some(plan) = annotations.get_mut("dovetail.io/plan") {
            *plan = plan.replace("\"attempt\"", "\"launch\"");
        }
    }
    world.crash();
    world.settle();
    assert_eq!(nodes(&world), before);
    let job = world.state.job(1).unwrap();
    assert_eq!(job.state, JobState::Running);
}

/// Lets the kubelet reject a pod.
fn reject(world: &mut World, uid: &str) -> String {
    let mut pod = world.pods[uid].clone();
    pod.status.phase = "Failed".to_owned();
    pod.status.reason = "OutOfpods".to_owned();
    pod.status.message = "Node didn't have enough resource: pods".to_owned();
    let node = pod.spec.node_name.clone();
    world.put(pod);
    node
}

fn job_of(world: &World, gang: &str) -> JobId {
    let mut gangs = world.reconciler.gangs();
    gangs.find(|g| g.key.name == gang).unwrap().job.unwrap()
}

fn bound_pods(world: &World) -> Vec<&Pod> {
    let pods = world.pods.values();
    pods.filter(|p| !p.spec.node_name.is_empty() && !has_ended(p))
        .collect()
}

#[test]
fn a_gang_avoids_the_node_that_rejected_its_pod() {
    let mut world = World::new("fifo-backfill");
    world.make_gang(2, true, GPUS, 0);
    world.settle();
    let first = bound_pods(&world)[0].metadata.uid.clone();
    let node = reject(&mut world, &first);
    // The Job controller replaces the rejected pod.
    world.make_pod("g0", true, GPUS, 0);
    world.settle();
    let bound = bound_pods(&world);
    assert_eq!(
        bound.len(),
        2,
        "{:#?}",
        world.reconciler.gangs().collect::<Vec<_>>()
    );
    assert!(
        bound.iter().all(|p| p.spec.node_name != node),
        "{node} is used again"
    );
    let gang = world.reconciler.gangs().next().unwrap();
    let avoided: Vec<&str> = gang.avoided.values().map(|n| n.reason.as_str()).collect();
    assert_eq!(avoided.len(), 1);
    assert!(
        avoided[0].starts_with(&format!("node {node} rejected pod g0-")) && avoided[0].contains("OutOfpods"),
        "{avoided:?}"
    );
    assert_eq!(world.state.next_job(), 2, "the gang keeps its job");
}

#[test]
fn a_rejecting_node_is_used_again_after_a_while() {
    let mut world = World::new("fifo-backfill");
    // Three pods need all three nodes.
    world.make_gang(3, true, GPUS, 0);
    world.settle();
    let first = bound_pods(&world)[0].metadata.uid.clone();
    reject(&mut world, &first);
    world.make_pod("g0", true, GPUS, 0);
    world.settle();
    assert_eq!(bound_pods(&world).len(), 0, "two nodes are not enough");
    let expire = |world: &mut World| {
        let now = Time(world.now);
        world.with(|reconciler, tx| {
            reconciler.expire(now, Time::from_secs(86_400), tx);
            reconciler.retry_refused(tx);
        });
        world.settle();
    };
    expire(&mut world);
    assert_eq!(bound_pods(&world).len(), 0, "the node is still avoided");
    world.now += Time::from_secs(601).0;
    expire(&mut world);
    assert_eq!(bound_pods(&world).len(), 3);
}

#[test]
fn a_rejected_pod_without_controller_fails_its_job_with_the_reason() {
    let mut world = World::new("fifo-backfill");
    world.sizes.insert("g0".to_owned(), 1);
    world.make_pod("g0", false, 1, 0);
    world.settle();
    let uid = bound_pods(&world)[0].metadata.uid.clone();
    let node = reject(&mut world, &uid);
    let JobState::Ended(end) = &world.state.job(1).unwrap().state else {
        panic!("the job still runs");
    };
    let expected = format!("node {node} rejected pod ns/g0-1: OutOfpods");
    assert!(end.sentence().contains(&expected), "{end:?}");
}

#[test]
fn a_job_is_cancelled_when_its_pods_are_not_recreated() {
    let mut world = World::new("fifo-backfill");
    announce(&mut world, 1, GPUS);
    let timeout = Time::from_secs(3600);
    let expire = |world: &mut World| {
        let now = Time(world.now);
        world.with(|reconciler, tx| reconciler.expire(now, timeout, tx));
    };
    world.now += Time::from_secs(3590).0;
    expire(&mut world);
    assert!(!world.state.job(1).unwrap().state.has_ended());
    world.now += Time::from_secs(60).0;
    expire(&mut world);
    let JobState::Ended(end) = &world.state.job(1).unwrap().state else {
        panic!("the job still waits");
    };
    assert!(end.sentence().contains("not recreated within 1 h"), "{end:?}");
    // Pods that appear later are submitted as another job.
    announced_pod(&mut world, "one", 1, 1, "alice");
    assert_eq!(world.state.job(2).unwrap().state, JobState::Starting);
}

/// First moment of a script: the pods of it are created later than others.
const SCRIPT_START: i64 = 1_800_000_000_000_000;

/// A gang as two leaders must see it.
#[derive(Debug, PartialEq)]
struct GangView {
    gang: String,
    is_active: bool,
    submitted: Time,
    service: Service,
}

impl World {
    /// Lets everything happen that is due: requests arrive, pods run, deleted pods go and are created again.
    fn run_until_quiet(&mut self) {
        for _ in 0..100 {
            while !self.pending.is_empty() {
                self.deliver(0);
            }
            let starting = |p: &&Pod| !p.spec.node_name.is_empty() && p.status.phase == "Pending";
            let deleted = |p: &&Pod| p.metadata.deletion_timestamp.is_some();
            if let Some(mut pod) = self.some_pod(0, |p| starting(p) && !deleted(p)) {
                pod.status.phase = "Running".to_owned();
                pod.status.start_time = Some(dovetail_kubeapi::seconds_time(self.now));
                self.put(pod);
            } else if let Some(pod) = self.some_pod(0, deleted) {
                self.remove(&pod.metadata.uid);
            } else {
                return;
            }
        }
        panic!("the cluster never comes to rest");
    }

    /// Lets the pods of gangs succeed that have run for as long as they expected.
    fn complete_gangs(&mut self) {
        let now = Time(self.now);
        let is_done = |gang: &&Gang| {
            let job = gang.job.and_then(|job| self.state.job(job)).unwrap();
            job.service(now).held >= job.request.expected.unwrap()
        };
        let gangs = self.reconciler.gangs().filter(|gang| gang.job.is_some());
        let done: Vec<String> = gangs.filter(is_done).map(|gang| gang.key.name.clone()).collect();
        for name in done {
            let is_of = |p: &Pod| p.metadata.controller().is_some_and(|owner| owner.name == name);
            let pods: Vec<Pod> = self
                .pods
                .values()
                .filter(|p| is_of(p) && !has_ended(p))
                .cloned()
                .collect();
            for mut pod in pods {
                pod.status.phase = "Succeeded".to_owned();
                self.put(pod);
            }
        }
    }

    /// Wakes the engine if it is due.
    fn wake(&mut self) {
        let now = Time(self.now);
        self.with(|_, tx| {
            if tx.state.wake_at().is_some_and(|at| at <= now) {
                tx.record(Fact::Woke);
            }
        });
        self.run_until_quiet();
    }

    /// Writes on waiting pods what the explanation of a leader writes there.
    fn note_queued(&mut self) {
        for pod in self.pods.values_mut() {
            let owner = pod.metadata.controller().map(|owner| owner.name.clone());
            let gang = self
                .reconciler
                .gangs()
                .find(|g| Some(&g.key.name) == owner.as_ref());
            let job = gang.and_then(|gang| self.state.job(gang.job?));
            if let Some(job) = job.filter(|job| job.state == JobState::Queued) {
                let queued = QueuedAs {
                    job: u32::try_from(job.id).unwrap(),
                    submitted: job.submitted.0,
                    since: job.waiting_since().unwrap().0,
                    pods: 3,
                    min_pods: 3,
                };
                let text = serde_json::to_string(&queued).unwrap();
                pod.metadata
                    .annotations
                    .insert("dovetail.io/queued".to_owned(), text);
            }
        }
    }

    /// Returns all gangs with a job at this moment, by name.
    fn seen(&self, now: i64) -> Vec<GangView> {
        let gangs = self.reconciler.gangs().filter(|gang| gang.job.is_some());
        let one = |gang: &Gang| {
            let job = self.state.job(gang.job.unwrap()).unwrap();
            GangView {
                gang: gang.key.name.clone(),
                is_active: job.state.holds_gpus(),
                submitted: job.submitted,
                service: job.service(Time(now)).into(),
            }
        };
        let mut seen: Vec<GangView> = gangs.map(one).collect();
        seen.sort_by(|a, b| a.gang.cmp(&b.gang));
        seen
    }
}

/// Runs gangs that need all GPUs, one every minute, and returns what is seen after every half minute. The leader is replaced
/// after these half minutes.
fn run_script(policy: &str, crashes: &[i64]) -> Vec<Vec<GangView>> {
    let mut world = World::new(policy);
    world.now = SCRIPT_START;
    let mut all = Vec::new();
    for round in 0..24 {
        world.now = SCRIPT_START + round * 30_000_000;
        if round % 2 == 0 && round < 8 {
            let gang = ["g0", "g1", "g4", "g5"][(round / 2) as usize].to_owned();
            let expected = ["700", "90", "400", "30"][(round / 2) as usize];
            world
                .stated
                .insert(gang.clone(), json!({"dovetail.io/expected-seconds": expected}));
            world.make_named_gang(&gang, 3, (true, GPUS, 0));
        }
        world.complete_gangs();
        world.wake();
        world.now = SCRIPT_START + round * 30_000_000 + 25_000_000;
        world.wake();
        world.note_queued();
        all.push(world.seen(SCRIPT_START + round * 30_000_000 + 29_000_000));
        if crashes.contains(&round) {
            world.crash();
            world.run_until_quiet();
        }
    }
    all
}

#[test]
fn a_new_leader_continues_exactly() {
    // No quantum ends at a multiple of five seconds, when things happen: a crash is a moment to decide.
    for policy in ["las:quantum=61", "tiresias:limits=240", "srtf", "srsf"] {
        let undisturbed = run_script(policy, &[]);
        let attempts = undisturbed.iter().flatten().map(|seen| seen.service.attempts);
        assert!(attempts.max() > Some(1), "{policy}: no gang was preempted");
        for crashes in [&[5][..], &[9, 10, 15], &[1, 3, 6, 12, 20]] {
            let disturbed = run_script(policy, crashes);
            for (round, (before, after)) in undisturbed.iter().zip(&disturbed).enumerate() {
                assert_eq!(
                    before, after,
                    "{policy}, crashes {crashes:?}, half minute {round}"
                );
            }
        }
    }
}

/// A gang that was preempted, and then got the GPUs back while its pods did not exist.
fn preempted_without_pods() -> (World, JobId) {
    let mut world = World::new("srtf");
    world.now = SCRIPT_START;
    for (gang, expected) in [("g0", "700"), ("g1", "90")] {
        let stated = json!({"dovetail.io/expected-seconds": expected});
        world.stated.insert(gang.to_owned(), stated);
        world.make_named_gang(gang, 3, (true, GPUS, 0));
        while !world.pending.is_empty() {
            world.deliver(0);
        }
    }
    let of_gang = |world: &World, gang: &str| -> Vec<Pod> {
        let pods = world.pods.values();
        pods.filter(|p| p.metadata.name.starts_with(gang))
            .cloned()
            .collect()
    };
    for pod in of_gang(&world, "g0") {
        assert!(pod.metadata.deletion_timestamp.is_some(), "it is not preempted");
        world.pods.remove(&pod.metadata.uid);
        world.with(|reconciler, tx| reconciler.delete_pod(&pod, tx));
    }
    world.run_until_quiet();
    let job = job_of(&world, "g0");
    assert_eq!(world.state.job(job).unwrap().state, JobState::Queued);
    for mut pod in of_gang(&world, "g1") {
        pod.status.phase = "Succeeded".to_owned();
        world.put(pod);
    }
    assert_eq!(world.state.job(job).unwrap().state, JobState::Starting);
    (world, job)
}

#[test]
fn a_preempted_gang_gets_gpus_before_its_pods_are_recreated() {
    let (mut world, job) = preempted_without_pods();
    let bound = |world: &World| {
        let pods = world.pods.values().filter(|p| p.metadata.name.starts_with("g0"));
        pods.filter(|p| !p.spec.node_name.is_empty()).count()
    };
    for _ in 0..2 {
        world.make_pod("g0", true, GPUS, 0);
        world.run_until_quiet();
        assert_eq!(bound(&world), 0, "a part of the gang is bound");
    }
    world.make_pod("g0", true, GPUS, 0);
    world.run_until_quiet();
    assert_eq!(bound(&world), 3);
    let record = world.state.job(job).unwrap();
    assert_eq!((&record.state, record.attempts.len()), (&JobState::Running, 2));
}

#[test]
fn gpus_are_not_held_for_pods_that_are_not_recreated() {
    let (mut world, job) = preempted_without_pods();
    let expire = |world: &mut World, seconds: i64| {
        world.now += seconds * 1_000_000;
        let now = Time(world.now);
        world.with(|reconciler, tx| reconciler.expire(now, Time::from_secs(3600), tx));
        world.state.job(job).unwrap().state.clone()
    };
    assert_eq!(expire(&mut world, 25), JobState::Starting);
    assert_eq!(expire(&mut world, 10), JobState::Held(Hold::Workload));
    assert!(world.state.engine().jobs().all(|job| !job.holds_gpus()));
    for _ in 0..3 {
        world.make_pod("g0", true, GPUS, 0);
    }
    world.run_until_quiet();
    assert_eq!(world.state.job(job).unwrap().state, JobState::Running);
}

#[test]
fn a_user_stops_a_gang_that_has_gpus_and_no_pods() {
    let (mut world, job) = preempted_without_pods();
    world.with(|_, tx| {
        tx.record(Fact::Cancelled {
            job,
            by: Actor::user("ann"),
        });
    });
    let stops_job = |action: &Action| matches!(action, Action::StopOwner { job, .. } if job == "g0");
    assert!(world.pending.iter().any(stops_job), "{:?}", world.pending);
    assert!(world.state.job(job).unwrap().state.has_ended());
    assert!(world.state.engine().jobs().next().is_none());
}

#[test]
fn pods_that_are_recreated_with_other_resources_are_placed_again() {
    let (mut world, job) = preempted_without_pods();
    for _ in 0..3 {
        world.make_pod("g0", true, GPUS - 1, 0);
    }
    world.run_until_quiet();
    let record = world.state.job(job).unwrap();
    assert_eq!(
        (&record.state, record.request.gpus),
        (&JobState::Running, 3 * (GPUS - 1))
    );
}

#[test]
fn the_service_of_a_stopped_gang_is_written_before_its_pods_are_evicted() {
    let mut world = World::new("fifo-backfill:priority=true");
    world.now = SCRIPT_START;
    for (gang, priority) in [("g0", 0), ("g1", 5)] {
        world.make_named_gang(gang, 3, (true, GPUS, priority));
        world.run_until_quiet();
        if gang == "g0" {
            world.now += 600_000_000;
        }
    }
    // An operator stops it for the other one, as a policy that preempts does.
    let job = job_of(&world, "g0");
    let attempt = world.state.job(job).unwrap().last_attempt();
    world.with(|_, tx| {
        tx.record(Fact::AttemptAborted {
            job,
            attempt,
            reason: "stopped".to_owned(),
        });
    });
    assert!(
        matches!(&world.pending[..], [Action::SaveHistory { then, .. }] if then.len() == 3),
        "{:?}",
        world.pending
    );
    world.deliver(0);
    // The pods go, and the leader fails before it sees that.
    world.pending.clear();
    let pods: Vec<String> = world
        .pods
        .values()
        .filter(|p| p.metadata.name.starts_with("g0"))
        .map(|p| p.metadata.uid.clone())
        .collect();
    for uid in &pods {
        world.pods.remove(uid);
    }
    world.crash();
    for _ in 0..3 {
        world.make_pod("g0", true, GPUS, 0);
    }
    world.run_until_quiet();
    let seen = world.seen(world.now);
    let service = &seen.iter().find(|seen| seen.gang == "g0").unwrap().service;
    assert!(
        (600_000_000..601_000_000).contains(&service.held_us),
        "{service:?}"
    );
    assert_eq!(service.gpu_time_us, service.held_us * 12);
    assert_eq!(world.histories.len(), 1);
    // The history is deleted with the job.
    let job = job_of(&world, "g0");
    let cancelled = Fact::Cancelled {
        job,
        by: Actor::user("ann"),
    };
    world.with(|_, tx| tx.record(cancelled));
    let uid = |p: &Pod| p.metadata.name.starts_with("g0").then(|| p.metadata.uid.clone());
    let pod = world.pods.values().find_map(uid).unwrap();
    world.remove(&pod);
    world.run_until_quiet();
    assert!(world.histories.is_empty(), "{:?}", world.histories);
}

/// Returns a report of a pod.
fn progress(pod: &Pod, step: u64, checkpoint: u64, at: i64) -> PodProgress {
    let meta = &pod.metadata;
    serde_json::from_value(json!({"metadata": {"name": meta.name, "namespace": meta.namespace},
        "spec": {"podUid": meta.uid, "step": step, "totalSteps": 100, "stepUs": 1_000_000, "checkpoint": checkpoint, "at": at}}))
    .unwrap()
}

#[test]
fn reports_of_pods_become_progress_of_their_job() {
    let mut world = World::new("srtf");
    world.now = SCRIPT_START;
    world.make_gang(3, true, GPUS, 0);
    world.run_until_quiet();
    let pods: Vec<Pod> = world.pods.values().cloned().collect();
    let put = |world: &mut World, report: PodProgress| {
        world.with(|reconciler, tx| reconciler.put_progress(&report, tx));
    };
    let seen = |world: &World| {
        let progress = world.state.job(1).unwrap().progress;
        (progress.step, progress.checkpoint)
    };
    put(&mut world, progress(&pods[0], 20, 15, SCRIPT_START));
    assert_eq!(seen(&world), (20, 15));
    // Of several pods, the one that is least far counts, and the checkpoint that all have.
    world.now += 10_000_000;
    put(&mut world, progress(&pods[1], 25, 10, SCRIPT_START));
    put(&mut world, progress(&pods[0], 30, 30, SCRIPT_START));
    assert_eq!(seen(&world), (20, 15), "a report right after another one waits");
    world.now += 10_000_000;
    let now = Time(world.now);
    world.with(|reconciler, tx| reconciler.expire(now, Time::from_secs(86_400), tx));
    assert_eq!(seen(&world), (25, 15), "a checkpoint is never lost");
    // A report in the name of another pod does not count.
    let mut forged = progress(&pods[2], 1, 0, SCRIPT_START);
    forged.metadata.name = "another".to_owned();
    world.now += 10_000_000;
    put(&mut world, forged);
    assert_eq!(seen(&world), (25, 15));

    // Another leader counts on from the time of the report, and a stopped job resumes from its checkpoint.
    let reports: Vec<PodProgress> = [(0, 30, 30), (1, 25, 10)]
        .map(|(pod, step, checkpoint)| progress(&pods[pod], step, checkpoint, SCRIPT_START))
        .to_vec();
    world.pending.clear();
    (world.state, world.reconciler) = scheduler("srtf");
    world.with(|reconciler, tx| reconciler.list_progress(&reports, tx));
    world.list();
    assert_eq!(seen(&world), (25, 10));
    let engine = world.state.engine();
    let job = engine.jobs().next().unwrap();
    assert_eq!(job.spec.expected.unwrap().0, 100_000_000);
    let since = Time(world.now).since(Time(SCRIPT_START));
    let done = i64::try_from(job.done(Time(world.now)).0).unwrap();
    assert!(
        (done - 25_000_000 - since.0).abs() < 1_000_000,
        "{done} after {since:?}"
    );
}

#[test]
fn a_pod_cannot_claim_to_have_waited_before_it_existed() {
    let mut world = World::new("fifo");
    world.now = SCRIPT_START;
    let claim = json!({"job": 7, "submitted": 1, "since": 1, "pods": 1, "minPods": 1}).to_string();
    for (gang, stated) in [("g0", json!({})), ("g3", json!({"dovetail.io/queued": claim}))] {
        world.now += 60_000_000;
        world.sizes.insert(gang.to_owned(), 3);
        world.stated.insert(gang.to_owned(), stated);
        for _ in 0..3 {
            world.make_pod(gang, true, GPUS, 0);
        }
        world.run_until_quiet();
    }
    let created = Time(SCRIPT_START + 120_000_000);
    world.crash();
    world.run_until_quiet();
    let seen = world.seen(world.now);
    let claiming = seen.iter().find(|seen| seen.gang == "g3").unwrap();
    assert_eq!(
        (claiming.is_active, claiming.submitted),
        (false, created),
        "{seen:?}"
    );
}
