//! An agent that runs as a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dovetail_kubelab::Subprocess;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::server::TestServer;

pub(crate) struct Agent {
    pub(crate) node: String,
    pub(crate) folder: PathBuf,
    settings: serde_json::Value,
    child: Subprocess,
    _dir: Option<tempfile::TempDir>,
}

impl Agent {
    /// Starts an agent in its own folder and waits until it is connected.
    pub(crate) async fn start(server: &TestServer, node: &str) -> Self {
        let agent = Self::start_with(server, node, serde_json::json!({}));
        server.hello(node, 1).await;
        agent
    }

    pub(crate) fn start_with(server: &TestServer, node: &str, more: serde_json::Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("agent");
        let mut settings = serde_json::json!({
            "node": node,
            "server": server.address,
            "folder": folder,
            "virtual_gpus": 4,
            "address": "127.0.0.1",
        });
        for (name, value) in more.as_object().unwrap() {
            settings[name] = value.clone();
        }
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("settings.json"), settings.to_string()).unwrap();
        let child = spawn(&folder, settings["disk_kib"].as_u64());
        Self {
            node: node.to_owned(),
            folder,
            settings,
            child,
            _dir: Some(dir),
        }
    }

    /// Kills the agent with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.folder, None);
    }

    /// Changes a setting for the next start.
    pub(crate) fn set(&mut self, name: &str, value: serde_json::Value) {
        self.settings[name] = value;
        std::fs::write(self.folder.join("settings.json"), self.settings.to_string()).unwrap();
    }

    /// Waits until the agent exits by itself, and returns its error output.
    pub(crate) fn wait_for_exit(mut self) -> String {
        use std::io::Read;
        let mut output = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut output)
            .unwrap();
        output
    }

    pub(crate) fn task(&self, name: &str) -> PathBuf {
        self.folder.join("tasks").join(name)
    }
}

impl Drop for Agent {
    /// Kills everything that was started here, however the test ends.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        kill_all(&self.folder);
    }
}

/// Kills the processes of all tasks.
fn kill_all(folder: &Path) {
    let tasks = std::fs::read_dir(folder.join("tasks"))
        .into_iter()
        .flatten()
        .flatten();
    for task in tasks {
        let Ok(text) = std::fs::read(task.path().join("shim.json")) else {
            continue;
        };
        if task.path().join("exit.json").exists() {
            continue;
        }
        let Ok(shim) = serde_json::from_slice::<serde_json::Value>(&text) else {
            continue;
        };
        let pids = shim["processes"].as_array().cloned().unwrap_or_default();
        for pid in pids.iter().filter_map(serde_json::Value::as_i64) {
            kill_group(pid);
        }
    }
}

/// Kills a process group. The program `kill` is not used, because some versions of it take `-9 -1234` as a request to
/// kill all processes.
fn kill_group(pid: i64) {
    let pid = i32::try_from(pid).unwrap();
    assert!(pid > 1, "not the process of a task: {pid}");
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Starts an agent, in a mount namespace with its own small disk if a size is given.
fn spawn(folder: &Path, disk_kib: Option<u64>) -> Subprocess {
    let harness = env!("CARGO_BIN_EXE_dovetail-agent-harness");
    let settings = folder.join("settings.json");
    let mut command = match disk_kib {
        None => Command::new(harness),
        Some(kib) => {
            let mut command = Command::new("unshare");
            let mount = format!(
                "text=$(cat {settings}); mount -t tmpfs -o size={kib}k none {folder} && \
                 echo \"$text\" > {settings} && exec \"$@\"",
                settings = settings.display(),
                folder = folder.display(),
            );
            command.args(["-m", "sh", "-c", &mount, "sh", harness]);
            command
        }
    };
    command
        .arg("agent")
        .arg(settings)
        .env("DOVETAIL_JOIN_TOKEN", "not for tasks")
        .stderr(Stdio::piped());
    Subprocess::spawn(&mut command).unwrap()
}
