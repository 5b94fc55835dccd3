//! The experiments of AI-System's Lab 6 on a real control plane: kube-scheduler asks the extender, and pods with OpenPAI's
//! annotations and priorities are bound, deleted and replaced. Kubelets are simulated.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints how long each experiment took"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dovetail_extender::server::SharedExtender;
use dovetail_extender::{CellSnapshot, Options, Rules, Service, affinity_groups};
use dovetail_hived::{BIND_INFO, ENABLE, ISOLATION, SPEC};
use dovetail_kubeapi::{Client, Config, DeleteOptions, List, Patch, Pod};
use dovetail_kubelab::{Component, Lab, Scheduler, Settings};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// Two virtual clusters with one machine each.
const TWO: &str = "
kubeConfigFilePath: ''
webServerAddress: ':30096'
waitingPodSchedulingBlockMilliSec: 50
physicalCluster:
  skuTypes:
    GPU-C: {gpu: 1, cpu: 2, memory: 4096Mi}
    GPU-D: {gpu: 1, cpu: 2, memory: 4096Mi}
  cellTypes:
    GPU-C-NODE: {childCellType: GPU-C, childCellNumber: 1, isNodeLevel: true}
    GPU-C-NODE-POOL: {childCellType: GPU-C-NODE, childCellNumber: 1}
    GPU-D-NODE: {childCellType: GPU-D, childCellNumber: 1, isNodeLevel: true}
    GPU-D-NODE-POOL: {childCellType: GPU-D-NODE, childCellNumber: 1}
  physicalCells:
  - cellType: GPU-C-NODE-POOL
    cellChildren: [{cellAddress: hostname-carol}]
  - cellType: GPU-D-NODE-POOL
    cellChildren: [{cellAddress: hostname-dan}]
virtualClusters:
  default:
    virtualCells: [{cellType: GPU-C-NODE-POOL.GPU-C-NODE, cellNumber: 1}]
  vc1:
    virtualCells: [{cellType: GPU-D-NODE-POOL.GPU-D-NODE, cellNumber: 1}]
";

/// One virtual cluster with both machines.
const ONE: &str = "
physicalCluster:
  cellTypes:
    GPU-NODE: {childCellType: GPU, childCellNumber: 1, isNodeLevel: true}
    GPU-NODE-POOL: {childCellType: GPU-NODE, childCellNumber: 2}
  physicalCells:
  - cellType: GPU-NODE-POOL
    cellChildren: [{cellAddress: hostname-carol}, {cellAddress: hostname-dan}]
virtualClusters:
  default:
    virtualCells: [{cellType: GPU-NODE-POOL.GPU-NODE, cellNumber: 2}]
";

const CAROL: &str = "hostname-carol";
const DAN: &str = "hostname-dan";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn scheduler(port: u16) -> Scheduler {
    Scheduler {
        configuration: format!(
            "podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
- schedulerName: hivedscheduler-ds-default
- schedulerName: hivedscheduler-ds-vc1
extenders:
- urlPrefix: http://127.0.0.1:{port}/v1/extender
  filterVerb: filter
  preemptVerb: preempt
  bindVerb: bind
  httpTimeout: 5s
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  - name: {ENABLE}
    ignoredByScheduler: true
"
        ),
        ..Scheduler::default()
    }
}

/// Permissions of the extender.
fn permissions() -> Value {
    json!({"metadata": {"name": "hivedscheduler"}, "rules": [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}]})
}

/// A job of OpenPAI.
struct Job {
    name: &'static str,
    vc: &'static str,
    priority: i32,
    instances: u32,
    gang: bool,
}

fn job(name: &'static str, vc: &'static str, priority: i32) -> Job {
    Job {
        name,
        vc,
        priority,
        instances: 1,
        gang: true,
    }
}

struct Lab6<'a> {
    client: Client,
    lab: &'a Lab,
}

impl Lab6<'_> {
    async fn class(&self, priority: i32) {
        // OpenPAI's value: ordered by class, then by time of submission.
        let value = -(((126 - priority) << 24) + 7);
        let class = json!({"metadata": {"name": class_name(priority)}, "value": value});
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        self.client.create::<Value>(classes, &class).await.unwrap();
    }

    async fn node(&self, name: &str, cpu: &str) {
        let node = json!({"metadata": {"name": name}});
        self.client.create::<Value>("/api/v1/nodes", &node).await.unwrap();
        self.size(name, cpu).await;
    }

    async fn size(&self, name: &str, cpu: &str) {
        let room = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
        let status = json!({"status": {"capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": ""}]}});
        let path = format!("/api/v1/nodes/{name}/status");
        self.client
            .patch::<Value>(&path, Patch::Merge, &status)
            .await
            .unwrap();
    }

    /// Creates the pods of a job. Returns their names.
    async fn submit(&self, job: &Job) -> Vec<String> {
        let mut names = Vec::new();
        for at in 0..job.instances {
            let name = format!("{}-{at}", job.name);
            let mut spec = format!(
                "version: v1\nvirtualCluster: {}\npriority: {}\nleafCellNumber: 1\ngangReleaseEnable: false\n\
                 lazyPreemptionEnable: false\nignoreK8sSuggestedNodes: true\n",
                job.vc, job.priority
            );
            if job.gang {
                spec += &format!(
                    "affinityGroup:\n  name: user~{}/default\n  members:\n  - podNumber: {}\n    leafCellNumber: 1\n",
                    job.name, job.instances
                );
            } else {
                spec += "affinityGroup: null\n";
            }
            let limits = json!({"cpu": "2", "memory": "4096Mi", ENABLE: "1"});
            let pod = json!({"metadata": {"name": name, "annotations": {SPEC: spec}},
                "spec": {"schedulerName": format!("hivedscheduler-ds-{}", job.vc),
                    "priorityClassName": class_name(job.priority), "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "app", "image": "none", "resources": {"limits": limits}}]}});
            self.client.create::<Value>(PODS, &pod).await.unwrap();
            names.push(name);
        }
        names
    }

    async fn pods(&self) -> Vec<Pod> {
        let list: List<Pod> = self.client.list(PODS, "").await.unwrap();
        list.items
    }

    async fn get(&self, name: &str) -> Option<Pod> {
        self.client.get(&format!("{PODS}/{name}")).await.ok()
    }

    async fn node_of(&self, name: &str) -> String {
        self.get(name).await.map(|p| p.spec.node_name).unwrap_or_default()
    }

    /// Returns the pods among `names` that have a node.
    async fn running(&self, names: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        for name in names {
            if !self.node_of(name).await.is_empty() {
                found.push(name.clone());
            }
        }
        found
    }

    async fn until(&self, what: &str, is_met: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !is_met().await {
            if Instant::now() > deadline {
                let pods: Vec<String> = self.pods().await.iter().map(|p| format!("{p:?}")).collect();
                panic!(
                    "timed out: {what}\n{}\n{}",
                    pods.join("\n"),
                    self.lab.log_tail(Component::Scheduler)
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn on(&self, name: &str, node: &str) {
        self.until(&format!("{name} on {node}"), async || {
            self.node_of(name).await == node
        })
        .await;
    }

    /// Waits until kube-scheduler reports the reason of the extender for a pod.
    async fn waits(&self, name: &str, reason: &str) {
        self.until(&format!("{name} waits: {reason}"), async || {
            let pod = self.get(name).await.unwrap_or_default();
            assert_eq!(pod.spec.node_name, "", "{name} does not wait");
            let matches =
                |c: &dovetail_kubeapi::Condition| c.kind == "PodScheduled" && c.message.contains(reason);
            pod.status.conditions.iter().any(matches)
        })
        .await;
    }

    /// Ends a job: OpenPAI deletes its pods.
    async fn finish(&self, names: &[String]) {
        for name in names {
            let path = format!("{PODS}/{name}");
            let ended = json!({"status": {"phase": "Succeeded"}});
            let status = format!("{path}/status");
            let patched = self.client.patch::<Value>(&status, Patch::Merge, &ended);
            patched.await.unwrap();
            let now = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            self.client.delete(&path, &now).await.unwrap();
        }
    }

    async fn gone(&self, name: &str) {
        self.until(&format!("{name} is deleted"), async || {
            self.get(name).await.is_none()
        })
        .await;
    }
}

fn class_name(priority: i32) -> &'static str {
    match priority {
        100 => "prod",
        10 => "test",
        _ => "oppo",
    }
}

/// Simulates kubelets: starts bound pods, and removes pods that are being deleted.
async fn kubelets(client: Client) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Ok(list) = client.list::<Pod>(PODS, "").await else {
            continue;
        };
        for pod in list.items.iter().filter(|p| !p.spec.node_name.is_empty()) {
            let path = format!("{PODS}/{}", pod.metadata.name);
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteOptions {
                    grace_period_seconds: Some(0),
                    ..DeleteOptions::of(&pod.metadata.uid)
                };
                let _ = client.delete(&path, &now).await;
            } else if pod.status.phase == "Pending" {
                let running = json!({"status": {"phase": "Running"}});
                let _ = client
                    .patch::<Value>(&format!("{path}/status"), Patch::Merge, &running)
                    .await;
            }
        }
    }
}

/// Runs the extender as the command does. It stops when the sender is dropped.
async fn extender(
    options: Options,
) -> (
    Arc<SharedExtender>,
    oneshot::Sender<()>,
    tokio::task::JoinHandle<()>,
) {
    let service = Service::open(options).await.unwrap();
    let shared = Arc::clone(service.extender());
    let (end, ended) = oneshot::channel::<()>();
    let (_, reload) = mpsc::channel(1);
    let task = tokio::spawn(async move {
        service
            .run(reload, async move { drop(ended.await) })
            .await
            .unwrap();
    });
    while !shared.is_ready() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (shared, end, task)
}

fn groups(shared: &SharedExtender) -> Vec<(String, &'static str)> {
    shared.with(|e, _| {
        let groups = affinity_groups(e).into_iter();
        groups.map(|g| (g.metadata.name, g.status.state)).collect()
    })
}

#[test]
fn the_experiments_of_lab6_have_the_expected_results_under_a_real_kube_scheduler() {
    // The port of the extender must be known before kube-scheduler starts.
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let settings = Settings::default().with_scheduler(scheduler(port));
    let Some(lab) = Lab::start_or_skip(&settings) else {
        return;
    };
    drop(held);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run_experiments(&lab, port));
    runtime.shutdown_background();
}

async fn run_experiments(lab: &Lab, port: u16) {
    let admin = lab.kubeconfig(lab.admin()).unwrap();
    let client = Client::new(Config::from_kubeconfig(&admin, None).unwrap());
    let user = lab.authority().user("hivedscheduler", &[]).unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    client
        .create::<Value>(&format!("{rbac}/clusterroles"), &permissions())
        .await
        .unwrap();
    let role_binding = json!({"metadata": {"name": "hivedscheduler"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hivedscheduler"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "hivedscheduler"}]});
    client
        .create::<Value>(&format!("{rbac}/clusterrolebindings"), &role_binding)
        .await
        .unwrap();
    let lab6 = Lab6 {
        client: client.clone(),
        lab,
    };
    for priority in [100, 10, -1] {
        lab6.class(priority).await;
    }
    for name in [CAROL, DAN] {
        lab6.node(name, "16").await;
    }
    let file = lab.folder().join("hivedscheduler.yaml");
    std::fs::write(&file, TWO).unwrap();
    let options = Options {
        config: file.clone(),
        kubeconfig: Some(lab.kubeconfig(&user).unwrap()),
        listen: Some(format!("127.0.0.1:{port}")),
        leave_eviction: false,
    };
    let (shared, end, task) = extender(options.clone()).await;
    let kubelets = tokio::spawn(kubelets(client));

    let mut began = Instant::now();
    let mut report = |what: &str| {
        println!("{what}: {:.1} s", began.elapsed().as_secs_f64());
        began = Instant::now();
    };
    vc_safety(&lab6).await;
    report("1 VC safety");
    priority(&lab6).await;
    report("2 priority, victims deleted by the extender");
    priority_by_kube_scheduler(&lab6, &shared).await;
    report("2 priority, victims deleted by kube-scheduler");
    drop((shared, end));
    task.await.unwrap();
    let (shared, end) = opportunistic(&lab6, &options).await;
    report("3 opportunistic, with a restart");
    // Reload another file.
    std::fs::write(&file, ONE).unwrap();
    reloaded(&shared).await;
    report("reload of the file");
    gang(&lab6).await;
    report("4 gang");
    incremental(&lab6).await;
    report("5 incremental");
    lab6.until("no group is left", async || groups(&shared).is_empty())
        .await;
    drop(end);
    kubelets.abort();
}

async fn reloaded(shared: &SharedExtender) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while shared.with(|e, _| e.groups().cells().layout().vcs.len()) != 1 {
        assert!(Instant::now() < deadline, "the file was not reloaded");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// 1: four jobs for a virtual cluster of one GPU run one after another, and never on the GPU of another virtual cluster.
async fn vc_safety(lab6: &Lab6<'_>) {
    let mut left = Vec::new();
    for name in ["job0-ann", "job0-bob", "job0-cat", "job0-dee"] {
        left.extend(lab6.submit(&job(name, "vc1", 100)).await);
    }
    while !left.is_empty() {
        let mut running = String::new();
        lab6.until("one of them runs", async || !lab6.running(&left).await.is_empty())
            .await;
        for name in &left {
            match lab6.node_of(name).await.as_str() {
                "" => {
                    lab6.waits(name, "insufficient capacity when scheduling in VC vc1")
                        .await
                }
                DAN if running.is_empty() => running.clone_from(name),
                other => panic!("{name} on {other}, {running} on {DAN}"),
            }
        }
        let pod = lab6.get(&running).await.unwrap();
        assert_eq!(pod.metadata.annotations[ISOLATION], "0");
        assert!(pod.metadata.annotations[BIND_INFO].contains("physicalNode: hostname-dan"));
        lab6.finish(std::slice::from_ref(&running)).await;
        left.retain(|n| *n != running);
    }
}

/// 2: a higher priority preempts. The machines have enough resources for Kubernetes, so the extender deletes the victim.
async fn priority(lab6: &Lab6<'_>) {
    let low = lab6.submit(&job("job1", "vc1", 10)).await;
    lab6.on(&low[0], DAN).await;
    let high = lab6.submit(&job("job2", "vc1", 100)).await;
    lab6.gone(&low[0]).await;
    let again = lab6.submit(&job("job1-again", "vc1", 10)).await;
    lab6.on(&high[0], DAN).await;
    lab6.waits(&again[0], "insufficient capacity when scheduling in VC vc1")
        .await;
    lab6.finish(&high).await;
    lab6.on(&again[0], DAN).await;
    lab6.finish(&again).await;
}

/// 2 again, on machines that are full for Kubernetes too: kube-scheduler asks for victims and deletes them.
async fn priority_by_kube_scheduler(lab6: &Lab6<'_>, shared: &SharedExtender) {
    let without_eviction = Rules {
        evict_after: None,
        ..Rules::default()
    };
    shared.with(|e, _| e.set_rules(without_eviction));
    lab6.size(DAN, "3").await;
    let low = lab6.submit(&job("job1-full", "vc1", 10)).await;
    lab6.on(&low[0], DAN).await;
    let high = lab6.submit(&job("job2-full", "vc1", 100)).await;
    lab6.gone(&low[0]).await;
    lab6.on(&high[0], DAN).await;
    lab6.finish(&high).await;
    lab6.size(DAN, "16").await;
    shared.with(|e, _| e.set_rules(Rules::default()));
}

/// 3: an opportunistic job starts on idle cells at once, and is preempted by their owner. In between, the extender is
/// restarted and recovers its state.
async fn opportunistic(lab6: &Lab6<'_>, options: &Options) -> (Arc<SharedExtender>, oneshot::Sender<()>) {
    let (shared, end, task) = extender(options.clone()).await;
    let owner = lab6.submit(&job("job3", "vc1", 100)).await;
    lab6.on(&owner[0], DAN).await;
    let borrower = lab6.submit(&job("job4", "vc1", -1)).await;
    lab6.on(&borrower[0], CAROL).await;

    let before = groups(&shared);
    assert_eq!(before.len(), 2);
    let status = shared.with(|e, _| CellSnapshot::new(e).status());
    drop((shared, end));
    task.await.unwrap();
    let (shared, end, _task) = extender(options.clone()).await;
    assert_eq!(groups(&shared), before);
    assert_eq!(shared.with(|e, _| CellSnapshot::new(e).status()), status);

    let other = lab6.submit(&job("job-of-default", "default", 10)).await;
    lab6.gone(&borrower[0]).await;
    lab6.on(&other[0], CAROL).await;
    let again = lab6.submit(&job("job4-again", "vc1", -1)).await;
    lab6.waits(
        &again[0],
        "insufficient capacity when scheduling in physical cluster",
    )
    .await;
    lab6.finish(&owner).await;
    lab6.on(&again[0], DAN).await;
    lab6.finish(&again).await;
    lab6.finish(&other).await;
    (shared, end)
}

/// 4: a gang starts as a whole or not at all.
async fn gang(lab6: &Lab6<'_>) {
    let first = lab6.submit(&job("job5", "default", 100)).await;
    lab6.until("job5 runs", async || !lab6.node_of(&first[0]).await.is_empty())
        .await;
    let gang = Job {
        instances: 2,
        ..job("job6", "default", 100)
    };
    let both = lab6.submit(&gang).await;
    for name in &both {
        lab6.waits(name, "insufficient capacity when scheduling in VC default")
            .await;
    }
    lab6.finish(&first).await;
    for name in &both {
        lab6.until("the gang runs", async || !lab6.node_of(name).await.is_empty())
            .await;
    }
    let nodes = [lab6.node_of(&both[0]).await, lab6.node_of(&both[1]).await];
    assert_ne!(nodes[0], nodes[1]);
    lab6.finish(&both).await;
}

/// 5: without a gang each instance starts when it can, even if not all of them can run at the same time.
async fn incremental(lab6: &Lab6<'_>) {
    let first = lab6.submit(&job("job5-again", "default", 100)).await;
    lab6.until("job5 runs", async || !lab6.node_of(&first[0]).await.is_empty())
        .await;
    let loose = Job {
        instances: 4,
        gang: false,
        ..job("job7", "default", 100)
    };
    let mut left = lab6.submit(&loose).await;
    lab6.until("one instance runs beside job5", async || {
        lab6.running(&left).await.len() == 1
    })
    .await;
    let busy = lab6.node_of(&first[0]).await;
    assert_ne!(lab6.node_of(&lab6.running(&left).await[0]).await, busy);
    lab6.finish(&first).await;
    // They end one by one, and each time the next one starts.
    while !left.is_empty() {
        let expected = left.len().min(2);
        lab6.until("all instances run that have room", async || {
            lab6.running(&left).await.len() == expected
        })
        .await;
        let one = lab6.running(&left).await.remove(0);
        lab6.finish(std::slice::from_ref(&one)).await;
        left.retain(|n| *n != one);
    }
}

#[test]
fn the_configurations_of_this_test_are_valid() {
    for text in [TWO, ONE] {
        dovetail_extender::Settings::parse(text, "lab6").unwrap();
    }
}
