//! Checks whether this machine can run nodes with a real kubelet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why this machine cannot run nodes with a real kubelet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsupported {
    #[error("root is required")]
    NotRoot,
    #[error("{program} is not installed (apt-get install {package})")]
    MissingProgram {
        program: &'static str,
        package: &'static str,
    },
    #[error("busybox is not a static binary (apt-get install busybox-static)")]
    DynamicBusybox,
    #[error("CNI plugins are not installed (apt-get install containernetworking-plugins)")]
    MissingPlugins,
    #[error("control groups of version 2 are untested; set KUBELAB_CGROUP2=1 to use them")]
    UntestedCgroupVersion,
    #[error("failed to create control group {}: {source}", path.display())]
    Cgroups { path: PathBuf, source: io::Error },
    #[error("unshare: {0}")]
    Unshare(io::Error),
    #[error("failed to create namespaces: {0}")]
    Namespaces(String),
}

/// Programs that a node needs, with their Debian packages.
const PROGRAMS: [(&str, &str); 6] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("busybox", "busybox-static"),
];

/// Checks the requirements and returns the folder of the CNI plugins.
pub(crate) fn cni_plugins() -> Result<&'static Path, Unsupported> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unsupported::NotRoot);
    }
    check_programs()?;
    let folders = ["/usr/lib/cni", "/opt/cni/bin"].map(Path::new);
    let has_plugins = |folder: &&Path| {
        ["bridge", "host-local", "loopback"]
            .iter()
            .all(|p| folder.join(p).is_file())
    };
    let plugins = folders.into_iter().find(has_plugins);
    let plugins = plugins.ok_or(Unsupported::MissingPlugins)?;
    check_cgroups()?;
    check_namespaces()?;
    Ok(plugins)
}

fn check_programs() -> Result<(), Unsupported> {
    let folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let find = |program: &str| {
        let mut paths = folders.iter().chain(&system).map(|folder| folder.join(program));
        paths.find(|path| path.is_file())
    };
    for (program, package) in PROGRAMS {
        find(program).ok_or(Unsupported::MissingProgram { program, package })?;
    }
    let busybox = find("busybox")
        .and_then(|path| fs::read(path).ok())
        .unwrap_or_default();
    let loaders = [&b"/ld-linux"[..], b"/ld-musl"];
    let is_dynamic = loaders
        .iter()
        .any(|loader| busybox.windows(loader.len()).any(|bytes| bytes == *loader));
    match is_dynamic {
        true => Err(Unsupported::DynamicBusybox),
        false => Ok(()),
    }
}

fn check_cgroups() -> Result<(), Unsupported> {
    let top = Path::new("/sys/fs/cgroup");
    if top.join("cgroup.controllers").exists() {
        return match std::env::var_os("KUBELAB_CGROUP2") {
            Some(_) => Ok(()),
            None => Err(Unsupported::UntestedCgroupVersion),
        };
    }
    for name in ["cpu", "cpuset", "memory", "devices", "pids"] {
        let path = top
            .join(name)
            .join(format!("kubelab-probe-{}", std::process::id()));
        fs::create_dir(&path)
            .and_then(|()| fs::remove_dir(&path))
            .map_err(|source| Unsupported::Cgroups { path, source })?;
    }
    Ok(())
}

fn check_namespaces() -> Result<(), Unsupported> {
    let output = Command::new("unshare")
        .args([
            "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "mount", "-t", "proc", "proc", "/proc",
        ])
        .output()
        .map_err(Unsupported::Unshare)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let message = String::from_utf8_lossy(&output.stderr);
            Err(Unsupported::Namespaces(message.trim().to_owned()))
        }
    }
}
