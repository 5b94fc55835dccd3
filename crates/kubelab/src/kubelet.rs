//! One simulated kubelet for all nodes: it runs, ends and removes the pods that are bound to them, and reports that to the API
//! server.
//!
//! The annotations of a pod set what it does, and may change while it runs: after [`RUN_SECONDS`] it ends with
//! [`EXIT_CODE`], whatever its restart policy is. Without a run time it runs until it is deleted or gets an exit code.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dovetail_kubeapi::{
    Change, Client, Container, DeleteOptions, Error, List, Node, Patch, Pod, Watcher, micro_time, now_micros,
    seconds_time,
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::nodes::set_ready;
use crate::pods::{Behaviour, ContainerView, PodAction, PodView, Pods, ResizeRefusal, Stage, Uid};

/// Annotation with the run time of a pod, in seconds.
pub const RUN_SECONDS: &str = "kubelab/run-seconds";
/// Annotation with the exit code of its containers.
pub const EXIT_CODE: &str = "kubelab/exit-code";
/// Annotation with why its node does not resize it: `infeasible` or `deferred`.
pub const RESIZE: &str = "kubelab/resize";

/// The simulated kubelet. It ends when the value is dropped; pods keep their state.
#[derive(Debug)]
pub struct Kubelet {
    commands: mpsc::UnboundedSender<NodeCommand>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Numbers of pods that the kubelet has handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods that started to run.
    pub started: u64,
    /// Pods whose containers ended.
    pub ended: u64,
    /// Changes of CPU and memory of running pods.
    pub resized: u64,
    /// Pods that were removed from their node.
    pub removed: u64,
}

#[derive(Debug, Default)]
struct Shared {
    started: AtomicU64,
    ended: AtomicU64,
    resized: AtomicU64,
    removed: AtomicU64,
    /// Requests that the API server rejected, with the reason.
    rejected: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum NodeCommand {
    SetDead(String, bool),
    Shutdown,
}

impl Kubelet {
    /// Starts the kubelet in its own thread.
    ///
    /// # Panics
    /// If no thread can be started.
    pub fn start(client: Client, behaviour: Behaviour) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime for the kubelets").block_on(run(
                client,
                behaviour,
                receiver,
                thread_shared,
            ));
        };
        let thread = std::thread::Builder::new()
            .name("kubelets".to_owned())
            .spawn(body);
        Self {
            commands,
            shared,
            thread: Some(thread.expect("a thread for the kubelets")),
        }
    }

    /// Makes a node fail: pods that are bound to it do not start, deleted pods stay, and it sends no heartbeats.
    pub fn kill_node(&self, node: &str) {
        let _ = self.commands.send(NodeCommand::SetDead(node.to_owned(), true));
    }

    /// Makes a node work again, as after a network failure, and reports it ready.
    pub fn revive_node(&self, node: &str) {
        let _ = self.commands.send(NodeCommand::SetDead(node.to_owned(), false));
    }

    /// Returns the numbers of pods that the kubelet has handled.
    pub fn counts(&self) -> Counts {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Counts {
            started: of(&self.shared.started),
            ended: of(&self.shared.ended),
            resized: of(&self.shared.resized),
            removed: of(&self.shared.removed),
        }
    }

    /// Returns the requests that the API server rejected, with the reason; empty if there were no errors.
    pub fn rejected(&self) -> Vec<String> {
        self.shared.rejected().clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = self.commands.send(NodeCommand::Shutdown);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn rejected(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result of an action and returns whether it is complete, so that it is not tried again.
    fn record(&self, action: PodAction, result: Result<(), Error>) -> bool {
        match result {
            Ok(()) => {
                let count = match action {
                    PodAction::Run => &self.started,
                    PodAction::End { .. } => &self.ended,
                    PodAction::Resize => &self.resized,
                    PodAction::Remove => &self.removed,
                };
                count.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(e) if e.is_not_found() => true,
            Err(e) if e.is_transient() || e.is_conflict() => false,
            Err(e) => {
                self.rejected().push(e.to_string());
                true
            }
        }
    }
}

async fn run(
    client: Client,
    behaviour: Behaviour,
    mut commands: mpsc::UnboundedReceiver<NodeCommand>,
    shared: Arc<Shared>,
) {
    let started = Instant::now();
    let limit = behaviour.requests.max(1);
    let heartbeat = behaviour.heartbeat;
    let mut pods = Pods::new(behaviour);
    let mut actions: JoinSet<(Uid, PodAction, Result<(), Error>)> = JoinSet::new();
    // In a task of its own: a watch inside `select!` would start again whenever another branch completes first.
    let (sender, mut changes) = mpsc::channel(1024);
    let mut watcher = Watcher::<Pod>::new(&client, "/api/v1/pods", "fieldSelector=spec.nodeName!=");
    let watch_task = tokio::spawn(async move { while sender.send(watcher.next().await).await.is_ok() {} });
    let (dead_sender, dead) = tokio::sync::watch::channel(BTreeSet::new());
    let heartbeat_task = heartbeat.map(|every| tokio::spawn(send_heartbeats(client.clone(), every, dead)));
    let mut addresses = 0;
    loop {
        while actions.len() < limit
            && let Some((uid, pod, action)) = pods.take(started.elapsed())
        {
            addresses += 1;
            let client = client.clone();
            actions.spawn(async move {
                let result = perform(&client, &uid, &pod, action, addresses).await;
                (uid, action, result)
            });
        }
        let wait = match pods.next() {
            Some(due) if actions.len() < limit => due.saturating_sub(started.elapsed()),
            _ => Duration::from_secs(3600),
        };
        tokio::select! {
            Some(change) = changes.recv() => apply(&mut pods, started.elapsed(), change),
            Some(Ok((uid, action, result))) = actions.join_next() => {
                let is_complete = shared.record(action, result);
                pods.finish(started.elapsed(), &uid, action, is_complete);
            }
            command = commands.recv() => match command {
                Some(NodeCommand::SetDead(node, dead)) => {
                    pods.set_dead(&node, dead);
                    dead_sender.send_modify(|set| {
                        if dead { set.insert(node.clone()) } else { set.remove(&node) };
                    });
                    if !dead && let Err(e) = set_ready(&client, &node, true).await {
                        shared.rejected().push(e.to_string());
                    }
                }
                Some(NodeCommand::Shutdown) | None => break,
            },
            () = tokio::time::sleep(wait) => {}
        }
    }
    watch_task.abort();
    if let Some(task) = heartbeat_task {
        task.abort();
    }
}

fn apply(pods: &mut Pods, now: Duration, change: Change<Pod>) {
    match change {
        Change::All(all) => {
            pods.keep_only(&all.iter().map(|p| p.metadata.uid.clone()).collect());
            for pod in all {
                pods.update(now, &pod.metadata.uid, view(&pod));
            }
        }
        Change::Put(pod) => pods.update(now, &pod.metadata.uid, view(&pod)),
        Change::Gone(pod) => pods.remove(&pod.metadata.uid),
        Change::Failed(_) => {}
    }
}

/// Default grace period of a pod, in seconds.
const GRACE_S: i64 = 30;

fn view(pod: &Pod) -> PodView {
    let annotation = |key: &str| pod.metadata.annotations.get(key);
    let exit_code = annotation(EXIT_CODE).and_then(|c| c.parse().ok());
    let run_time = annotation(RUN_SECONDS)
        .and_then(|s| s.parse().ok())
        .and_then(|s| Duration::try_from_secs_f64(s).ok());
    let grace = pod.spec.termination_grace_period_seconds.unwrap_or(GRACE_S);
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    PodView {
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        node: pod.spec.node_name.clone(),
        containers: pod.spec.containers.iter().map(container).collect(),
        stage: match pod.status.phase.as_str() {
            "" | "Pending" => Stage::Pending,
            "Succeeded" | "Failed" => Stage::Ended,
            _ => Stage::Running,
        },
        deletion_grace: pod.metadata.deletion_timestamp.as_ref().map(|_| grace),
        run_time: run_time.or(exit_code.map(|_: i32| Duration::ZERO)),
        exit_code: exit_code.unwrap_or(0),
        started_at: started_at(pod),
        resize_refusal: match annotation(RESIZE).map(String::as_str) {
            Some("infeasible") => Some(ResizeRefusal::Infeasible),
            Some("deferred") => Some(ResizeRefusal::Deferred),
            _ => None,
        },
    }
}

fn started_at(pod: &Pod) -> Option<String> {
    let status = pod.status.container_statuses.first()?;
    status.state.running.as_ref()?.started_at.clone()
}

fn container(container: &Container) -> ContainerView {
    ContainerView {
        name: container.name.clone(),
        resources: container.resources.clone(),
    }
}

async fn perform(
    client: &Client,
    uid: &str,
    pod: &PodView,
    action: PodAction,
    address: u32,
) -> Result<(), Error> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    let status = match action {
        PodAction::Run => running_status(pod, address),
        PodAction::End { code } => ended_status(pod, code),
        PodAction::Resize => resized_status(pod),
        PodAction::Remove => {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::of(uid)
            };
            return client.delete(&path, &options).await;
        }
    };
    // The UID restricts the patch to this pod: another may have been created with its name.
    let patch = json!({"metadata": {"uid": uid}, "status": status});
    client
        .patch::<IgnoredAny>(&format!("{path}/status"), Patch::Strategic, &patch)
        .await
        .map(drop)
}

fn conditions(is_ready: bool, reason: &str, now: &str) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    let condition = |kind: &str, status: &str, reason: &str| {
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": now});
        if !reason.is_empty() {
            condition["reason"] = json!(reason);
        }
        condition
    };
    json!([
        condition("Initialized", "True", ""),
        condition("Ready", ready, reason),
        condition("ContainersReady", ready, reason)
    ])
}

fn running_status(pod: &PodView, address: u32) -> Value {
    let now = seconds_time(now_micros());
    let [_, a, b, c] = address.to_be_bytes();
    let ip = format!("10.{a}.{b}.{c}");
    let containers = running_containers(pod, &now);
    json!({"phase": "Running", "startTime": now, "hostIP": "127.0.0.1", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": conditions(true, "", &now), "containerStatuses": containers})
}

/// Returns the statuses of containers that run since then, with what they have.
fn running_containers(pod: &PodView, since: &str) -> Vec<Value> {
    let status = |container: &ContainerView| {
        let ContainerView { name, resources } = container;
        json!({"name": name, "image": "kubelab", "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": since}}, "allocatedResources": resources.requests,
            "resources": {"requests": resources.requests, "limits": resources.limits}})
    };
    pod.containers.iter().map(status).collect()
}

/// Returns the status of a pod whose CPU and memory were changed: it has them, or its node does not give them.
fn resized_status(pod: &PodView) -> Value {
    let now = seconds_time(now_micros());
    let pending = |reason: &str| {
        json!({"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason,
            "message": "the node was told to refuse", "lastTransitionTime": now}]})
    };
    match pod.resize_refusal {
        Some(ResizeRefusal::Infeasible) => return pending("Infeasible"),
        Some(ResizeRefusal::Deferred) => return pending("Deferred"),
        None => {}
    }
    json!({"containerStatuses": running_containers(pod, pod.started_at.as_ref().unwrap_or(&now))})
}

fn ended_status(pod: &PodView, code: i32) -> Value {
    let now = seconds_time(now_micros());
    let (phase, reason) = if code == 0 {
        ("Succeeded", "Completed")
    } else {
        ("Failed", "Error")
    };
    let condition_reason = if code == 0 { "PodCompleted" } else { "PodFailed" };
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|container| {
            let end = json!({"exitCode": code, "reason": reason, "finishedAt": now});
            json!({"name": container.name, "image": "kubelab", "imageID": "", "ready": false, "started": false,
                "restartCount": 0, "state": {"terminated": end}})
        })
        .collect();
    json!({"phase": phase, "conditions": conditions(false, condition_reason, &now), "containerStatuses": containers})
}

/// Renews the lease of every node that is not dead, and reports nodes ready again whose state is unknown.
async fn send_heartbeats(
    client: Client,
    every: Duration,
    dead: tokio::sync::watch::Receiver<BTreeSet<String>>,
) {
    loop {
        let nodes = client.list::<Node>("/api/v1/nodes", "").await;
        let nodes: List<Node> = match nodes {
            Ok(nodes) => nodes,
            Err(_) => {
                tokio::time::sleep(every).await;
                continue;
            }
        };
        for node in nodes.items {
            let name = node.metadata.name;
            if dead.borrow().contains(&name) {
                continue;
            }
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(now_micros())}});
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
            // The next heartbeat makes up for a failed one.
            let _ = client.apply::<IgnoredAny>(&path, "kubelab", &lease).await;
            let mut conditions = node.status.conditions.iter();
            if conditions.any(|c| c.kind == "Ready" && c.status == "Unknown") {
                let _ = set_ready(&client, &name, true).await;
            }
        }
        tokio::time::sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &Value, status: &Value) -> PodView {
        let pod = json!({"metadata": {"name": "a", "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": [{"name": "main"}]}, "status": status});
        view(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn annotations_set_run_time_and_exit_code() {
        let pending = json!({"phase": "Pending"});
        let end = |annotations| {
            let pod = pod(&annotations, &pending);
            (pod.run_time, pod.exit_code)
        };
        assert_eq!(end(json!({})), (None, 0));
        let run_time = Some(Duration::from_millis(1500));
        assert_eq!(end(json!({RUN_SECONDS: "1.5"})), (run_time, 0));
        assert_eq!(end(json!({RUN_SECONDS: "1.5", EXIT_CODE: "7"})), (run_time, 7));
        assert_eq!(end(json!({EXIT_CODE: "7"})), (Some(Duration::ZERO), 7));
        assert_eq!(end(json!({RUN_SECONDS: "soon", EXIT_CODE: "x"})), (None, 0));
    }

    #[test]
    fn the_phase_sets_the_stage() {
        let stage = |phase: &str| pod(&json!({}), &json!({"phase": phase})).stage;
        assert_eq!(stage("Pending"), Stage::Pending);
        assert_eq!(stage("Running"), Stage::Running);
        assert_eq!(stage("Failed"), Stage::Ended);
        assert_eq!(stage("Succeeded"), Stage::Ended);
    }
}
