//! A real control plane with two nodes that are only objects, and the real binary.

#![allow(dead_code, reason = "each test uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_kubeapi::{Client, Patch};
use dovetail_kubelab::{
    Behaviour, EXIT_CODE, Kubelet, Lab, Machine, NodeApi, NodeShape, Settings, Subprocess,
};
use serde_json::{Value, json};

/// Lets tests run one after the other: a control plane takes most of two cores.
static TURN: Mutex<()> = Mutex::new(());

/// A control plane, simulated or real kubelets, and the scheduler as a process. All of them end when the value is dropped or
/// the test is killed.
pub(crate) struct Cluster {
    pub(crate) scheduler: Option<Subprocess>,
    kubelet: Option<Kubelet>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) node_api: NodeApi,
    pub(crate) lab: Lab,
    pub(crate) kubeconfig: PathBuf,
    scheduler_kubeconfig: PathBuf,
    pub(crate) namespace: String,
    shared: PathBuf,
    runtime: tokio::runtime::Runtime,
    _turn: MutexGuard<'static, ()>,
}

fn text_of<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(crate) fn documents(text: &str) -> Vec<Value> {
    let all = text.split("\n---\n").map(|d| d.trim_start_matches("---\n"));
    all.map(|d| serde_saphyr::from_str::<Value>(d).unwrap())
        .filter(Value::is_object)
        .collect()
}

/// Runs the binary and returns its standard output, or standard error if it fails.
pub(crate) fn dovetail(args: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Subprocess::spawn(&mut command).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(shown(&output.stdout)),
        false => Err(shown(&output.stderr)),
    }
}

/// Returns the reason why a pod is pending, or an empty text.
pub(crate) fn pending_reason(pod: &Value) -> String {
    let conditions = pod["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let condition = conditions
        .iter()
        .find(|c| c["type"] == "PodScheduled" && c["status"] == "False");
    condition
        .map(|c| text_of(c, "/message").to_owned())
        .unwrap_or_default()
}

/// Returns whether a pod has ended.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(text_of(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns the nodes to which pods are or were bound.
pub(crate) fn nodes_of(pods: &[Value]) -> Vec<String> {
    let nodes = pods.iter().map(|p| text_of(p, "/spec/nodeName").to_owned());
    nodes.filter(|n| !n.is_empty()).collect()
}

impl Cluster {
    /// Starts the two nodes of Lab 6 with one of its configurations; `None` if its files or a control plane are not available.
    pub(crate) fn of_lab6(config: &str) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = dovetail_testkit::shared(env!("CARGO_MANIFEST_DIR"), "hived")?
            .parent()?
            .to_owned();
        let mut cluster = Self::bare(turn, "lab6")?;
        let behaviour = Behaviour {
            stop_delay: Duration::from_millis(100),
            ..Behaviour::default()
        };
        cluster.kubelet = Some(Kubelet::start(cluster.lab.client(), behaviour));
        cluster.shared = shared;
        cluster.create_nodes();
        let config = cluster.shared.join("hived/configs").join(config);
        let objects = dovetail(&["kube", "convert", config.to_str().unwrap()], "").unwrap();
        // With `kubectl`, like a user. The server needs a moment to serve new kinds.
        let file = cluster.lab.folder().join("converted.yaml");
        std::fs::write(&file, objects).unwrap();
        cluster.until("kubectl applies the objects", || {
            cluster.kubectl(&["apply", "-f", file.to_str().unwrap()]).is_ok()
        });
        cluster.schedule(&[]);
        cluster.until("the virtual clusters are accepted", || {
            let list = cluster.get("/apis/dovetail.io/v1alpha1/virtualclusters");
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.iter().all(|vc| vc["status"]["accepted"] == true)
        });
        Some(cluster)
    }

    /// Starts real nodes with these names and kubelet feature gates, a number of GPUs that exist only as a resource, and a
    /// policy; `None` if this machine does not support real nodes or a control plane is not available.
    pub(crate) fn of_machines(nodes: &[(&str, &str)], gpus: u32, policy: &Value) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cluster = Self::bare(turn, "real")?;
        cluster.machines = Machine::start_or_skip(&cluster.lab, nodes)?;
        for machine in &cluster.machines {
            machine.set_gpus(&cluster.lab, gpus).unwrap();
        }
        cluster.apply(&[
            json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "SchedulingPolicy",
            "metadata": {"name": "cluster"}, "spec": policy}),
        ]);
        cluster.schedule(&[]);
        Some(cluster)
    }

    /// Starts a control plane with Dovetail's kinds, without nodes.
    fn bare(turn: MutexGuard<'static, ()>, space: &str) -> Option<Self> {
        let controllers = ["job-controller", "garbage-collector-controller"];
        let lab = Lab::start_or_skip(&Settings::default().with_controllers(&controllers))?;
        let kubeconfig = lab.kubeconfig(lab.admin()).unwrap();
        let cluster = Self {
            scheduler: None,
            kubelet: None,
            machines: Vec::new(),
            node_api: NodeApi::start(&lab.authority().server().unwrap()).unwrap(),
            namespace: lab.namespace(space).unwrap(),
            lab,
            scheduler_kubeconfig: kubeconfig.clone(),
            kubeconfig,
            shared: PathBuf::new(),
            runtime: tokio::runtime::Runtime::new().unwrap(),
            _turn: turn,
        };
        let deploy =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/dovetail/crds/dovetail.yaml");
        cluster.apply(&documents(&std::fs::read_to_string(deploy).unwrap()));
        Some(cluster)
    }

    fn create_nodes(&self) {
        let nodes = ["hostname-carol", "hostname-dan"].map(|name| {
            (
                name.to_owned(),
                NodeShape::with_gpus(1).with_kubelet(&self.node_api),
            )
        });
        let client = self.lab.client();
        self.runtime
            .block_on(dovetail_kubelab::create_nodes(&client, &nodes))
            .unwrap();
    }

    /// Gives the scheduler the rights of the service account in these files, with jobs in the namespace of the test.
    pub(crate) fn install(&mut self, files: &[&str]) {
        const ACCOUNT: &str = "system:serviceaccount:dovetail-system:dovetail";
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
        let rights = [
            "Namespace",
            "ClusterRole",
            "ClusterRoleBinding",
            "Role",
            "RoleBinding",
        ];
        for file in files {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let text = text.replace("namespace: training", &format!("namespace: {}", self.namespace));
            let mut objects = documents(&text);
            objects.retain(|object| rights.contains(&text_of(object, "/kind")));
            self.apply(&objects);
        }
        let identity = self
            .lab
            .authority()
            .user(
                ACCOUNT,
                &["system:serviceaccounts", "system:serviceaccounts:dovetail-system"],
            )
            .unwrap();
        self.scheduler_kubeconfig = self.lab.kubeconfig(&identity).unwrap();
        for path in [
            "/api/v1/nodes",
            "/api/v1/namespaces/dovetail-system/secrets/dovetail-page",
        ] {
            self.until("the account has its rights", || {
                let answer = self.lab.request_as(&identity, "GET", path, None).unwrap();
                answer.status != 403
            });
        }
    }

    /// Starts the scheduler with further arguments, and stops the previous one.
    pub(crate) fn schedule(&mut self, more: &[&str]) {
        self.scheduler = None;
        let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
        command
            .args(["kube", "scheduler", "--alone", "--kubeconfig"])
            .arg(&self.scheduler_kubeconfig)
            .args(more)
            .stdout(Stdio::null());
        self.scheduler = Some(Subprocess::spawn(&mut command).unwrap());
    }

    pub(crate) fn client(&self) -> Client {
        self.lab.client()
    }

    /// Applies objects, once the server serves their kinds.
    pub(crate) fn apply(&self, objects: &[Value]) {
        let client = self.client();
        for object in objects {
            let kind = text_of(object, "/kind").to_lowercase();
            let plural = match kind.strip_suffix('y') {
                Some(stem) => format!("{stem}ies"),
                None => format!("{kind}s"),
            };
            let (version, name) = (text_of(object, "/apiVersion"), text_of(object, "/metadata/name"));
            let top = if version == "v1" { "/api" } else { "/apis" };
            let space = match text_of(object, "/metadata/namespace") {
                "" => String::new(),
                space => format!("namespaces/{space}/"),
            };
            let path = format!("{top}/{version}/{space}{plural}/{name}");
            self.until("the server accepts the object", || {
                let done = client.apply::<Value>(&path, "test", object);
                self.runtime.block_on(done).is_ok()
            });
        }
    }

    /// Runs `kubectl` and returns its standard output, or standard error if it fails.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        let output = self.lab.kubectl(args).unwrap();
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(shown(&output.stdout)),
            false => Err(shown(&output.stderr)),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.lab.request("GET", path, None).unwrap();
        assert!(answer.status < 300, "{path}: {}", answer.body);
        answer.body
    }

    /// Returns a job file of the lab.
    pub(crate) fn file(&self, number: u32) -> String {
        let path = self.shared.join(format!("pai/lab6/job-config-{number}.yaml"));
        std::fs::read_to_string(path).unwrap()
    }

    /// Submits a job file and returns the name of the job.
    pub(crate) fn submit(&self, user: &str, file: &str) -> String {
        let kubeconfig = self.kubeconfig.to_str().unwrap();
        let args = [
            "kube",
            "submit",
            "-",
            "--kubeconfig",
            kubeconfig,
            "-n",
            &self.namespace,
            "--user",
            user,
        ];
        dovetail(&args, file).unwrap().trim().to_owned()
    }

    /// Returns the pods of a job that are not being deleted, sorted by name.
    pub(crate) fn pods(&self, job: &str) -> Vec<Value> {
        let path = format!(
            "/api/v1/namespaces/{}/pods?labelSelector=dovetail.io/sent-as={job}",
            self.namespace
        );
        let mut pods = self.get(&path)["items"].as_array().cloned().unwrap_or_default();
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods.sort_by_key(|pod| text_of(pod, "/metadata/name").to_owned());
        pods
    }

    /// Returns the nodes on which pods of a job run, sorted.
    pub(crate) fn running(&self, job: &str) -> Vec<String> {
        let mut pods = self.pods(job);
        pods.retain(|pod| pod["status"]["phase"] == "Running");
        let mut nodes = nodes_of(&pods);
        nodes.sort();
        nodes
    }

    /// Returns the nodes of the pods of a job that are bound and have not ended.
    pub(crate) fn bound(&self, job: &str) -> Vec<String> {
        let mut pods = self.pods(job);
        pods.retain(|pod| !has_ended(pod));
        nodes_of(&pods)
    }

    /// Returns the reason why a pod of a job is pending, or an empty text.
    pub(crate) fn pending_reason(&self, job: &str) -> String {
        let pods = self.pods(job);
        pods.iter()
            .map(pending_reason)
            .find(|reason| !reason.is_empty())
            .unwrap_or_default()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        let list = self.get(&format!("/api/v1/namespaces/{}/events", self.namespace));
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|e| text_of(e, "/message").to_owned()).collect()
    }

    /// Returns the conditions of the Job of this name that are true, such as `Complete`.
    pub(crate) fn job_conditions(&self, name: &str) -> Vec<String> {
        let job = self.get(&format!(
            "/apis/batch/v1/namespaces/{}/jobs/{name}",
            self.namespace
        ));
        let conditions = job["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let holding = conditions.iter().filter(|c| c["status"] == "True");
        holding.map(|c| text_of(c, "/type").to_owned()).collect()
    }

    /// Returns whether all Jobs of a job are complete.
    pub(crate) fn is_complete(&self, job: &str) -> bool {
        let path = format!(
            "/apis/batch/v1/namespaces/{}/jobs?labelSelector=dovetail.io/sent-as={job}",
            self.namespace
        );
        let jobs = self.get(&path)["items"].as_array().cloned().unwrap_or_default();
        let complete = |job: &Value| {
            let conditions = job["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions
                .iter()
                .any(|c| c["type"] == "Complete" && c["status"] == "True")
        };
        !jobs.is_empty() && jobs.iter().all(complete)
    }

    /// Ends a pod with exit code 0.
    pub(crate) fn end_pod(&self, pod: &Value) {
        self.end_pod_with(pod, 0);
    }

    /// Ends a pod with this exit code.
    pub(crate) fn end_pod_with(&self, pod: &Value, code: i32) {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}",
            self.namespace,
            text_of(pod, "/metadata/name")
        );
        let patch = json!({"metadata": {"annotations": {EXIT_CODE: code.to_string()}}});
        let client = self.client();
        self.runtime
            .block_on(client.patch::<Value>(&path, Patch::Merge, &patch))
            .unwrap();
    }

    /// Ends one pod of a job with exit code 0.
    pub(crate) fn finish_one(&self, job: &str, index: usize) {
        self.end_pod(&self.pods(job)[index]);
    }

    /// Ends all pods of a job with exit code 0.
    pub(crate) fn finish(&self, job: &str) {
        for pod in self.pods(job).iter().filter(|pod| !has_ended(pod)) {
            self.end_pod(pod);
        }
    }

    /// Waits until a condition holds; panics with the state of all pods if it takes too long.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !holds() {
            assert!(
                Instant::now() < deadline,
                "timeout: {what}\n{}",
                self.describe_pods()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Describes all pods, for the message of a failing test.
    fn describe_pods(&self) -> String {
        let list = self.get(&format!("/api/v1/namespaces/{}/pods", self.namespace));
        let one = |pod: &Value| {
            let name = text_of(pod, "/metadata/name");
            let (node, phase) = (text_of(pod, "/spec/nodeName"), text_of(pod, "/status/phase"));
            format!("{name} node={node} phase={phase} {}", pending_reason(pod))
        };
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items
            .iter()
            .map(one)
            .chain(self.kubelet.iter().flat_map(Kubelet::rejected))
            .chain(self.machines.iter().map(Machine::logs))
            .collect::<Vec<_>>()
            .join("\n")
    }
}
