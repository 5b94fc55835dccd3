//! The cluster on which the jobs run: a server with agents in a process of its own, or an existing one.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dovetail_client::{Client, percent_encode};
use dovetail_cluster::{JobId, OperatorAction, PolicyText};
use dovetail_jobfile::JobFile;
use dovetail_kubelab::Subprocess;
use dovetail_web::views::{ClusterView, JobPage, JobView, NodeView, Operation, Submission, SubmitResponse};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{LiveOptions, TestbedError};

/// Label of the jobs of a run.
const LABEL: &str = "testbed";
/// Interval at which states are read.
pub(crate) const POLL: Duration = Duration::from_millis(200);
/// Bound on the start of the nodes.
const START: Duration = Duration::from_secs(60);
/// Bound on the end of the jobs that are stopped, and then on that of the server.
const STOP: Duration = Duration::from_secs(20);
/// Time between SIGTERM and SIGKILL when a job is stopped.
const GRACE_S: u32 = 5;

/// A cluster and how to reach it.
pub(crate) struct LiveCluster {
    client: Client,
    /// The server, if it was started for this run.
    server: Option<Subprocess>,
    /// The policy to restore in an existing cluster.
    policy_before: Option<PolicyText>,
    /// Working folder of the jobs.
    workdir: PathBuf,
    /// Value of the label of this run's jobs.
    run: String,
    pub(crate) nodes: u32,
    pub(crate) gpus_per_node: u32,
}

impl LiveCluster {
    /// Starts a cluster in this folder, or connects to an existing one.
    pub(crate) async fn open(options: &LiveOptions, folder: &Path) -> Result<Self, TestbedError> {
        let run = format!("{}-{}", std::process::id(), now_s());
        let Some(config) = &options.cluster else {
            let server = start_server(options, folder)?;
            let cluster = Self {
                client: Client::open(Some(&folder.join("server/client.yaml")))?,
                server: Some(server),
                policy_before: None,
                workdir: folder.to_owned(),
                run,
                nodes: options.nodes,
                gpus_per_node: options.gpus,
            };
            cluster.wait_for_nodes().await?;
            return Ok(cluster);
        };
        let client = Client::open(Some(config))?;
        let (nodes, gpus_per_node) = usable_nodes(&client).await?;
        let view: ClusterView = client.get("/api/v1/cluster").await?;
        Ok(Self {
            client,
            server: None,
            policy_before: Some(PolicyText {
                policy: view.policy,
                parts: view.parts,
            }),
            workdir: PathBuf::from("/tmp"),
            run,
            nodes,
            gpus_per_node,
        })
    }

    /// Returns the number of GPUs.
    pub(crate) fn gpus(&self) -> u32 {
        self.nodes * self.gpus_per_node
    }

    async fn wait_for_nodes(&self) -> Result<(), TestbedError> {
        let deadline = Instant::now() + START;
        loop {
            let nodes: Vec<NodeView> = self.client.get("/api/v1/nodes").await?;
            if nodes.iter().filter(|node| is_up(node)).count() == self.nodes as usize {
                return Ok(());
            }
            if Instant::now() > deadline {
                let log = format!("{} of {} nodes have joined", nodes.len(), self.nodes);
                return Err(TestbedError::NotStarted { log });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Replaces the policy.
    pub(crate) async fn set_policy(&self, policy: PolicyText) -> Result<(), TestbedError> {
        let operate = OperatorAction::Policy(policy);
        let _: ClusterView = self
            .client
            .post("/api/v1/operate", &Operation { operate })
            .await?;
        Ok(())
    }

    /// Submits a job with these keys of a job file and returns its id.
    pub(crate) async fn submit(&self, job: &str, keys: Value) -> Result<JobId, TestbedError> {
        let Value::Object(mut keys) = keys else {
            return Ok(0);
        };
        keys.insert("labels".to_owned(), json!({ LABEL: self.run }));
        keys.insert("workdir".to_owned(), json!(self.workdir));
        keys.insert("grace".to_owned(), json!(format!("{GRACE_S}s")));
        // The tiny models are slower with several threads on a busy machine.
        keys.insert("env".to_owned(), json!({ "OMP_NUM_THREADS": "1" }));
        let file = JobFile::from_keys(keys).map_err(|source| TestbedError::InvalidJob {
            job: job.to_owned(),
            source,
        })?;
        let submission = Submission::new(file, false);
        let submitted: SubmitResponse = self.client.post("/api/v1/jobs", &submission).await?;
        Ok(submitted.id.unwrap_or_default())
    }

    /// Returns a job with its attempts.
    pub(crate) async fn job(&self, id: JobId) -> Result<JobView, TestbedError> {
        Ok(self.client.get(&format!("/api/v1/jobs/{id}")).await?)
    }

    /// Returns those jobs of this run that have not ended.
    pub(crate) async fn unfinished(&self) -> Result<Vec<JobId>, TestbedError> {
        let label = percent_encode(&format!("{LABEL}={}", self.run));
        let path = format!("/api/v1/jobs?limit=10000&state=unfinished&label={label}");
        let page: JobPage = self.client.get(&path).await?;
        Ok(page.jobs.iter().map(|job| job.id).collect())
    }

    /// Reads a list of the API.
    pub(crate) async fn profiles(&self) -> Result<Vec<dovetail_web::views::ProfileView>, TestbedError> {
        Ok(self.client.get("/api/v1/profiles").await?)
    }

    /// Stops what is left of the jobs, and then the server, or restores the policy of an existing cluster.
    pub(crate) async fn close(mut self) -> Result<(), TestbedError> {
        let stopped = self.stop_jobs().await;
        if let Some(policy) = self.policy_before.take() {
            self.set_policy(policy).await?;
        }
        if let Some(mut server) = self.server.take() {
            end(&mut server).await;
        }
        stopped
    }

    async fn stop_jobs(&self) -> Result<(), TestbedError> {
        let mut unfinished = self.unfinished().await?;
        for id in &unfinished {
            let path = format!("/api/v1/jobs/{id}/stop");
            // It may have ended in the meantime.
            let _: Result<JobView, _> = self.client.post(&path, &json!({})).await;
        }
        let deadline = Instant::now() + STOP;
        while !unfinished.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
            unfinished = self.unfinished().await?;
        }
        Ok(())
    }
}

/// Starts `dovetail up` and waits until it serves. It has a process group of its own, so that Ctrl-C reaches this process alone.
fn start_server(options: &LiveOptions, folder: &Path) -> Result<Subprocess, TestbedError> {
    let log = folder.join("server.log");
    let program = std::env::current_exe().map_err(TestbedError::Start)?;
    let errors = File::create(&log).map_err(TestbedError::Start)?;
    let mut command = Command::new(program);
    command
        .args(["up", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
        .args(["--nodes", &options.nodes.to_string()])
        .args(["--virtual-gpus", &options.gpus.to_string(), "--data"])
        .arg(folder.join("server"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .process_group(0);
    let mut server = Subprocess::spawn(&mut command).map_err(TestbedError::Start)?;
    let mut line = String::new();
    if let Some(output) = server.stdout.take() {
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(TestbedError::Start)?;
    }
    if line.is_empty() {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let log = text.lines().last().unwrap_or("it ended at once").to_owned();
        return Err(TestbedError::NotStarted { log });
    }
    Ok(server)
}

/// Ends the server with SIGTERM; with SIGKILL if that takes too long, when the value is dropped.
async fn end(server: &mut Subprocess) {
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + STOP;
    while matches!(server.try_wait(), Ok(None)) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the number of nodes of an existing cluster and of GPUs on each.
async fn usable_nodes(client: &Client) -> Result<(u32, u32), TestbedError> {
    let unsuitable = |reason: String| TestbedError::Unsuitable {
        server: client.server().to_owned(),
        reason,
    };
    let nodes: Vec<NodeView> = client.get("/api/v1/nodes").await?;
    let nodes: Vec<&NodeView> = nodes.iter().filter(|node| is_up(node) && node.gpus > 0).collect();
    let gpus = nodes
        .first()
        .map(|node| node.gpus)
        .ok_or_else(|| unsuitable("no node with GPUs is up".to_owned()))?;
    if let Some(other) = nodes.iter().find(|node| node.gpus != gpus) {
        return Err(unsuitable(format!(
            "{} has {gpus} GPUs and {} has {}; the forecast requires equal nodes",
            nodes[0].name, other.name, other.gpus
        )));
    }
    if let Some(busy) = nodes.iter().find(|node| !node.jobs.is_empty()) {
        return Err(unsuitable(format!(
            "job {} runs on {}; the comparison requires an idle cluster",
            busy.jobs[0], busy.name
        )));
    }
    Ok((u32::try_from(nodes.len()).unwrap_or(u32::MAX), gpus))
}

fn is_up(node: &NodeView) -> bool {
    node.state == "up" && node.connected
}

fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
