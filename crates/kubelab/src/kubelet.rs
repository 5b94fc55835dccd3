//! One stand-in for the kubelets of all nodes: pods that are bound run, end and go, and the API server hears of it.
//!
//! What a pod does is in its annotations, which are looked at whenever it changes: after [`RUN_SECONDS`] it ends with
//! [`EXIT_CODE`], whatever its restart policy. Without a time it runs until it is deleted, or until it is given an exit code.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dovetail_kubeapi::{
    Change, Client, DeleteOptions, Error, List, Node, Patch, Pod, Watcher, micro_time, now_micros,
    seconds_time,
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::nodes::set_ready;
use crate::pods::{Act, Behaviour, Pods, Seen, Stage, Uid};

/// The annotation with how long a pod runs.
pub const RUN_SECONDS: &str = "kubelab/run-seconds";
/// The annotation with what its containers end with.
pub const EXIT_CODE: &str = "kubelab/exit-code";

/// The stand-in. It ends with the value; pods stay as they are.
#[derive(Debug)]
pub struct Kubelet {
    orders: mpsc::UnboundedSender<Order>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What it has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods that came to run.
    pub started: u64,
    /// Pods whose containers ended.
    pub ended: u64,
    /// Pods that were taken off their node.
    pub removed: u64,
}

#[derive(Debug, Default)]
struct Shared {
    started: AtomicU64,
    ended: AtomicU64,
    removed: AtomicU64,
    /// What the API server would not have.
    refused: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum Order {
    Dead(String, bool),
    End,
}

impl Kubelet {
    /// Starts it on a thread of its own.
    ///
    /// # Panics
    /// When the system has no thread for it.
    pub fn start(client: Client, behaviour: Behaviour) -> Self {
        let (orders, heard) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime
                .expect("a runtime for the kubelets")
                .block_on(stand_in(client, behaviour, heard, theirs));
        };
        let thread = std::thread::Builder::new()
            .name("kubelets".to_owned())
            .spawn(body);
        Self {
            orders,
            shared,
            thread: Some(thread.expect("a thread for the kubelets")),
        }
    }

    /// From now on nothing happens on this node: pods that are bound to it do not start, those that are deleted do not
    /// go, and it sends no heartbeats.
    pub fn kill_node(&self, node: &str) {
        let _ = self.orders.send(Order::Dead(node.to_owned(), true));
    }

    /// The node is back, as after a network that was cut, and says that it is ready.
    pub fn revive_node(&self, node: &str) {
        let _ = self.orders.send(Order::Dead(node.to_owned(), false));
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Counts {
            started: of(&self.shared.started),
            ended: of(&self.shared.ended),
            removed: of(&self.shared.removed),
        }
    }

    /// What the API server would not have, and why; empty as long as all is well.
    pub fn refused(&self) -> Vec<String> {
        self.shared.refused().clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn refused(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how an act went; whether it need not be tried again.
    fn note(&self, act: Act, done: Result<(), Error>) -> bool {
        match done {
            Ok(()) => {
                let count = match act {
                    Act::Run => &self.started,
                    Act::End { .. } => &self.ended,
                    Act::Remove => &self.removed,
                };
                count.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(e) if e.is_not_found() => true,
            Err(e) if e.is_passing() || e.is_conflict() => false,
            Err(e) => {
                self.refused().push(e.to_string());
                true
            }
        }
    }
}

async fn stand_in(
    client: Client,
    behaviour: Behaviour,
    mut orders: mpsc::UnboundedReceiver<Order>,
    shared: Arc<Shared>,
) {
    let started = Instant::now();
    let limit = behaviour.requests.max(1);
    let heartbeat = behaviour.heartbeat;
    let mut pods = Pods::new(behaviour);
    let mut acts: JoinSet<(Uid, Act, Result<(), Error>)> = JoinSet::new();
    // A watch that is waited for beside other things would begin anew each time one of those comes first.
    let (tell, mut changes) = mpsc::channel(1024);
    let mut watcher = Watcher::<Pod>::new(&client, "/api/v1/pods", "fieldSelector=spec.nodeName!=");
    let watching = tokio::spawn(async move { while tell.send(watcher.next().await).await.is_ok() {} });
    let (dead_tell, dead) = tokio::sync::watch::channel(BTreeSet::new());
    let beating = heartbeat.map(|every| tokio::spawn(beat(client.clone(), every, dead)));
    let mut addresses = 0;
    loop {
        while acts.len() < limit
            && let Some((uid, seen, act)) = pods.take(started.elapsed())
        {
            addresses += 1;
            let client = client.clone();
            acts.spawn(async move {
                let done = carry_out(&client, &uid, &seen, act, addresses).await;
                (uid, act, done)
            });
        }
        let wait = match pods.next() {
            Some(due) if acts.len() < limit => due.saturating_sub(started.elapsed()),
            _ => Duration::from_secs(3600),
        };
        tokio::select! {
            Some(change) = changes.recv() => see(&mut pods, started.elapsed(), change),
            Some(Ok((uid, act, done))) = acts.join_next() => {
                let well = shared.note(act, done);
                pods.done(started.elapsed(), &uid, act, well);
            }
            order = orders.recv() => match order {
                Some(Order::Dead(node, dead)) => {
                    pods.set_dead(&node, dead);
                    dead_tell.send_modify(|set| {
                        if dead { set.insert(node.clone()) } else { set.remove(&node) };
                    });
                    if !dead && let Err(e) = set_ready(&client, &node, true).await {
                        shared.refused().push(e.to_string());
                    }
                }
                Some(Order::End) | None => break,
            },
            () = tokio::time::sleep(wait) => {}
        }
    }
    watching.abort();
    if let Some(beating) = beating {
        beating.abort();
    }
}

fn see(pods: &mut Pods, now: Duration, change: Change<Pod>) {
    match change {
        Change::All(all) => {
            pods.keep_only(&all.iter().map(|p| p.metadata.uid.clone()).collect());
            for pod in all {
                pods.see(now, &pod.metadata.uid, seen(&pod));
            }
        }
        Change::Put(pod) => pods.see(now, &pod.metadata.uid, seen(&pod)),
        Change::Gone(pod) => pods.gone(&pod.metadata.uid),
        Change::Trouble(_) => {}
    }
}

/// The grace period of a pod that names none.
const GRACE_S: i64 = 30;

fn seen(pod: &Pod) -> Seen {
    let note = |key: &str| pod.metadata.annotations.get(key);
    let exit_code = note(EXIT_CODE).and_then(|c| c.parse().ok());
    let runs = note(RUN_SECONDS)
        .and_then(|s| s.parse().ok())
        .and_then(|s| Duration::try_from_secs_f64(s).ok());
    let grace = pod.spec.termination_grace_period_seconds.unwrap_or(GRACE_S);
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    Seen {
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        node: pod.spec.node_name.clone(),
        containers: pod.spec.containers.iter().map(|c| c.name.clone()).collect(),
        stage: match pod.status.phase.as_str() {
            "" | "Pending" => Stage::Pending,
            "Succeeded" | "Failed" => Stage::Ended,
            _ => Stage::Running,
        },
        deleted: pod.metadata.deletion_timestamp.as_ref().map(|_| grace),
        runs: runs.or(exit_code.map(|_: i32| Duration::ZERO)),
        exit_code: exit_code.unwrap_or(0),
    }
}

async fn carry_out(client: &Client, uid: &str, seen: &Seen, act: Act, address: u32) -> Result<(), Error> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", seen.namespace, seen.name);
    let status = match act {
        Act::Run => running(seen, address),
        Act::End { code } => ended(seen, code),
        Act::Remove => {
            let at_once = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::of(uid)
            };
            return client.delete(&path, &at_once).await;
        }
    };
    // Only this pod, not one that has come by its name since.
    let patch = json!({"metadata": {"uid": uid}, "status": status});
    client
        .patch::<IgnoredAny>(&format!("{path}/status"), Patch::Strategic, &patch)
        .await
        .map(drop)
}

fn conditions(is_ready: bool, reason: &str, now: &str) -> Value {
    let is = if is_ready { "True" } else { "False" };
    let one = |kind: &str, status: &str, reason: &str| {
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": now});
        if !reason.is_empty() {
            condition["reason"] = json!(reason);
        }
        condition
    };
    json!([
        one("Initialized", "True", ""),
        one("Ready", is, reason),
        one("ContainersReady", is, reason)
    ])
}

fn running(seen: &Seen, address: u32) -> Value {
    let now = seconds_time(now_micros());
    let [_, a, b, c] = address.to_be_bytes();
    let ip = format!("10.{a}.{b}.{c}");
    let containers: Vec<Value> = seen
        .containers
        .iter()
        .map(|name| {
            json!({"name": name, "image": "kubelab", "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": now}}})
        })
        .collect();
    json!({"phase": "Running", "startTime": now, "hostIP": "127.0.0.1", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": conditions(true, "", &now), "containerStatuses": containers})
}

fn ended(seen: &Seen, code: i32) -> Value {
    let now = seconds_time(now_micros());
    let (phase, reason) = if code == 0 {
        ("Succeeded", "Completed")
    } else {
        ("Failed", "Error")
    };
    let why = if code == 0 { "PodCompleted" } else { "PodFailed" };
    let containers: Vec<Value> = seen
        .containers
        .iter()
        .map(|name| {
            let end = json!({"exitCode": code, "reason": reason, "finishedAt": now});
            json!({"name": name, "image": "kubelab", "imageID": "", "ready": false, "started": false,
                "restartCount": 0, "state": {"terminated": end}})
        })
        .collect();
    json!({"phase": phase, "conditions": conditions(false, why, &now), "containerStatuses": containers})
}

/// Renews the lease of every node that is not dead, and says that it is ready where it was given up on.
async fn beat(client: Client, every: Duration, dead: tokio::sync::watch::Receiver<BTreeSet<String>>) {
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
            // One that is missed is made up for by the next.
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

    fn pod(annotations: &Value, status: &Value) -> Seen {
        let pod = json!({"metadata": {"name": "a", "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": [{"name": "main"}]}, "status": status});
        seen(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_a_pod_does_is_in_its_annotations() {
        let pending = json!({"phase": "Pending"});
        let runs = |annotations| {
            let seen = pod(&annotations, &pending);
            (seen.runs, seen.exit_code)
        };
        assert_eq!(runs(json!({})), (None, 0));
        let half = Some(Duration::from_millis(1500));
        assert_eq!(runs(json!({RUN_SECONDS: "1.5"})), (half, 0));
        assert_eq!(runs(json!({RUN_SECONDS: "1.5", EXIT_CODE: "7"})), (half, 7));
        assert_eq!(runs(json!({EXIT_CODE: "7"})), (Some(Duration::ZERO), 7));
        assert_eq!(runs(json!({RUN_SECONDS: "soon", EXIT_CODE: "x"})), (None, 0));
    }

    #[test]
    fn phases_are_stages() {
        let stage = |phase: &str| pod(&json!({}), &json!({"phase": phase})).stage;
        assert_eq!(stage("Pending"), Stage::Pending);
        assert_eq!(stage("Running"), Stage::Running);
        assert_eq!(stage("Failed"), Stage::Ended);
        assert_eq!(stage("Succeeded"), Stage::Ended);
    }
}
