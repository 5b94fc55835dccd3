//! CPU and memory limits of tasks through cgroup v2, where the agent has write access.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{AgentError, IoResultExt};
use crate::task::record::TaskId;

/// Period over which CPU time is limited.
const PERIOD_US: u64 = 100_000;

/// Why cgroups cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error(transparent)]
    File(#[from] AgentError),
    #[error("this machine has no cgroup v2")]
    Unsupported,
    #[error("{}: missing controllers: expected cpu and memory", .0.display())]
    NoControllers(PathBuf),
}

/// The cgroup below which each task gets its own.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    root: PathBuf,
    has_cpuset: bool,
}

impl Cgroups {
    /// Prepares a cgroup for tasks; the agent's own by default.
    pub(crate) fn open(root: Option<&Path>) -> Result<Self, CgroupError> {
        let root = match root {
            Some(root) => root.to_owned(),
            None => own()?,
        };
        let path = root.join("cgroup.controllers");
        let controllers = fs::read_to_string(&path).at(&path)?;
        let has = |name: &str| controllers.split_ascii_whitespace().any(|c| c == name);
        if !has("cpu") || !has("memory") {
            return Err(CgroupError::NoControllers(root));
        }
        // A cgroup that delegates controllers must not contain processes, so the agent moves into a child.
        let agent = root.join("agent");
        fs::create_dir_all(&agent).at(&agent)?;
        put(&agent, "cgroup.procs", &std::process::id().to_string())?;
        put(&root, "cgroup.subtree_control", "+cpu +memory")?;
        let has_cpuset = has("cpuset") && put(&root, "cgroup.subtree_control", "+cpuset").is_ok();
        Ok(Self { root, has_cpuset })
    }

    /// Creates the cgroup of a task.
    pub(crate) fn create(
        &self,
        task: TaskId,
        cpus: &[u32],
        cpu_milli: u32,
        memory_mib: u64,
    ) -> Result<PathBuf, AgentError> {
        let path = self.root.join(format!("task-{task}"));
        fs::create_dir_all(&path).at(&path)?;
        self.limit(&path, cpus, cpu_milli, memory_mib)?;
        Ok(path)
    }

    /// Sets the limits of a task; zero means no limit.
    pub(crate) fn limit(
        &self,
        group: &Path,
        cpus: &[u32],
        cpu_milli: u32,
        memory_mib: u64,
    ) -> Result<(), AgentError> {
        let quota = match cpu_milli {
            0 => "max".to_owned(),
            milli => (u64::from(milli) * PERIOD_US / 1000).max(1000).to_string(),
        };
        put(group, "cpu.max", &format!("{quota} {PERIOD_US}"))?;
        let memory = match memory_mib {
            0 => "max".to_owned(),
            mib => (mib << 20).to_string(),
        };
        put(group, "memory.max", &memory)?;
        // The processes of a task are useless without one of them. Old kernels without this file kill just one.
        let _ = put(group, "memory.oom.group", "1");
        if self.has_cpuset && !cpus.is_empty() {
            let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
            put(group, "cpuset.cpus", &list.join(","))?;
        }
        Ok(())
    }
}

/// Moves the calling process into the cgroup of a task.
pub(crate) fn enter(group: &Path) -> Result<(), AgentError> {
    put(group, "cgroup.procs", "0")
}

/// Returns whether the kernel killed a process of the group because of its memory limit.
pub(crate) fn ran_out_of_memory(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("memory.events")).unwrap_or_default();
    let killed = |line: &str| {
        let count = line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok()?;
        Some(count > 0)
    };
    events.lines().any(|line| killed(line).unwrap_or(false))
}

/// Kills all processes of the group and removes it.
pub(crate) fn remove(group: &Path) {
    let _ = put(group, "cgroup.kill", "1");
    // The group becomes empty shortly after the last process is gone.
    for _ in 0..50 {
        match fs::remove_dir(group) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

fn own() -> Result<PathBuf, CgroupError> {
    let path = Path::new("/proc/self/cgroup");
    let text = fs::read_to_string(path).at(path)?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let group = group.ok_or(CgroupError::Unsupported)?;
    // A restarted agent is already in the child that it moved into.
    let group = group.strip_suffix("/agent").unwrap_or(group);
    Ok(Path::new("/sys/fs/cgroup").join(group))
}

fn put(group: &Path, file: &str, text: &str) -> Result<(), AgentError> {
    let path = group.join(file);
    fs::write(&path, text).at(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a plain folder that looks like a cgroup.
    fn folder(controllers: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        dir
    }

    #[test]
    fn limits_are_written_in_the_units_of_the_kernel() {
        let dir = folder("cpuset cpu io memory pids\n");
        let groups = Cgroups::open(Some(dir.path())).unwrap();
        let id = TaskId { job: 1, attempt: 2 };
        let group = groups.create(id, &[2, 3], 1500, 64).unwrap();
        let read = |name: &str| fs::read_to_string(group.join(name)).unwrap();
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("memory.max"), "67108864");
        assert_eq!(read("cpuset.cpus"), "2,3");
        groups.limit(&group, &[], 0, 0).unwrap();
        assert_eq!(
            (read("cpu.max"), read("memory.max")),
            ("max 100000".into(), "max".into())
        );
    }

    #[test]
    fn a_cgroup_without_the_controllers_is_rejected() {
        let dir = folder("hugetlb\n");
        let error = Cgroups::open(Some(dir.path())).unwrap_err();
        assert!(matches!(error, CgroupError::NoControllers(_)), "{error}");
        let error = Cgroups::open(Some(Path::new("/nowhere"))).unwrap_err();
        assert!(matches!(error, CgroupError::File(_)), "{error}");
    }

    #[test]
    fn out_of_memory_kills_are_counted_by_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!ran_out_of_memory(dir.path()));
        let events = dir.path().join("memory.events");
        fs::write(&events, "low 0\noom 1\noom_kill 0\n").unwrap();
        assert!(!ran_out_of_memory(dir.path()));
        fs::write(&events, "oom 1\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert!(ran_out_of_memory(dir.path()));
    }
}
