//! A cluster of real processes on loopback: a server, agents, and commands of users.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dovetail_kubelab::Subprocess;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const DOVETAIL: &str = env!("CARGO_BIN_EXE_dovetail");

/// A cluster that ends when the value is dropped or the test is killed. Its tasks end when their lease expires.
pub(crate) struct Cluster {
    dir: TempDir,
    http: u16,
    grpc: u16,
    /// Port that agents connect to: the server's, or that of a proxy.
    pub(crate) agents_connect_to: u16,
    pub(crate) gpus: u32,
    /// Further arguments of the agents.
    pub(crate) agent_args: Vec<String>,
    /// Environment of the agents that are started from now on.
    pub(crate) agent_env: Vec<(&'static str, PathBuf)>,
    server: Option<Subprocess>,
    agents: Vec<Option<Subprocess>>,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Short intervals, so that tests do not wait.
const SETTINGS: &str = "heartbeat: 0.2s\nmargin: 0.5s\n";
/// A lease that does not expire on a busy machine, for tests that are not about leases.
const LEASE: &str = "lease: 20s\n";

impl Cluster {
    /// Starts a server with these settings (YAML) and agents with `gpus` virtual GPUs each.
    pub(crate) fn start(nodes: usize, gpus: u32, settings: &str) -> Self {
        let mut cluster = Self::server_only(gpus, settings);
        for i in 0..nodes {
            cluster.start_agent(i);
            // One after the other, so that their order is known.
            cluster.until("the node has joined", |c| c.nodes_up() == i + 1);
        }
        cluster
    }

    /// Starts a server and agents with further arguments.
    pub(crate) fn start_with(nodes: usize, gpus: u32, agent_args: &[&str]) -> Self {
        let mut cluster = Self::server_only(gpus, "");
        cluster.agent_args = agent_args.iter().map(|a| (*a).to_owned()).collect();
        for i in 0..nodes {
            cluster.start_agent(i);
            cluster.until("the node has joined", |c| c.nodes_up() == i + 1);
        }
        cluster
    }

    /// Starts a server without agents.
    pub(crate) fn server_only(gpus: u32, settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let grpc = free_port();
        let mut cluster = Self {
            http: free_port(),
            grpc,
            agents_connect_to: grpc,
            gpus,
            agent_args: Vec::new(),
            agent_env: Vec::new(),
            server: None,
            agents: Vec::new(),
            dir,
        };
        let checkpoints = cluster.path("checkpoints");
        let lease = if settings.contains("lease:") { "" } else { LEASE };
        let text = format!(
            "{SETTINGS}{lease}checkpoints: {}\n{settings}",
            checkpoints.display()
        );
        fs::write(cluster.path("server.yaml"), text).unwrap();
        cluster.start_server();
        cluster
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn server_command(&self) -> Command {
        let mut command = Command::new(DOVETAIL);
        command
            .args(["server", "--config"])
            .arg(self.path("server.yaml"))
            .arg("--data")
            .arg(self.path("server"))
            .args(["--http", &format!("127.0.0.1:{}", self.http)])
            .args(["--grpc", &format!("127.0.0.1:{}", self.grpc)]);
        command
    }

    /// Starts the server and waits until it prints that it runs.
    pub(crate) fn start_server(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("server.log"))
            .unwrap();
        let mut command = self.server_command();
        let mut child = Subprocess::spawn(command.stdout(Stdio::piped()).stderr(log)).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        if !line.starts_with("Dovetail ") {
            let _ = child.wait();
            panic!("the server did not start: {}", self.read("server.log"));
        }
        self.server = Some(child);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Ends the server with a signal, by name, and waits for it.
    pub(crate) fn stop_server(&mut self, signal: &str) {
        let mut child = self.server.take().unwrap();
        send(&child, signal);
        child.wait().unwrap();
    }

    pub(crate) fn start_agent(&mut self, i: usize) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("agent-{i}.log")))
            .unwrap();
        let mut command = Command::new(DOVETAIL);
        command
            .args([
                "agent",
                "--server",
                &format!("127.0.0.1:{}", self.agents_connect_to),
            ])
            .arg("--token-file")
            .arg(self.path("server/join-token"))
            .args(["--name", &format!("n{i}")])
            .args(["--virtual-gpus", &self.gpus.to_string()])
            .args(&self.agent_args)
            .envs(self.agent_env.iter().map(|(name, value)| (name, value)))
            .arg("--data")
            .arg(self.path(&format!("agent-{i}")))
            .stdout(Stdio::null())
            .stderr(log);
        let child = Subprocess::spawn(&mut command).unwrap();
        if self.agents.len() <= i {
            self.agents.resize_with(i + 1, || None);
        }
        self.agents[i] = Some(child);
    }

    pub(crate) fn kill_agent(&mut self, i: usize) {
        let mut child = self.agents[i].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Returns the IDs of the processes of the server and the agents.
    pub(crate) fn processes(&self) -> Vec<String> {
        let running = self.agents.iter().chain([&self.server]).flatten();
        running.map(|process| process.id().to_string()).collect()
    }

    /// Port of the API.
    pub(crate) fn http_port(&self) -> u16 {
        self.http
    }

    /// Token of the administrator who started the server.
    pub(crate) fn token(&self) -> String {
        let file = self.read("server/client.yaml");
        let line = file.lines().find_map(|l| l.strip_prefix("token: "));
        line.unwrap().trim_matches('"').to_owned()
    }

    pub(crate) fn client(&self) -> PathBuf {
        self.path("server/client.yaml")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(DOVETAIL);
        command
            .args(args)
            .env("DOVETAIL_CONFIG", self.client())
            .env("NO_COLOR", "1")
            .current_dir(self.dir.path());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        Subprocess::output(&mut self.command(args)).unwrap().into()
    }

    /// Runs a command that must succeed and returns its standard output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, 0, "{args:?}: {output:?}");
        output.out.trim().to_owned()
    }

    /// Submits a job and returns its ID.
    pub(crate) fn submit(&self, flags: &[&str], command: &[&str]) -> u64 {
        let args = [&["run", "--detach"], flags, &["--"], command].concat();
        self.ok(&args).parse().unwrap()
    }

    pub(crate) fn job(&self, id: u64) -> Value {
        serde_json::from_str(&self.ok(&["job", "show", &id.to_string(), "-o", "json"])).unwrap()
    }

    pub(crate) fn state(&self, id: u64) -> String {
        self.job(id)["state"].as_str().unwrap().to_owned()
    }

    pub(crate) fn nodes(&self) -> Vec<Value> {
        serde_json::from_str(&self.ok(&["nodes", "-o", "json"])).unwrap()
    }

    fn nodes_up(&self) -> usize {
        let is_up = |n: &&Value| n["state"] == "up" && n["connected"] == true;
        self.nodes().iter().filter(is_up).count()
    }

    /// Waits until a condition holds; panics with the jobs and logs if it takes too long.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !holds(self) {
            if Instant::now() > deadline {
                let jobs = self.run(&["jobs", "--all", "-o", "wide"]);
                let logs: String = (0..self.agents.len())
                    .map(|i| tail(&self.read(&format!("agent-{i}.log"))))
                    .collect();
                panic!(
                    "timeout: {what}\n{}\n{}{logs}",
                    jobs.out,
                    tail(&self.read("server.log"))
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn until_state(&self, id: u64, state: &str) {
        self.until(&format!("job {id} is {state}"), |c| c.state(id) == state);
    }

    /// Waits until all jobs have ended; no GPU may be held then.
    pub(crate) fn until_idle(&self) {
        self.until("all jobs have ended", |c| {
            let output = c.run(&["jobs", "-o", "json"]);
            output.code == 0 && output.out.trim() == "[]"
        });
        assert!(
            self.nodes().iter().all(|n| n["used_gpus"] == 0),
            "a GPU is still held"
        );
    }

    pub(crate) fn log(&self, id: u64) -> String {
        self.ok(&["job", "logs", &id.to_string()])
    }

    /// Writes a file in the cluster's folder and returns its path.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(15).collect();
    lines.into_iter().rev().map(|l| format!("{l}\n")).collect()
}

/// Sends a signal, by name, to a process.
pub(crate) fn send(child: &Subprocess, signal: &str) {
    let status = Command::new("kill")
        .args(["-s", signal, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// Returns the name of Python, or prints `SKIPPED` if it is not installed.
pub(crate) fn python() -> Option<&'static str> {
    let installed = Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !installed {
        dovetail_testkit::skip("python3 is not installed");
    }
    installed.then_some("python3")
}

/// Returns the root of the repository.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
