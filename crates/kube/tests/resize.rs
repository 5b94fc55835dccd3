//! CPU and memory that policies give to pods, and pods that wait until others have given them back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/resized.rs"]
mod resized;
#[path = "support/transaction.rs"]
mod transaction;

use std::collections::BTreeMap;

use dovetail_cluster::{
    Actor, Clock, ClusterState, Fact, JobState, OperatorAction, PolicyText, RuntimeCommand,
};
use dovetail_kube::{
    Action, Bind, ClusterFeatures, ClusterTransaction as _, Reconciler, ResizePod, Settings,
};
use dovetail_kubeapi::{Node, Pod, Resources, seconds_time};
use dovetail_model::Time;
use resized::resized;
use serde_json::json;
use transaction::TestTransaction;

const START: i64 = 1_794_873_600_000_000;
const SECOND: i64 = 1_000_000;

/// A node of 16 cores, 64 GiB and four GPUs, and a scheduler whose requests are kept until a test carries them out.
struct World {
    state: ClusterState,
    reconciler: Reconciler,
    pods: BTreeMap<String, Pod>,
    now: i64,
    /// Requests to resize a pod.
    resizes: Vec<ResizePod>,
    binds: Vec<Bind>,
    warnings: Vec<(&'static str, String)>,
}

fn policy(sizing: &str) -> PolicyText {
    PolicyText {
        policy: "fifo-backfill".to_owned(),
        parts: [("sizing".to_owned(), sizing.to_owned())].into(),
    }
}

fn scheduler(sizing: &str) -> (ClusterState, Reconciler) {
    let features = ClusterFeatures::ALL;
    let state = ClusterState::new(policy(sizing), Clock::Events).unwrap();
    let reconciler = Reconciler::new(Settings::default(), features);
    (state.on(features.capabilities()).unwrap(), reconciler)
}

fn node() -> Node {
    let amounts = json!({"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"});
    serde_json::from_value(json!({"metadata": {"name": "n0"}, "status": {"capacity": amounts,
        "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}}))
    .unwrap()
}

impl World {
    fn new(sizing: &str) -> Self {
        let (state, reconciler) = scheduler(sizing);
        let mut world = Self {
            state,
            reconciler,
            pods: BTreeMap::new(),
            now: START,
            resizes: Vec::new(),
            binds: Vec::new(),
            warnings: Vec::new(),
        };
        world.list();
        world
    }

    fn list(&mut self) {
        let pods: Vec<Pod> = self.pods.values().cloned().collect();
        self.with(|reconciler, tx| {
            reconciler.list_nodes(&[node()], tx);
            reconciler.list_pods(&pods, tx);
        });
    }

    /// Replaces the scheduler by one that only knows the objects.
    fn restart(&mut self, sizing: &str) {
        (self.state, self.reconciler) = scheduler(sizing);
        self.resizes.clear();
        self.list();
    }

    fn with(&mut self, work: impl FnOnce(&mut Reconciler, &mut TestTransaction<'_>)) {
        self.now += 1_000;
        let now = Time(self.now);
        let state = &mut self.state;
        work(&mut self.reconciler, &mut TestTransaction { state, now });
        loop {
            let commands = self.state.take_commands();
            let state = &mut self.state;
            let mut tx = TestTransaction { state, now };
            if commands.is_empty() {
                break;
            }
            for (_, command) in commands {
                match command {
                    RuntimeCommand::Start(task) => self.reconciler.start(task.job, task.attempt, &mut tx),
                    RuntimeCommand::Stop { job, attempt, .. } => self.reconciler.stop(job, attempt, &mut tx),
                    RuntimeCommand::Resize { job, .. } => self.reconciler.resize(job, &mut tx),
                }
            }
        }
        self.state.check().unwrap();
        for action in self.reconciler.take_actions() {
            match action {
                Action::Launch { binds, .. } => self.binds.extend(binds),
                Action::Resize(resize) => self.resizes.push(resize),
                Action::Warn { reason, message, .. } => self.warnings.push((reason, message)),
                Action::Remove { pod, .. } => panic!("{pod} is removed"),
                _ => {}
            }
        }
    }

    fn use_sizing(&mut self, sizing: &str) {
        let action = OperatorAction::Policy(policy(sizing));
        let by = Actor::user("root");
        self.with(|_, tx| tx.record(Fact::Operated { action, by }));
    }

    fn put(&mut self, pod: Pod) {
        self.pods.insert(pod.metadata.name.clone(), pod.clone());
        self.with(|reconciler, tx| reconciler.put_pod(&pod, tx));
    }

    /// Creates a pod with one GPU and this many cores, and 4 GiB of memory for each.
    fn create(&mut self, name: &str, cores: u32, more: &serde_json::Value) {
        let amounts =
            json!({"nvidia.com/gpu": "1", "cpu": cores.to_string(), "memory": format!("{}Gi", cores * 4)});
        let mut container = json!({"name": "main", "resources": {"limits": amounts, "requests": amounts}});
        container["resizePolicy"] = more.clone();
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": seconds_time(self.now),
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name,
                    "controller": true}]},
            "status": {"phase": "Pending"},
            "spec": {"schedulerName": "dovetail", "containers": [container]},
        });
        self.put(serde_json::from_value(pod).unwrap());
    }

    /// Carries out the only binding; the pod runs with what it requests.
    fn bind(&mut self) -> String {
        assert_eq!(self.binds.len(), 1, "{:?}", self.binds);
        let bind = self.binds.pop().unwrap();
        let name = bind.pod.name.clone();
        if let Some(resize) = &bind.resize {
            self.accept(resize);
        }
        let mut pod = self.pods[&name].clone();
        pod.spec.node_name = bind.node;
        let annotations = bind.annotations.into_iter();
        pod.metadata
            .annotations
            .extend(annotations.map(|(key, value)| (key.to_owned(), value)));
        pod.status.phase = "Running".to_owned();
        self.put(pod);
        self.give_back(&name);
        name
    }

    /// Carries out a request at the API server; the node has not done it yet.
    fn accept(&mut self, resize: &ResizePod) {
        let (uid, target) = (resize.pod.uid.clone(), resize.target);
        self.put(resized(&self.pods[&resize.pod.name], resize));
        self.with(|reconciler, tx| reconciler.resized(&uid, target, Ok(()), tx));
    }

    /// Carries out the only request to resize a pod.
    fn accept_resize(&mut self) {
        assert_eq!(self.resizes.len(), 1, "{:?}", self.resizes);
        let resize = self.resizes.pop().unwrap();
        self.accept(&resize);
    }

    /// Lets the node give a pod what it requests, and take back the rest.
    fn give_back(&mut self, name: &str) {
        let mut pod = self.pods[name].clone();
        let resources: Resources = pod.spec.containers[0].resources.clone();
        let status = json!([{"name": "main", "allocatedResources": resources.requests,
            "resources": {"requests": resources.requests, "limits": resources.limits},
            "state": {"running": {"startedAt": seconds_time(START)}}}]);
        pod.status.container_statuses = serde_json::from_value(status).unwrap();
        self.put(pod);
    }

    fn report_trouble(&mut self, name: &str, reason: &str) {
        let mut pod = self.pods[name].clone();
        let condition =
            json!([{"type": "PodResizePending", "status": "True", "reason": reason, "message": "no room"}]);
        pod.status.conditions = serde_json::from_value(condition).unwrap();
        self.put(pod);
    }

    fn wait(&mut self, seconds: i64) {
        self.now += seconds * SECOND;
        let now = Time(self.now);
        self.with(|reconciler, tx| reconciler.expire(now, Time::from_secs(86_400), tx));
    }

    fn cpu(&self, name: &str) -> &str {
        &self.pods[name].spec.containers[0].resources.requests["cpu"]
    }

    fn is(&self, job: u64, state: &JobState) -> bool {
        self.state.job(job).is_some_and(|job| job.state == *state)
    }

    fn requested_milli(&self, job: u64) -> i64 {
        self.state.job(job).unwrap().request.cpus_per_gpu.milli().into()
    }

    /// A pod that requests two cores runs, has been given four, and is to give two of them back.
    fn shrinking() -> Self {
        let mut world = Self::new("rigid");
        world.create("a", 2, &json!(null));
        world.bind();
        world.use_sizing("proportional");
        world.accept_resize();
        world.give_back("a");
        assert_eq!(world.cpu("a"), "4000m");
        world.use_sizing("rigid");
        world.accept_resize();
        assert_eq!(world.cpu("a"), "2000m");
        world
    }
}

#[test]
fn a_pod_is_bound_with_what_the_policy_gives_it() {
    let mut world = World::new("proportional");
    world.create("a", 1, &json!(null));
    assert!(world.binds[0].resize.is_some());
    world.bind();
    assert_eq!(world.cpu("a"), "4000m");
    let pod = &world.pods["a"];
    assert_eq!(pod.spec.containers[0].resources.limits["cpu"], "4000m");
    assert_eq!(pod.spec.containers[0].resources.limits["memory"], "16384Mi");
    assert_eq!(
        pod.metadata.annotations["dovetail.io/requested"],
        r#"{"cpuMilli":1000,"memoryMib":4096}"#
    );
    assert!(world.resizes.is_empty() && world.warnings.is_empty());
}

#[test]
fn what_a_pod_was_granted_and_what_it_requested_survive_a_restart() {
    let mut world = World::new("proportional");
    world.create("a", 1, &json!(null));
    world.bind();
    world.restart("proportional");
    assert!(world.is(1, &JobState::Running));
    let given = &world.state.job(1).unwrap().attempt().unwrap().allocation.shares[0];
    assert_eq!((given.cpu_milli, given.memory_mib), (4_000, 16_384));
    assert_eq!(
        world.requested_milli(1),
        1_000,
        "its request is that of its manifest"
    );
    assert!(world.resizes.is_empty(), "{:?}", world.resizes);
}

#[test]
fn no_pod_gets_cpu_that_another_one_still_holds() {
    let mut world = World::shrinking();
    world.create("b", 14, &json!(null));
    assert!(
        world.is(2, &JobState::Starting),
        "the cluster state has room for it"
    );
    assert!(world.binds.is_empty(), "the node has not");
    world.give_back("a");
    assert_eq!(world.bind(), "b");
    assert!(world.warnings.is_empty(), "{:?}", world.warnings);
}

#[test]
fn what_fits_beside_a_shrinking_pod_does_not_wait() {
    let mut world = World::shrinking();
    world.create("b", 12, &json!(null));
    assert_eq!(world.bind(), "b");
}

#[test]
fn what_a_pod_keeps_is_unavailable_until_it_ends() {
    let mut world = World::shrinking();
    world.create("b", 14, &json!(null));
    world.report_trouble("a", "Infeasible");
    let (reason, message) = &world.warnings[0];
    assert_eq!(*reason, "ResizeInfeasible");
    assert_eq!(
        message,
        "node n0 can never resize pod ns/a: no room; it has 4000m CPU and 16384 MiB"
    );
    world.wait(61);
    assert!(
        !world.is(2, &JobState::Starting) && world.binds.is_empty(),
        "it waits without GPUs"
    );
    assert_eq!(world.warnings.len(), 1, "the event is written once");
    let mut pod = world.pods["a"].clone();
    pod.status.phase = "Succeeded".to_owned();
    world.put(pod);
    assert_eq!(world.bind(), "b");
}

#[test]
fn a_node_that_does_not_answer_counts_as_one_that_refuses() {
    let mut world = World::shrinking();
    world.wait(31);
    world.create("b", 14, &json!(null));
    assert!(
        world.is(2, &JobState::Queued),
        "{:?}",
        world.state.job(2).map(|job| &job.state)
    );
    world.give_back("a");
    assert_eq!(world.bind(), "b");
}

#[test]
fn a_growth_that_is_never_made_takes_nothing_from_others() {
    let mut world = World::new("rigid");
    world.create("a", 2, &json!(null));
    world.bind();
    world.use_sizing("proportional");
    world.accept_resize();
    world.report_trouble("a", "Infeasible");
    assert_eq!(world.warnings[0].0, "ResizeInfeasible");
    world.use_sizing("rigid");
    world.create("b", 14, &json!(null));
    assert_eq!(world.bind(), "b");
}

#[test]
fn a_container_that_would_be_restarted_keeps_what_it_has() {
    let mut world = World::new("rigid");
    let restarts = |resource: &str| json!({"resourceName": resource, "restartPolicy": "RestartContainer"});
    world.create("a", 2, &json!([restarts("cpu"), restarts("memory")]));
    world.bind();
    world.use_sizing("proportional");
    assert!(world.resizes.is_empty(), "{:?}", world.resizes);
    assert_eq!(world.warnings[0].0, "ResizeSkipped");
    assert!(
        world.warnings[0]
            .1
            .contains("container main of pod ns/a keeps its cpu"),
        "{:?}",
        world.warnings
    );
    // Before it runs it can be given what it is to have.
    world.create("b", 2, &json!([restarts("cpu")]));
    world.bind();
    assert_eq!(world.cpu("b"), "4000m");
}

#[test]
fn a_refused_request_is_reported_and_not_repeated() {
    let mut world = World::new("rigid");
    world.create("a", 2, &json!(null));
    world.bind();
    world.use_sizing("proportional");
    let resize = world.resizes.pop().unwrap();
    let why = || Err("exceeded quota: team".to_owned());
    world.with(|reconciler, tx| reconciler.resized("a", resize.target, why(), tx));
    assert_eq!(world.warnings.len(), 1);
    let (reason, message) = &world.warnings[0];
    assert_eq!(*reason, "ResizeRefused");
    assert!(message.contains("exceeded quota: team"), "{message}");
    world.give_back("a");
    assert!(world.resizes.is_empty());
}

#[test]
fn pods_keep_their_manifest_under_other_policies_and_on_other_clusters() {
    let mut world = World::new("rigid");
    world.create("a", 3, &json!(null));
    assert_eq!(world.binds[0].resize, None);
    world.bind();
    assert!(world.resizes.is_empty());
    let text = policy("proportional");
    let plain = ClusterFeatures::NONE.capabilities();
    let refusal = ClusterState::new(text, Clock::Events)
        .unwrap()
        .on(plain)
        .unwrap_err();
    assert!(refusal.to_string().contains("`pods/resize`"), "{refusal}");
}
