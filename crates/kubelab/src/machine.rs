//! Nodes with a real kubelet and containerd, which run containers on this machine. They need root, a few packages and control
//! groups of version 1; tests skip on machines without these.
//!
//! Each node runs in its own namespaces (`tests/kubernetes/node.go`): its processes, mounts and network interfaces end with it
//! or with this process, and settings of the whole machine are not changed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::machine_support::cni_plugins;
use crate::{Lab, LabError, binary};

/// Image that every real node has: busybox under all applet names. No images are pulled.
pub const BUSYBOX: &str = "kubelab.test/busybox:1";

/// Longest time until a node is ready; generous, because the machine may be busy.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// Longest time for its processes to end.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A node with a real kubelet. It ends when the value is dropped or this process ends.
#[derive(Debug)]
pub struct Machine {
    name: String,
    folder: PathBuf,
    child: Child,
}

impl Machine {
    /// Starts nodes with these names and kubelet feature gates and waits until they are ready. Prints a line with `SKIPPED` and
    /// returns `None` if this machine does not support them. The nodes must be dropped before the lab.
    ///
    /// # Panics
    /// If this machine supports nodes but one does not start.
    pub fn start_or_skip(lab: &Lab, nodes: &[(&str, &str)]) -> Option<Vec<Self>> {
        let cni = match cni_plugins() {
            Ok(cni) => cni,
            Err(reason) => {
                // Not with `eprintln`, whose output the test runner hides when the test passes.
                let _ = writeln!(std::io::stderr(), "SKIPPED: no real kubelet: {reason}");
                return None;
            }
        };
        let start = || {
            let numbered = nodes.iter().enumerate();
            let machines = numbered.map(|(number, node)| Self::launch(lab, *node, number, cni));
            let mut machines = machines.collect::<Result<Vec<_>, _>>()?;
            for machine in &mut machines {
                machine.wait(lab)?;
            }
            Ok(machines)
        };
        let result: Result<_, LabError> = start();
        Some(result.unwrap_or_else(|e| panic!("{e}")))
    }

    fn launch(lab: &Lab, (name, gates): (&str, &str), number: usize, cni: &Path) -> Result<Self, LabError> {
        let binary = binary()?;
        let folder = lab.folder().join(name);
        let path = lab.folder().join(format!("{name}.log"));
        let log = File::create(&path).map_err(LabError::file(&path))?;
        let other = log.try_clone().map_err(LabError::file(&path))?;
        let child = Command::new(&binary)
            .arg("node")
            .arg(format!("--folder={}", folder.display()))
            .arg(format!("--name={name}"))
            .arg(format!("--feature-gates={gates}"))
            .arg(format!("--number={number}"))
            .arg(format!("--api={}", lab.port()))
            .arg(format!("--kubeconfig={}", lab.kubeconfig(lab.admin())?.display()))
            .arg(format!("--client-ca={}", lab.folder().join("ca.pem").display()))
            .arg(format!("--cni={}", cni.display()))
            // The node ends when its standard input does.
            .stdin(Stdio::piped())
            .stdout(other)
            .stderr(log)
            .spawn()
            .map_err(LabError::file(&binary))?;
        let name = name.to_owned();
        Ok(Self { name, folder, child })
    }

    fn wait(&mut self, lab: &Lab) -> Result<(), LabError> {
        let path = format!("/api/v1/nodes/{}", self.name);
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let node = lab.request("GET", &path, None)?.body;
            let conditions = node["status"]["conditions"].as_array();
            let is_ready = |c: &serde_json::Value| c["type"] == "Ready" && c["status"] == "True";
            if conditions.is_some_and(|all| all.iter().any(is_ready)) {
                return Ok(());
            }
            let reason = match self.child.try_wait() {
                Ok(Some(status)) => format!("ended ({status})"),
                _ if Instant::now() > deadline => {
                    format!("was not ready after {} s", READY_WITHIN.as_secs())
                }
                _ => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            return Err(LabError::Machine {
                name: self.name.clone(),
                reason,
                log: self.logs(),
            });
        }
    }

    /// Returns the name of the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the ID of the process that runs the node.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sets the number of GPUs of the node, like a device plugin.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub fn set_gpus(&self, lab: &Lab, count: u32) -> Result<(), LabError> {
        let path = format!("/api/v1/nodes/{}/status", self.name);
        let resources = json!({"nvidia.com/gpu": count.to_string()});
        let patch = json!({"status": {"capacity": resources, "allocatable": resources}});
        let response = lab.request("PATCH", &path, Some(&patch))?;
        match response.status {
            200 => Ok(()),
            _ => Err(LabError::Request {
                request: format!("PATCH {path}"),
                reason: response.body.to_string(),
            }),
        }
    }

    /// Returns the last lines of its logs.
    pub fn logs(&self) -> String {
        let own = self.folder.with_extension("log");
        let logs = [
            own,
            self.folder.join("containerd.log"),
            self.folder.join("kubelet.log"),
        ];
        let tail = |path: &PathBuf| {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().rev().take(15).collect();
            lines
                .into_iter()
                .rev()
                .map(|l| format!("{l}\n"))
                .collect::<String>()
        };
        logs.iter().map(tail).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + ENDS_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
