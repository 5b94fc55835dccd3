//! A real control plane with a scheduler, and helpers to create pods.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_cluster::Handle;
use dovetail_kube::{
    ClusterFeatures, Elector, Events, Leadership, LeaseSettings, Scheduler, SchedulerSettings,
};
use dovetail_kubeapi::Client;
use dovetail_kubelab::{Behaviour, Kubelet, Lab, NodeShape, Proxy, RUN_SECONDS, Settings};
use serde_json::{Value, json};

/// Path of our API group.
pub(crate) const API: &str = dovetail_kube::API;

/// One control plane at a time, to save CPU.
static TURN: Mutex<()> = Mutex::new(());

/// A cluster with simulated nodes and a scheduler.
pub(crate) struct Cluster {
    pub(crate) lab: Lab,
    pub(crate) kubelet: Kubelet,
    pub(crate) space: String,
    scheduler: Option<tokio::runtime::Runtime>,
    /// Proxy between the scheduler and the API server.
    pub(crate) proxy: Option<(Proxy, Client)>,
    pub(crate) settings: SchedulerSettings,
    /// The cluster state of the scheduler that runs.
    pub(crate) handle: Option<Handle>,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts a cluster of `nodes` nodes with `gpus` GPUs each; `None` without a control plane.
    pub(crate) fn start(nodes: usize, gpus: u32, settings: &Settings) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::start_or_skip(settings)?;
        lab.create_nodes("n", nodes, &NodeShape::with_gpus(gpus)).unwrap();
        let behaviour = Behaviour {
            stop_delay: Duration::from_millis(200),
            ..Behaviour::default()
        };
        let kubelet = Kubelet::start(lab.client(), behaviour);
        let space = lab.namespace("team").unwrap();
        let settings = SchedulerSettings {
            explain_every: Duration::from_millis(300),
            lost_after: Duration::from_secs(2),
            events: Events::Pods,
            ..SchedulerSettings::default()
        };
        Some(Self {
            lab,
            kubelet,
            space,
            scheduler: None,
            proxy: None,
            settings,
            handle: None,
            _turn: turn,
        })
    }

    /// Starts the scheduler, or replaces it.
    pub(crate) fn schedule(&mut self) -> &mut Self {
        self.halt();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let client = self.proxy.as_ref().map(|(_, client)| client.clone());
        let client = client.unwrap_or_else(|| self.lab.client());
        let features = runtime.block_on(ClusterFeatures::discover(&client)).unwrap();
        let scheduler = Scheduler::new(client, self.settings.clone(), features).unwrap();
        self.handle = Some(scheduler.handle());
        runtime.spawn(async move {
            scheduler.run(Leadership::alone()).await.unwrap();
        });
        self.scheduler = Some(runtime);
        self
    }

    /// Starts a replica that schedules when it leads.
    pub(crate) fn replica(&self, duration: Duration) -> tokio::runtime::Runtime {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (client, settings) = (self.lab.client(), self.settings.clone());
        let mut lease = LeaseSettings::new("default", "test", "replica");
        (lease.duration, lease.deadline, lease.period) = (duration, duration * 2 / 3, duration / 5);
        runtime.spawn(async move {
            let mut elector = Elector::new(client.clone(), lease);
            elector.win().await;
            let features = ClusterFeatures::discover(&client).await.unwrap();
            let scheduler = Scheduler::new(client, settings, features).unwrap();
            tokio::select! {
                ended = scheduler.run(elector.leadership()) => ended.unwrap(),
                _ = elector.keep() => {}
            }
        });
        runtime
    }

    /// Ends the scheduler at once, in the middle of its work.
    pub(crate) fn halt(&mut self) {
        if let Some(runtime) = self.scheduler.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.lab.request(method, path, body).unwrap();
        assert!(answer.status < 300, "{method} {path}: {}", answer.body);
        answer.body
    }

    /// Installs our CRDs and waits until they are served.
    pub(crate) fn install_kinds(&self) {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../deploy/helm/dovetail/crds/dovetail.yaml"
        );
        let text = std::fs::read_to_string(file).unwrap();
        for one in text.split("\n---\n") {
            let kind: Value = serde_saphyr::from_str(one.trim_start_matches("---\n")).unwrap();
            self.ask(
                "POST",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                Some(&kind),
            );
        }
        for plural in [
            "virtualclusters",
            "clustertopologies",
            "schedulingpolicies",
            "ganghistories",
            "podprogresses",
        ] {
            self.until(plural, || {
                let answer = self.lab.request("GET", &format!("{API}/{plural}"), None);
                answer.unwrap().status == 200
            });
        }
    }

    pub(crate) fn virtual_cluster(&self, name: &str, spec: &Value) {
        let object = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "VirtualCluster",
            "metadata": {"name": name}, "spec": spec});
        self.ask("POST", &format!("{API}/virtualclusters"), Some(&object));
    }

    /// Returns the status of a virtual cluster.
    pub(crate) fn vc_status(&self, name: &str) -> Value {
        self.ask("GET", &format!("{API}/virtualclusters/{name}"), None)["status"].clone()
    }

    /// Checks whether all pods of a gang run.
    pub(crate) fn runs(&self, name: &str, size: u32) -> bool {
        (0..size).all(|i| self.phase(&format!("{name}-{i}")) == "Running")
    }

    /// Returns the nodes of a gang.
    pub(crate) fn nodes_of(&self, name: &str, size: u32) -> BTreeSet<String> {
        (0..size)
            .filter_map(|i| self.node_of(&format!("{name}-{i}")))
            .collect()
    }

    pub(crate) fn delete(&self, pod: &str) {
        self.ask("DELETE", &format!("{}/{pod}", self.pods_path()), None);
    }

    /// Returns why the pod waits.
    pub(crate) fn why(&self, pod: &str) -> String {
        let pod = self.get(pod).unwrap_or_default();
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let scheduled = conditions.filter(|c| c["type"] == "PodScheduled");
        scheduled
            .map(|c| c["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns all events of the namespace as text.
    pub(crate) fn events(&self) -> String {
        let path = format!("/api/v1/namespaces/{}/events", self.space);
        self.ask("GET", &path, None)["items"].to_string()
    }

    pub(crate) fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.space)
    }

    /// Creates a pod with `gpus` GPUs.
    pub(crate) fn pod(&self, name: &str, gpus: u32, annotations: &Value) {
        self.make(&pod(name, gpus, annotations));
    }

    pub(crate) fn make(&self, pod: &Value) {
        self.ask("POST", &self.pods_path(), Some(pod));
    }

    /// Creates the pods of a gang.
    pub(crate) fn gang(&self, name: &str, size: u32, gpus: u32, more: &Value) {
        for i in 0..size {
            self.pod(&format!("{name}-{i}"), gpus, &gang(name, size, more));
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let answer = self
            .lab
            .request("GET", &format!("{}/{name}", self.pods_path()), None)
            .unwrap();
        (answer.status == 200).then_some(answer.body)
    }

    pub(crate) fn node_of(&self, name: &str) -> Option<String> {
        self.get(name)?["spec"]["nodeName"].as_str().map(str::to_owned)
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        let list = self.ask("GET", &self.pods_path(), None);
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) fn phase(&self, name: &str) -> String {
        self.get(name)
            .map(|p| p["status"]["phase"].as_str().unwrap_or_default().to_owned())
            .unwrap_or_default()
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !is_so() {
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.picture());
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Returns the state of all pods, for failure messages.
    pub(crate) fn picture(&self) -> String {
        let one = |pod: &Value| {
            let condition = pod["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|c| c["type"] == "PodScheduled");
            format!(
                "{} node={} phase={} gpus={} {}",
                pod["metadata"]["name"],
                pod["spec"]["nodeName"],
                pod["status"]["phase"],
                pod["metadata"]["annotations"]["dovetail.io/gpus"],
                condition.map(|c| c["message"].to_string()).unwrap_or_default()
            )
        };
        self.all().iter().map(one).collect::<Vec<_>>().join("\n")
    }

    /// Checks that no GPU has two running pods.
    pub(crate) fn check_gpus(&self) {
        let mut used = BTreeSet::new();
        for pod in self.all() {
            let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let Some(node) = pod["spec"]["nodeName"].as_str().filter(|_| !has_ended) else {
                continue;
            };
            let gpus = pod["metadata"]["annotations"]["dovetail.io/gpus"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            for gpu in gpus.split(',').filter(|g| !g.is_empty()) {
                assert!(
                    used.insert((node.to_owned(), gpu.to_owned())),
                    "GPU {gpu} of {node} has two pods\n{}",
                    self.picture()
                );
            }
        }
    }
}

pub(crate) fn pod(name: &str, gpus: u32, annotations: &Value) -> Value {
    let mut annotations = annotations.clone();
    if annotations.get(RUN_SECONDS).is_none() {
        annotations[RUN_SECONDS] = json!("3600");
    }
    json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"schedulerName": "dovetail",
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string(), "cpu": "1"}}}]}})
}

pub(crate) fn gang(name: &str, size: u32, more: &Value) -> Value {
    let mut annotations = more.clone();
    annotations["dovetail.io/gang"] = json!(name);
    annotations["dovetail.io/gang-size"] = json!(size.to_string());
    annotations
}
