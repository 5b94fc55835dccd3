//! The leader of three replicas is killed again and again while gangs come and go: what the API server has in the end, and at
//! every moment before, is what one scheduler that never died could have done.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dovetail_kubeapi::{Change, Pod, Watcher, parse_time};
use dovetail_kubelab::{Behaviour, Kubelet, Lab, NodeShape, RUN_SECONDS, Settings};
use serde_json::{Value, json};

/// How often the leader is killed; `DOVETAIL_KILLS` says otherwise.
const KILLS: u32 = 50;
const REPLICAS: usize = 3;
const LEASE: Duration = Duration::from_secs(2);
/// Gangs that are not over yet, at most.
const AT_ONCE: usize = 14;
const LEASE_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/dovetail-scheduler";

/// A process, and when it said what.
struct Replica {
    child: Child,
    said: Arc<Mutex<Vec<(String, SystemTime)>>>,
}

impl Replica {
    fn start(folder: &Path, kubeconfig: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dovetail"))
            .args(["kube", "scheduler", "--config", "kube.yaml", "--kubeconfig"])
            .arg(kubeconfig)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (theirs, lines) = (Arc::clone(&said), BufReader::new(child.stdout.take().unwrap()));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut said = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                said.push((line, SystemTime::now()));
            }
        });
        Self { child, said }
    }

    /// When it said this, if it did.
    fn said(&self, what: &str) -> Option<SystemTime> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter()
            .find(|(line, _)| line.starts_with(what))
            .map(|(_, at)| *at)
    }

    fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All that ever happened to pods, as the API server tells it.
#[derive(Debug, Default)]
struct Record {
    /// By uid: the name, the gang, and where it was bound to.
    pods: BTreeMap<String, (String, String, Option<String>)>,
    over: BTreeSet<String>,
    gpus: BTreeMap<(String, String), String>,
    wrong: Vec<String>,
}

impl Record {
    fn hear(&mut self, change: Change<Pod>) {
        match change {
            Change::All(pods) => {
                for pod in &pods {
                    self.put(pod);
                }
            }
            Change::Put(pod) => self.put(&pod),
            Change::Gone(pod) => self.wrong.push(format!("{} is gone", pod.metadata.name)),
            Change::Trouble(error) => self.wrong.push(format!("nothing can be heard: {error}")),
        }
    }

    fn put(&mut self, pod: &Pod) {
        let (meta, uid) = (&pod.metadata, pod.metadata.uid.clone());
        let gang = meta.annotations["dovetail.io/gang"].clone();
        let node = Some(pod.spec.node_name.clone()).filter(|n| !n.is_empty());
        let known = self
            .pods
            .insert(uid.clone(), (meta.name.clone(), gang, node.clone()));
        if let Some((name, _, before @ Some(_))) = known
            && before != node
        {
            self.wrong
                .push(format!("{name} was on {before:?} and is on {node:?}"));
        }
        let Some(node) = node else { return };
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            self.gpus.retain(|_, holder| *holder != uid);
            if pod.status.phase == "Failed" {
                self.wrong.push(format!("{} has failed", meta.name));
            }
            self.over.insert(uid);
            return;
        }
        let gpus = meta
            .annotations
            .get("dovetail.io/gpus")
            .cloned()
            .unwrap_or_default();
        let wanted = pod.spec.containers[0].resources.limits["nvidia.com/gpu"].clone();
        if gpus.split(',').count().to_string() != wanted {
            self.wrong
                .push(format!("{} has GPUs {gpus:?} and asked for {wanted}", meta.name));
        }
        for gpu in gpus.split(',') {
            let place = (node.clone(), gpu.to_owned());
            let holder = self.gpus.entry(place).or_insert_with(|| uid.clone());
            if *holder != uid {
                let other = &self.pods[holder].0;
                self.wrong.push(format!(
                    "GPU {gpu} of {node} was given to {} and to {other}",
                    meta.name
                ));
            }
        }
    }

    /// Gangs of which not all pods are over: how many are bound, of how many.
    fn open(&self) -> BTreeMap<&str, (usize, usize)> {
        let mut gangs: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
        for (uid, (_, gang, node)) in &self.pods {
            let (bound, over, all) = gangs.entry(gang).or_default();
            *bound += usize::from(node.is_some());
            *over += usize::from(self.over.contains(uid));
            *all += 1;
        }
        let open = gangs.into_iter().filter(|(_, (_, over, all))| over < all);
        open.map(|(gang, (bound, _, all))| (gang, (bound, all))).collect()
    }
}

/// Watches all pods from the beginning.
fn watch(lab: &Lab) -> Arc<Mutex<Record>> {
    let record = Arc::new(Mutex::new(Record::default()));
    let (theirs, client) = (Arc::clone(&record), lab.client());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async move {
            let mut watcher = Watcher::<Pod>::new(&client, "/api/v1/pods", "");
            // Until nobody is left who could look at it.
            while Arc::strong_count(&theirs) > 1 {
                let change = watcher.next().await;
                look(&theirs, |record| record.hear(change));
            }
        });
    });
    record
}

fn look<T>(record: &Mutex<Record>, at: impl FnOnce(&mut Record) -> T) -> T {
    at(&mut record.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The next number of a sequence that looks random and is the same every time.
fn next(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Makes gangs of two to four pods of one or two GPUs, as long as few are open.
fn keep_coming(lab: &Lab, space: &str, record: &Mutex<Record>, enough: &AtomicBool) -> usize {
    let (mut seed, mut made) = (42, 0);
    while !enough.load(Ordering::Relaxed) {
        if look(record, |r| r.open().len()) >= AT_ONCE {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let (size, gpus) = (2 + next(&mut seed) % 3, 1 + next(&mut seed) % 2);
        for i in 0..size {
            let seconds = (next(&mut seed) % 20) as f64 / 10.0;
            let annotations = json!({"dovetail.io/gang": format!("g{made}"), "dovetail.io/gang-size": size.to_string(),
                RUN_SECONDS: seconds.to_string()});
            let pod = json!({"metadata": {"name": format!("g{made}-{i}"), "annotations": annotations},
                "spec": {"schedulerName": "dovetail", "restartPolicy": "Never", "containers": [{"name": "main",
                    "image": "none", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}});
            let path = format!("/api/v1/namespaces/{space}/pods");
            let answer = lab.request("POST", &path, Some(&pod)).unwrap();
            assert_eq!(answer.status, 201, "{}", answer.body);
        }
        made += 1;
        std::thread::sleep(Duration::from_millis(30));
    }
    made
}

/// Waits until a replica has said this after a moment; which one, and when. Replicas that ended by themselves are started anew.
fn leader(
    replicas: &mut [Replica],
    what: &str,
    after: SystemTime,
    anew: &impl Fn() -> Replica,
) -> (usize, SystemTime) {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        for (at, replica) in replicas.iter_mut().enumerate() {
            let said = replica.said(what).filter(|said| *said > after);
            match (replica.lives(), said) {
                (true, Some(said)) => return (at, said),
                (true, None) => {}
                (false, _) => *replica = anew(),
            }
        }
        assert!(Instant::now() < deadline, "nobody says {what:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// When the lease runs out, as its last holder wrote it.
fn runs_out(lab: &Lab) -> SystemTime {
    let lease = lab.request("GET", LEASE_PATH, None).unwrap().body;
    let renewed = parse_time(lease["spec"]["renewTime"].as_str().unwrap_or_default()).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_micros(renewed.unsigned_abs()) + LEASE
}

fn spread(name: &str, mut spans: Vec<f64>) {
    spans.sort_by(f64::total_cmp);
    let at = |share: f64| spans[(share * (spans.len() - 1) as f64) as usize];
    // Not with `println`: the runner keeps what a passing test says with it to itself.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {} times, median {:.0} ms, p90 {:.0} ms, worst {:.0} ms",
        spans.len(),
        at(0.5),
        at(0.9),
        at(1.0)
    );
}

#[test]
fn a_leader_that_is_killed_under_load_leaves_nothing_half_done() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    let kills = std::env::var("DOVETAIL_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let settings =
        "lease: {namespace: default, duration: 2s, deadline: 1200ms, period: 300ms}\nevents: none\n";
    std::fs::write(folder.path().join("kube.yaml"), settings).unwrap();
    let kubeconfig = lab.kubeconfig(lab.admin()).unwrap();
    lab.create_nodes("n", 8, &NodeShape::with_gpus(4)).unwrap();
    let _kubelet = Kubelet::start(lab.client(), Behaviour::default());
    let space = lab.namespace("team").unwrap();
    let record = watch(&lab);
    let enough = AtomicBool::new(false);
    let anew = || Replica::start(folder.path(), &kubeconfig);
    let mut replicas: Vec<Replica> = (0..REPLICAS).map(|_| anew()).collect();
    let (mut leads, mut decides) = (Vec::new(), Vec::new());
    let made = std::thread::scope(|scope| {
        let coming = scope.spawn(|| keep_coming(&lab, &space, &record, &enough));
        let mut seed = 7;
        for _ in 0..kills {
            let (at, _) = leader(
                &mut replicas,
                "Nodes and pods listed",
                SystemTime::UNIX_EPOCH,
                &anew,
            );
            std::thread::sleep(Duration::from_millis(next(&mut seed) % 500));
            replicas[at].child.kill().unwrap();
            let killed = SystemTime::now();
            let expired = runs_out(&lab);
            replicas[at] = anew();
            let late = |at: SystemTime| match at.duration_since(expired) {
                Ok(after) => after.as_secs_f64() * 1e3,
                Err(before) => -before.duration().as_secs_f64() * 1e3,
            };
            leads.push(late(leader(&mut replicas, "Leading", killed, &anew).1));
            decides.push(late(leader(&mut replicas, "Nodes and pods", killed, &anew).1));
            let wrong = look(&record, |r| std::mem::take(&mut r.wrong));
            if !wrong.is_empty() {
                enough.store(true, Ordering::Relaxed);
                panic!("{wrong:#?}");
            }
        }
        enough.store(true, Ordering::Relaxed);
        coming.join().unwrap()
    });
    let deadline = Instant::now() + Duration::from_secs(120);
    while look(&record, |r| !r.open().is_empty()) {
        let stand = || look(&record, |r| format!("{:?}", r.open()));
        assert!(
            Instant::now() < deadline,
            "gangs that are not over, with pods bound and in all: {}",
            stand()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    // Once more from what the server has now, without the watch.
    let pods = lab
        .request("GET", &format!("/api/v1/namespaces/{space}/pods"), None)
        .unwrap();
    let pods: Vec<Value> = pods.body["items"].as_array().unwrap().clone();
    let whole = |pod: &Value| pod["status"]["phase"] == "Succeeded" && pod["spec"]["nodeName"].is_string();
    assert!(pods.iter().all(whole), "some pod was never bound");
    let wrong = look(&record, |r| (std::mem::take(&mut r.wrong), r.pods.len()));
    assert_eq!(wrong, (Vec::new(), pods.len()));
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills, {made} gangs, {} pods",
        pods.len()
    );
    spread("another leads, after the lease ran out", leads);
    spread(
        "it has listed everything and decides, after the lease ran out",
        decides,
    );
}
