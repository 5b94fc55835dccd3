//! Limits of a task through cgroup v2, where the agent may write there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::task::record::Key;

/// The length of time over which CPU time is counted.
const PERIOD_US: u64 = 100_000;

/// The cgroup below which tasks get theirs.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    root: PathBuf,
    has_cpuset: bool,
}

impl Cgroups {
    /// Takes over a cgroup, the agent's own if none is given. The error says why there are no limits.
    pub(crate) fn open(given: Option<&Path>) -> Result<Self, String> {
        let root = match given {
            Some(root) => root.to_owned(),
            None => own()?,
        };
        let controllers = root.join("cgroup.controllers");
        let has = fs::read_to_string(&controllers).map_err(|e| said(&controllers, &e))?;
        let has = |name: &str| has.split_ascii_whitespace().any(|c| c == name);
        if !has("cpu") || !has("memory") {
            return Err(format!("{}: no controllers for cpu and memory", root.display()));
        }
        // A cgroup that hands on controllers has no processes of its own, so the agent moves into one below.
        let ours = root.join("agent");
        fs::create_dir_all(&ours).map_err(|e| said(&ours, &e))?;
        put(&ours, "cgroup.procs", &std::process::id().to_string())?;
        put(&root, "cgroup.subtree_control", "+cpu +memory")?;
        let has_cpuset = has("cpuset") && put(&root, "cgroup.subtree_control", "+cpuset").is_ok();
        Ok(Self { root, has_cpuset })
    }

    /// Makes the cgroup of a task.
    pub(crate) fn make(&self, key: Key, cpus: &[u32], cpu_milli: u32, mib: u64) -> Result<PathBuf, String> {
        let path = self.root.join(format!("task-{key}"));
        fs::create_dir_all(&path).map_err(|e| said(&path, &e))?;
        self.limit(&path, cpus, cpu_milli, mib)?;
        Ok(path)
    }

    /// Sets the limits of a task; zero is none.
    pub(crate) fn limit(&self, task: &Path, cpus: &[u32], cpu_milli: u32, mib: u64) -> Result<(), String> {
        let quota = match cpu_milli {
            0 => "max".to_owned(),
            milli => (u64::from(milli) * PERIOD_US / 1000).max(1000).to_string(),
        };
        put(task, "cpu.max", &format!("{quota} {PERIOD_US}"))?;
        let most = if mib == 0 {
            "max".to_owned()
        } else {
            (mib << 20).to_string()
        };
        put(task, "memory.max", &most)?;
        // A gang of processes is of no use without one of them. Kernels without this limit kill just one.
        let _ = put(task, "memory.oom.group", "1");
        if self.has_cpuset && !cpus.is_empty() {
            let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
            put(task, "cpuset.cpus", &list.join(","))?;
        }
        Ok(())
    }
}

/// Puts the calling process into the cgroup of a task.
pub(crate) fn enter(task: &Path) -> Result<(), String> {
    put(task, "cgroup.procs", "0")
}

/// Whether the kernel killed something there for want of memory.
pub(crate) fn ran_out_of_memory(task: &Path) -> bool {
    let events = fs::read_to_string(task.join("memory.events")).unwrap_or_default();
    let killed = |line: &str| {
        let count = line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok()?;
        Some(count > 0)
    };
    events.lines().any(|line| killed(line).unwrap_or(false))
}

/// Ends everything in the cgroup of a task, and takes the cgroup away when it is empty.
pub(crate) fn end(task: &Path) {
    let _ = put(task, "cgroup.kill", "1");
    // It is empty a moment after the last process is gone; what stays is swept with the task's folder.
    for _ in 0..50 {
        match fs::remove_dir(task) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

fn own() -> Result<PathBuf, String> {
    let path = Path::new("/proc/self/cgroup");
    let text = fs::read_to_string(path).map_err(|e| said(path, &e))?;
    let below = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let below = below.ok_or("there is no cgroup v2 on this machine")?;
    // An agent that starts anew is in the cgroup it moved to.
    let below = below.strip_suffix("/agent").unwrap_or(below);
    Ok(Path::new("/sys/fs/cgroup").join(below))
}

fn put(folder: &Path, file: &str, text: &str) -> Result<(), String> {
    let path = folder.join(file);
    fs::write(&path, text).map_err(|e| said(&path, &e))
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a cgroup; the kernel is not in it.
    fn folder(controllers: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        dir
    }

    #[test]
    fn limits_are_written_in_the_kernels_units() {
        let dir = folder("cpuset cpu io memory pids\n");
        let groups = Cgroups::open(Some(dir.path())).unwrap();
        let key = Key {
            job: 1,
            generation: 2,
        };
        let task = groups.make(key, &[2, 3], 1500, 64).unwrap();
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap();
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("memory.max"), "67108864");
        assert_eq!(read("cpuset.cpus"), "2,3");
        groups.limit(&task, &[], 0, 0).unwrap();
        assert_eq!(
            (read("cpu.max"), read("memory.max")),
            ("max 100000".into(), "max".into())
        );
    }

    #[test]
    fn without_controllers_it_says_why() {
        let dir = folder("hugetlb\n");
        assert!(
            Cgroups::open(Some(dir.path()))
                .unwrap_err()
                .contains("no controllers")
        );
        assert!(Cgroups::open(Some(Path::new("/nowhere"))).is_err());
    }

    #[test]
    fn the_kernels_count_of_kills_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!ran_out_of_memory(dir.path()));
        let events = dir.path().join("memory.events");
        fs::write(&events, "low 0\noom 1\noom_kill 0\n").unwrap();
        assert!(!ran_out_of_memory(dir.path()));
        fs::write(&events, "oom 1\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert!(ran_out_of_memory(dir.path()));
    }
}
