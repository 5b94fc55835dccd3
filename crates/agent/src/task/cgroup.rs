//! CPU and memory limits of tasks through cgroups, where the agent has write access: version 2, or the `cpu` and `memory`
//! hierarchies of version 1.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{AgentError, IoResultExt};
use crate::task::record::TaskId;

/// Period over which CPU time is limited.
const PERIOD_US: u64 = 100_000;

/// Where the hierarchies are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Why cgroups cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error(transparent)]
    File(#[from] AgentError),
    #[error("{}: missing controllers: expected cpu and memory", .0.display())]
    NoControllers(PathBuf),
    #[error("this machine has no cgroup with the controllers cpu and memory")]
    Unsupported,
}

/// The cgroups of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum TaskGroup {
    /// The cgroup of version 2.
    V2(PathBuf),
    /// One cgroup in each hierarchy of version 1. CPUs are chosen by affinity.
    V1 { cpu: PathBuf, memory: PathBuf },
}

/// The cgroup below which each task gets its own.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    parent: Parent,
    /// Prefix of the names of cgroups, which distinguishes the agents of one machine.
    prefix: String,
}

#[derive(Clone, Debug)]
enum Parent {
    V2 { root: PathBuf, has_cpuset: bool },
    V1 { cpu: PathBuf, memory: PathBuf },
}

impl Cgroups {
    /// Prepares cgroups for tasks: below `root`, which is of version 2, or below the agent's own.
    pub(crate) fn open(root: Option<&Path>, identity: u64) -> Result<Self, CgroupError> {
        let parent = match root {
            Some(root) => open_v2(root.to_owned())?,
            None => {
                let path = Path::new("/proc/self/cgroup");
                let text = fs::read_to_string(path).at(path)?;
                match own_v2(&text).map(open_v2) {
                    Some(Ok(parent)) => parent,
                    Some(Err(error)) => own_v1(&text).and_then(open_v1).ok_or(error)?,
                    None => own_v1(&text).and_then(open_v1).ok_or(CgroupError::Unsupported)?,
                }
            }
        };
        let prefix = format!("dovetail-{identity:016x}");
        Ok(Self { parent, prefix })
    }

    /// Returns the name of what limits tasks.
    pub(crate) fn name(&self) -> &'static str {
        match self.parent {
            Parent::V2 { .. } => "cgroup",
            Parent::V1 { .. } => "cgroup-v1",
        }
    }

    /// Creates the cgroup of a task.
    pub(crate) fn create(
        &self,
        task: TaskId,
        cpus: &[u32],
        cpu_milli: u32,
        memory_mib: u64,
    ) -> Result<TaskGroup, AgentError> {
        let name = format!("{}-task-{task}", self.prefix);
        let group = match &self.parent {
            Parent::V2 { root, .. } => TaskGroup::V2(root.join(name)),
            Parent::V1 { cpu, memory } => TaskGroup::V1 {
                cpu: cpu.join(&name),
                memory: memory.join(&name),
            },
        };
        for folder in group.folders() {
            fs::create_dir_all(folder).at(folder)?;
        }
        self.limit_cpu(&group, cpus, cpu_milli)?;
        group.limit_memory(memory_mib)?;
        Ok(group)
    }

    /// Limits the CPU of a task; zero means no limit.
    pub(crate) fn limit_cpu(
        &self,
        group: &TaskGroup,
        cpus: &[u32],
        cpu_milli: u32,
    ) -> Result<(), AgentError> {
        let quota_us = (cpu_milli > 0).then(|| (u64::from(cpu_milli) * PERIOD_US / 1000).max(1000));
        match group {
            TaskGroup::V2(group) => {
                put(
                    group,
                    "cpu.max",
                    &format!("{} {PERIOD_US}", limit_text(quota_us, "max")),
                )?;
                let has_cpuset = matches!(self.parent, Parent::V2 { has_cpuset: true, .. });
                if has_cpuset && !cpus.is_empty() {
                    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
                    put(group, "cpuset.cpus", &list.join(","))?;
                }
            }
            TaskGroup::V1 { cpu, .. } => {
                put(cpu, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
                put(cpu, "cpu.cfs_quota_us", &limit_text(quota_us, "-1"))?;
            }
        }
        Ok(())
    }
}

/// Returns a limit as the kernel expects it.
fn limit_text(limit: Option<u64>, none: &str) -> String {
    limit.map_or_else(|| none.to_owned(), |limit| limit.to_string())
}

impl TaskGroup {
    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let folders = match self {
            Self::V2(group) => [Some(group), None],
            Self::V1 { cpu, memory } => [Some(cpu), Some(memory)],
        };
        folders.into_iter().flatten()
    }

    /// Returns whether processes must be bound to CPUs besides.
    pub(crate) fn needs_affinity(&self) -> bool {
        matches!(self, Self::V1 { .. })
    }

    /// Limits the memory of a task; zero means no limit.
    ///
    /// # Errors
    /// If the limit is less than the task uses: to enforce it, the kernel would kill the task.
    pub(crate) fn limit_memory(&self, memory_mib: u64) -> Result<(), AgentError> {
        let bytes = (memory_mib > 0).then_some(memory_mib << 20);
        match self {
            Self::V2(group) => {
                let used = bytes.and_then(|_| used_bytes(group)).unwrap_or(0);
                if bytes.is_some_and(|bytes| bytes < used) {
                    return Err(AgentError::MemoryInUse {
                        limit_mib: memory_mib,
                        used_mib: used.div_ceil(1 << 20),
                    });
                }
                put(group, "memory.max", &limit_text(bytes, "max"))?;
                // The processes of a task are useless without one of them. Old kernels without this file kill just one.
                let _ = put(group, "memory.oom.group", "1");
                Ok(())
            }
            Self::V1 { memory, .. } => put(memory, "memory.limit_in_bytes", &limit_text(bytes, "-1")),
        }
    }

    /// Moves the calling process into the cgroup.
    pub(crate) fn enter(&self) -> Result<(), AgentError> {
        self.folders()
            .try_for_each(|folder| put(folder, "cgroup.procs", "0"))
    }

    /// Returns whether the kernel killed a process because of the memory limit.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let file = match self {
            Self::V2(group) => group.join("memory.events"),
            Self::V1 { memory, .. } => memory.join("memory.oom_control"),
        };
        let events = fs::read_to_string(file).unwrap_or_default();
        let killed = |line: &str| {
            let count = line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok()?;
            Some(count > 0)
        };
        events.lines().any(|line| killed(line).unwrap_or(false))
    }

    /// Kills all processes. Version 1 cannot, so the caller kills them by other means, too.
    pub(crate) fn kill(&self) {
        if let Self::V2(group) = self {
            let _ = put(group, "cgroup.kill", "1");
        }
    }

    /// Kills all processes and removes the cgroup.
    pub(crate) fn remove(&self) {
        self.kill();
        for folder in self.folders() {
            remove(folder);
        }
    }
}

/// Returns the memory of a cgroup of version 2 that the kernel cannot reclaim.
fn used_bytes(group: &Path) -> Option<u64> {
    let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
    let anonymous = |line: &str| line.strip_prefix("anon ")?.trim().parse().ok();
    stat.lines().find_map(anonymous)
}

/// Removes a cgroup, which becomes empty shortly after the last process is gone.
fn remove(folder: &Path) {
    for _ in 0..50 {
        match fs::remove_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

fn open_v2(root: PathBuf) -> Result<Parent, CgroupError> {
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
    Ok(Parent::V2 { root, has_cpuset })
}

/// Returns the agent's own cgroup of version 2, from the text of `/proc/self/cgroup`.
fn own_v2(text: &str) -> Option<PathBuf> {
    let group = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A restarted agent is already in the child that it moved into.
    let group = group.strip_suffix("agent").unwrap_or(group).trim_end_matches('/');
    Some(Path::new(MOUNT).join(group))
}

/// Returns the agent's own cgroups of version 1 for CPU and memory.
fn own_v1(text: &str) -> Option<(PathBuf, PathBuf)> {
    let of = |controller: &str| {
        let (names, group) = text.lines().find_map(|line| {
            let (names, group) = line.split_once(':')?.1.split_once(':')?;
            names
                .split(',')
                .any(|name| name == controller)
                .then_some((names, group))
        })?;
        Some(Path::new(MOUNT).join(names).join(group.trim_start_matches('/')))
    };
    Some((of("cpu")?, of("memory")?))
}

/// Checks that cgroups can be created below both.
fn open_v1((cpu, memory): (PathBuf, PathBuf)) -> Option<Parent> {
    for (parent, file) in [(&cpu, "cpu.cfs_quota_us"), (&memory, "memory.limit_in_bytes")] {
        let probe = parent.join(format!("dovetail-probe-{}", std::process::id()));
        let created = fs::create_dir(&probe);
        let is_usable = created.is_ok() && probe.join(file).exists();
        let _ = fs::remove_dir(&probe);
        if !is_usable {
            return None;
        }
    }
    Some(Parent::V1 { cpu, memory })
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

    const TASK: TaskId = TaskId { job: 1, attempt: 2 };

    #[test]
    fn limits_are_written_in_the_units_of_the_kernel() {
        let dir = folder("cpuset cpu io memory pids\n");
        let groups = Cgroups::open(Some(dir.path()), 7).unwrap();
        let group = groups.create(TASK, &[2, 3], 1500, 64).unwrap();
        let TaskGroup::V2(path) = &group else {
            panic!("{group:?}")
        };
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("memory.max"), "67108864");
        assert_eq!(read("cpuset.cpus"), "2,3");
        groups.limit_cpu(&group, &[], 0).unwrap();
        group.limit_memory(0).unwrap();
        assert_eq!(
            (read("cpu.max"), read("memory.max")),
            ("max 100000".into(), "max".into())
        );
        fs::write(path.join("memory.stat"), "anon 104857601\nfile 4096\n").unwrap();
        let error = group.limit_memory(100).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the limit of 100 MiB is less than the 101 MiB that the task uses"
        );
        group.limit_memory(101).unwrap();
        assert_eq!(read("memory.max"), "105906176");
    }

    #[test]
    fn version_1_has_one_cgroup_for_cpu_and_one_for_memory() {
        let dir = tempfile::tempdir().unwrap();
        let parent = Parent::V1 {
            cpu: dir.path().join("cpu"),
            memory: dir.path().join("memory"),
        };
        let prefix = "dovetail-7".to_owned();
        let groups = Cgroups { parent, prefix };
        let group = groups.create(TASK, &[0], 250, 64).unwrap();
        let TaskGroup::V1 { cpu, memory } = &group else {
            panic!("{group:?}")
        };
        assert_ne!(
            cpu.file_name().unwrap(),
            "task-1.2",
            "agents of one machine differ"
        );
        let read = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read(cpu, "cpu.cfs_quota_us"), "25000");
        assert_eq!(read(memory, "memory.limit_in_bytes"), "67108864");
        groups.limit_cpu(&group, &[], 0).unwrap();
        group.limit_memory(0).unwrap();
        assert_eq!(read(cpu, "cpu.cfs_quota_us"), "-1");
        assert_eq!(read(memory, "memory.limit_in_bytes"), "-1");
        fs::write(memory.join("memory.oom_control"), "under_oom 0\noom_kill 1\n").unwrap();
        assert!(group.ran_out_of_memory() && group.needs_affinity());
    }

    #[test]
    fn the_cgroups_of_this_process_are_found_in_both_versions() {
        let text = "5:cpuset:/\n4:memory:/a/b\n2:cpuacct,cpu:/x\n0::/user/agent\n";
        assert_eq!(own_v2(text), Some(Path::new(MOUNT).join("user")));
        let paths = ["cpuacct,cpu/x", "memory/a/b"].map(|p| Path::new(MOUNT).join(p));
        assert_eq!(own_v1(text), Some(paths.into()));
        assert_eq!(own_v1("0::/\n"), None);
    }

    #[test]
    fn records_name_cgroups_of_either_version() {
        let v2: TaskGroup = serde_json::from_str("\"/sys/fs/cgroup/task-1.2\"").unwrap();
        assert_eq!(v2, TaskGroup::V2("/sys/fs/cgroup/task-1.2".into()));
        let v1 = TaskGroup::V1 {
            cpu: "a".into(),
            memory: "b".into(),
        };
        let text = serde_json::to_string(&v1).unwrap();
        assert_eq!(serde_json::from_str::<TaskGroup>(&text).unwrap(), v1);
    }

    #[test]
    fn a_cgroup_without_the_controllers_is_rejected() {
        let dir = folder("hugetlb\n");
        let error = Cgroups::open(Some(dir.path()), 7).unwrap_err();
        assert!(matches!(error, CgroupError::NoControllers(_)), "{error}");
        let error = Cgroups::open(Some(Path::new("/nowhere")), 7).unwrap_err();
        assert!(matches!(error, CgroupError::File(_)), "{error}");
    }

    #[test]
    fn out_of_memory_kills_are_counted_by_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let group = TaskGroup::V2(dir.path().to_owned());
        assert!(!group.ran_out_of_memory());
        let events = dir.path().join("memory.events");
        fs::write(&events, "low 0\noom 1\noom_kill 0\n").unwrap();
        assert!(!group.ran_out_of_memory());
        fs::write(&events, "oom 1\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert!(group.ran_out_of_memory());
    }
}
