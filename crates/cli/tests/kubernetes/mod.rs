//! A real control plane with two machines that are only objects, and the real binary in front of it.

#![allow(dead_code, reason = "each test uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_kubeapi::{Client, Patch};
use dovetail_kubelab::{Behaviour, EXIT_CODE, Kubelet, Lab, Machine, NodeApi, NodeShape, Settings};
use serde_json::{Value, json};

/// One control plane at a time: two cores are not many.
static TURN: Mutex<()> = Mutex::new(());

/// A process that ends with the value.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control plane, kubelets that are played, and the scheduler as a process.
pub(crate) struct Cluster {
    pub(crate) scheduler: Option<Running>,
    kubelet: Option<Kubelet>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) node_api: NodeApi,
    pub(crate) lab: Lab,
    pub(crate) kubeconfig: PathBuf,
    scheduler_kubeconfig: PathBuf,
    pub(crate) space: String,
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

/// The binary; what it prints.
pub(crate) fn dovetail(args: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dovetail"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(shown(&output.stdout)),
        false => Err(shown(&output.stderr)),
    }
}

/// Why a pod waits.
pub(crate) fn why(pod: &Value) -> String {
    let conditions = pod["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let said = conditions
        .iter()
        .find(|c| c["type"] == "PodScheduled" && c["status"] == "False");
    said.map(|c| text_of(c, "/message").to_owned())
        .unwrap_or_default()
}

/// Whether a pod is over.
pub(crate) fn over(pod: &Value) -> bool {
    matches!(text_of(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The nodes pods are or were on.
pub(crate) fn ran_on(pods: &[Value]) -> Vec<String> {
    let nodes = pods.iter().map(|p| text_of(p, "/spec/nodeName").to_owned());
    nodes.filter(|n| !n.is_empty()).collect()
}

impl Cluster {
    /// The two machines of Lab 6 with one of its configurations; none where the files or a control plane are not to be had.
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
        cluster.make_nodes();
        let config = cluster.shared.join("hived/configs").join(config);
        let objects = dovetail(&["kube", "convert", config.to_str().unwrap()], "").unwrap();
        // As people do it, once the server knows the kinds.
        let file = cluster.lab.folder().join("converted.yaml");
        std::fs::write(&file, objects).unwrap();
        cluster.until("kubectl applies it", || {
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

    /// Real nodes, each with a kubelet with these feature gates, a containerd and so many GPUs that nobody looks for, and this
    /// policy; none where this machine or a control plane cannot have them.
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

    /// A control plane that knows our kinds, without nodes.
    fn bare(turn: MutexGuard<'static, ()>, space: &str) -> Option<Self> {
        let controllers = ["job-controller", "garbage-collector-controller"];
        let lab = Lab::start_or_skip(&Settings::default().with_controllers(&controllers))?;
        let kubeconfig = lab.kubeconfig(lab.admin()).unwrap();
        let cluster = Self {
            scheduler: None,
            kubelet: None,
            machines: Vec::new(),
            node_api: NodeApi::start(&lab.authority().server().unwrap()).unwrap(),
            space: lab.namespace(space).unwrap(),
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

    fn make_nodes(&self) {
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

    /// From now on the scheduler has the rights of the account in these files, with jobs in the namespace of the test.
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
            let text = text.replace("namespace: training", &format!("namespace: {}", self.space));
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

    /// Starts the scheduler, or another one in its place.
    pub(crate) fn schedule(&mut self, more: &[&str]) {
        self.scheduler = None;
        let child = Command::new(env!("CARGO_BIN_EXE_dovetail"))
            .args(["kube", "scheduler", "--alone", "--kubeconfig"])
            .arg(&self.scheduler_kubeconfig)
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.scheduler = Some(Running(child));
    }

    pub(crate) fn client(&self) -> Client {
        self.lab.client()
    }

    /// Makes objects as they are to be, once the server knows their kinds.
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
            self.until("the server takes an object", || {
                let done = client.apply::<Value>(&path, "test", object);
                self.runtime.block_on(done).is_ok()
            });
        }
    }

    /// What `kubectl` prints.
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

    /// A job file of the lab.
    pub(crate) fn file(&self, number: u32) -> String {
        let path = self.shared.join(format!("pai/lab6/job-config-{number}.yaml"));
        std::fs::read_to_string(path).unwrap()
    }

    /// Sends a job file; the name of the job.
    pub(crate) fn submit(&self, user: &str, file: &str) -> String {
        let kubeconfig = self.kubeconfig.to_str().unwrap();
        let args = [
            "kube",
            "submit",
            "-",
            "--kubeconfig",
            kubeconfig,
            "-n",
            &self.space,
            "--user",
            user,
        ];
        dovetail(&args, file).unwrap().trim().to_owned()
    }

    /// Pods of a job, by name.
    pub(crate) fn pods(&self, job: &str) -> Vec<Value> {
        let path = format!(
            "/api/v1/namespaces/{}/pods?labelSelector=dovetail.io/sent-as={job}",
            self.space
        );
        let mut pods = self.get(&path)["items"].as_array().cloned().unwrap_or_default();
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods.sort_by_key(|pod| text_of(pod, "/metadata/name").to_owned());
        pods
    }

    /// The nodes on which pods of a job run, in order.
    pub(crate) fn running(&self, job: &str) -> Vec<String> {
        let mut pods = self.pods(job);
        pods.retain(|pod| pod["status"]["phase"] == "Running");
        let mut nodes = ran_on(&pods);
        nodes.sort();
        nodes
    }

    /// The nodes pods of a job hold, in order.
    pub(crate) fn bound(&self, job: &str) -> Vec<String> {
        let mut pods = self.pods(job);
        pods.retain(|pod| !over(pod));
        ran_on(&pods)
    }

    /// What pods of a job that wait are told.
    pub(crate) fn why(&self, job: &str) -> String {
        let pods = self.pods(job);
        pods.iter()
            .map(why)
            .find(|said| !said.is_empty())
            .unwrap_or_default()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        let list = self.get(&format!("/api/v1/namespaces/{}/events", self.space));
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|e| text_of(e, "/message").to_owned()).collect()
    }

    /// What the Job of this name has come to, such as `Complete`.
    pub(crate) fn end_of(&self, name: &str) -> Vec<String> {
        let job = self.get(&format!("/apis/batch/v1/namespaces/{}/jobs/{name}", self.space));
        let conditions = job["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let so = conditions.iter().filter(|c| c["status"] == "True");
        so.map(|c| text_of(c, "/type").to_owned()).collect()
    }

    /// Whether all Jobs of a job are complete.
    pub(crate) fn is_complete(&self, job: &str) -> bool {
        let path = format!(
            "/apis/batch/v1/namespaces/{}/jobs?labelSelector=dovetail.io/sent-as={job}",
            self.space
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

    /// Lets a pod end well.
    pub(crate) fn end_pod(&self, pod: &Value) {
        self.end_pod_with(pod, 0);
    }

    /// Lets a pod end with this code.
    pub(crate) fn end_pod_with(&self, pod: &Value, code: i32) {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}",
            self.space,
            text_of(pod, "/metadata/name")
        );
        let patch = json!({"metadata": {"annotations": {EXIT_CODE: code.to_string()}}});
        let client = self.client();
        self.runtime
            .block_on(client.patch::<Value>(&path, Patch::Merge, &patch))
            .unwrap();
    }

    /// Lets a pod of a job end well.
    pub(crate) fn finish_one(&self, job: &str, index: usize) {
        self.end_pod(&self.pods(job)[index]);
    }

    /// Lets all pods of a job end well.
    pub(crate) fn finish(&self, job: &str) {
        for pod in self.pods(job).iter().filter(|pod| !over(pod)) {
            self.end_pod(pod);
        }
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !is_so() {
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.picture());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How pods stand, for a test that fails.
    fn picture(&self) -> String {
        let list = self.get(&format!("/api/v1/namespaces/{}/pods", self.space));
        let one = |pod: &Value| {
            let name = text_of(pod, "/metadata/name");
            let (node, phase) = (text_of(pod, "/spec/nodeName"), text_of(pod, "/status/phase"));
            format!("{name} node={node} phase={phase} {}", why(pod))
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
