//! Real nodes: a kubelet and a containerd each, which run containers on this machine. They need root, a few packages and
//! control groups of version 1 as tried, so a test skips where there is no such thing.
//!
//! Each runs in namespaces of its own (`tests/kubernetes/node.go`): when it ends, or this process does, its processes, mounts
//! and interfaces are gone with it, and settings of the whole machine were never touched.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::{Lab, LabError, binary};

/// The image that every real node has: busybox under all its names. Nothing is ever pulled.
pub const BUSYBOX: &str = "kubelab.test/busybox:1";

/// How long a node may take until it is ready, on a machine that is busy with others.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// How long its processes may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A node with a real kubelet. It ends with the value, and with the process.
#[derive(Debug)]
pub struct Machine {
    name: String,
    folder: PathBuf,
    child: Child,
}

impl Machine {
    /// Starts nodes with these names and feature gates of their kubelets, and waits until they are ready; `None` and a line that
    /// says `SKIPPED` where this machine cannot have them. They have to end before the lab does.
    ///
    /// # Panics
    /// When this machine could have them, but one does not start.
    pub fn start_or_skip(lab: &Lab, nodes: &[(&str, &str)]) -> Option<Vec<Self>> {
        let cni = match cni_if_able() {
            Ok(cni) => cni,
            Err(why) => {
                // Not with `eprintln`: the test runner keeps what a passing test says with it to itself.
                let _ = writeln!(std::io::stderr(), "SKIPPED: no real kubelet: {why}");
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
        let started: Result<_, LabError> = start();
        Some(started.unwrap_or_else(|e| panic!("{e}")))
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
            // It ends when its input does.
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
            let why = match self.child.try_wait() {
                Ok(Some(how)) => format!("ended ({how})"),
                _ if Instant::now() > deadline => "does not become ready".to_owned(),
                _ => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            return Err(LabError::Machine {
                name: self.name.clone(),
                why,
                log: self.logs(),
            });
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process that keeps it.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Has it offer so many GPUs, as a device plugin would.
    ///
    /// # Errors
    /// When the API server does not take it.
    pub fn set_gpus(&self, lab: &Lab, count: u32) -> Result<(), LabError> {
        let path = format!("/api/v1/nodes/{}/status", self.name);
        let has = json!({"nvidia.com/gpu": count.to_string()});
        let patch = json!({"status": {"capacity": has, "allocatable": has}});
        let answer = lab.request("PATCH", &path, Some(&patch))?;
        match answer.status {
            200 => Ok(()),
            _ => Err(LabError::Request {
                request: format!("PATCH {path}"),
                why: answer.body.to_string(),
            }),
        }
    }

    /// The ends of its logs.
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

/// Where the plugins of the network are, if this machine can have nodes at all.
fn cni_if_able() -> Result<&'static Path, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root".to_owned());
    }
    let folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let find = |program: &str| {
        let mut places = folders.iter().chain(&system).map(|folder| folder.join(program));
        places.find(|path| path.is_file())
    };
    for (program, package) in [
        ("containerd", "containerd"),
        ("ctr", "containerd"),
        ("runc", "runc"),
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
        ("busybox", "busybox-static"),
    ] {
        find(program).ok_or_else(|| format!("{program} is not installed (apt-get install {package})"))?;
    }
    let busybox = find("busybox")
        .and_then(|path| fs::read(path).ok())
        .unwrap_or_default();
    if [&b"/ld-linux"[..], b"/ld-musl"]
        .iter()
        .any(|l| busybox.windows(l.len()).any(|w| w == *l))
    {
        return Err("busybox needs libraries (apt-get install busybox-static)".to_owned());
    }
    let plugins = ["/usr/lib/cni", "/opt/cni/bin"].map(Path::new);
    let has = |folder: &&Path| {
        ["bridge", "host-local", "loopback"]
            .iter()
            .all(|p| folder.join(p).is_file())
    };
    let cni = plugins.into_iter().find(has).ok_or_else(|| {
        "plugins of the network are not installed (apt-get install containernetworking-plugins)".to_owned()
    })?;
    control_groups()?;
    let tried = Command::new("unshare")
        .args([
            "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "mount", "-t", "proc", "proc", "/proc",
        ])
        .output()
        .map_err(|e| format!("unshare: {e}"))?;
    match tried.status.success() {
        true => Ok(cni),
        false => Err(format!(
            "no namespaces: {}",
            String::from_utf8_lossy(&tried.stderr).trim()
        )),
    }
}

fn control_groups() -> Result<(), String> {
    let top = Path::new("/sys/fs/cgroup");
    if top.join("cgroup.controllers").exists() {
        // The kubelet and containerd both know version 2, but here it was never tried.
        return match std::env::var_os("KUBELAB_CGROUP2") {
            Some(_) => Ok(()),
            None => Err("control groups of version 2 were not tried; KUBELAB_CGROUP2=1 tries".to_owned()),
        };
    }
    for name in ["cpu", "cpuset", "memory", "devices", "pids"] {
        let group = top
            .join(name)
            .join(format!("kubelab-probe-{}", std::process::id()));
        fs::create_dir(&group)
            .and_then(|()| fs::remove_dir(&group))
            .map_err(|e| format!("no control groups: {}: {e}", group.display()))?;
    }
    Ok(())
}
