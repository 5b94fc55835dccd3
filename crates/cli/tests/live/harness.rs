//! A cluster of real processes on loopback: a server, agents, and what people type.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const DOVETAIL: &str = env!("CARGO_BIN_EXE_dovetail");

/// A cluster that ends with the value: its tasks end when their lease is over.
pub(crate) struct Cluster {
    dir: TempDir,
    http: u16,
    grpc: u16,
    /// Where agents dial: the server, or something in between.
    pub(crate) dial: u16,
    pub(crate) gpus: u32,
    /// What agents are started with beside the rest.
    pub(crate) agent_args: Vec<String>,
    server: Option<Child>,
    agents: Vec<Option<Child>>,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Settings that lose no time in tests.
const SETTINGS: &str = "heartbeat: 0.2s\nmargin: 0.5s\n";
/// A lease that a busy machine does not let run out, where the test is not about that.
const LEASE: &str = "lease: 20s\n";

impl Cluster {
    /// A server and so many agents with so many virtual GPUs each; `settings` go to the server's file.
    pub(crate) fn start(nodes: usize, gpus: u32, settings: &str) -> Self {
        let mut cluster = Self::server_only(gpus, settings);
        for i in 0..nodes {
            cluster.start_agent(i);
            // One after the other, so that their order is known.
            cluster.until("the node is there", |c| c.nodes_up() == i + 1);
        }
        cluster
    }

    /// The same, with agents that are told more.
    pub(crate) fn start_with(nodes: usize, gpus: u32, agent_args: &[&str]) -> Self {
        let mut cluster = Self::server_only(gpus, "");
        cluster.agent_args = agent_args.iter().map(|a| (*a).to_owned()).collect();
        for i in 0..nodes {
            cluster.start_agent(i);
            cluster.until("the node is there", |c| c.nodes_up() == i + 1);
        }
        cluster
    }

    /// Only the server.
    pub(crate) fn server_only(gpus: u32, settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let grpc = free_port();
        let mut cluster = Self {
            http: free_port(),
            grpc,
            dial: grpc,
            gpus,
            agent_args: Vec::new(),
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

    /// Starts the server and waits until it says so.
    pub(crate) fn start_server(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("server.log"))
            .unwrap();
        let mut child = self
            .server_command()
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        if !line.starts_with("Dovetail ") {
            let _ = child.wait();
            panic!("the server does not start: {}", self.read("server.log"));
        }
        self.server = Some(child);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Ends the server as an operator would, or at once.
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
        let child = Command::new(DOVETAIL)
            .args(["agent", "--server", &format!("127.0.0.1:{}", self.dial)])
            .arg("--token-file")
            .arg(self.path("server/join-token"))
            .args(["--name", &format!("n{i}")])
            .args(["--virtual-gpus", &self.gpus.to_string()])
            .args(&self.agent_args)
            .arg("--data")
            .arg(self.path(&format!("agent-{i}")))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
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

    /// Where the API is.
    pub(crate) fn http_port(&self) -> u16 {
        self.http
    }

    /// The token of the one who started the server.
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

    /// What a command says.
    pub(crate) fn say(&self, args: &[&str]) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// What a command prints that must end well.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.say(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.out.trim().to_owned()
    }

    /// Sends a job; its number.
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

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !is_so(self) {
            if Instant::now() > deadline {
                let jobs = self.say(&["jobs", "--all", "-o", "wide"]);
                let logs: String = (0..self.agents.len())
                    .map(|i| tail(&self.read(&format!("agent-{i}.log"))))
                    .collect();
                panic!(
                    "never: {what}\n{}\n{}{logs}",
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

    /// Waits until no job is left that is not over, and no GPU is held.
    pub(crate) fn until_idle(&self) {
        self.until("all jobs are over", |c| {
            let said = c.say(&["jobs", "-o", "json"]);
            said.code == 0 && said.out.trim() == "[]"
        });
        assert!(
            self.nodes().iter().all(|n| n["used_gpus"] == 0),
            "a GPU is still held"
        );
    }

    pub(crate) fn log(&self, id: u64) -> String {
        self.ok(&["job", "logs", &id.to_string()])
    }

    /// A script in the cluster's folder.
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

/// Sends a signal by name to a child.
pub(crate) fn send(child: &Child, signal: &str) {
    let status = Command::new("kill")
        .args(["-s", signal, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.agents.iter_mut().chain([&mut self.server]).flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Python, where it is; else a loud word.
pub(crate) fn python() -> Option<&'static str> {
    let there = Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("SKIPPED: python3 is not installed");
    }
    there.then_some("python3")
}

/// The project's folder.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
