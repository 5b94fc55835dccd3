//! What is written about a task, and read back after a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dovetail_proto::v1::TaskKey;
use serde::{Deserialize, Serialize};

/// One launch of a job on this node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) job: u64,
    pub(crate) generation: u64,
}

impl From<TaskKey> for Key {
    fn from(key: TaskKey) -> Self {
        Self {
            job: key.job,
            generation: key.generation,
        }
    }
}

impl From<Key> for TaskKey {
    fn from(key: Key) -> Self {
        Self {
            job: key.job,
            generation: key.generation,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.job, self.generation)
    }
}

impl Key {
    /// The key whose folder has this name.
    pub(crate) fn of_folder(name: &str) -> Option<Self> {
        let (job, generation) = name.split_once('-')?;
        let key = Self {
            job: job.parse().ok()?,
            generation: generation.parse().ok()?,
        };
        (key.to_string() == name).then_some(key)
    }
}

/// What the shim does: `spec.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) key: Key,
    /// None if the first node of the gang starts everything.
    pub(crate) processes: Vec<Process>,
    pub(crate) workdir: PathBuf,
    pub(crate) account: Option<Account>,
    /// CPUs to run on; all if empty.
    pub(crate) cpus: Vec<u32>,
    pub(crate) cpu_milli: u32,
    pub(crate) memory_mib: u64,
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) log_segment_bytes: u64,
    pub(crate) log_keep_bytes: u64,
    /// Where the agent writes until when tasks may run.
    pub(crate) lease_file: PathBuf,
    /// What stood there at the start.
    pub(crate) lease_until_ms: u64,
    pub(crate) grace_ms: u64,
    /// The program of the shim and its first arguments.
    pub(crate) shim: Vec<PathBuf>,
    /// By this a trainer shows that it belongs to the task.
    pub(crate) secret: String,
    /// Nodes of the gang.
    pub(crate) nodes: u32,
    pub(crate) sharing: String,
    /// Role and index of each process, for a job with roles. One that fails leaves the others alone: the scheduler
    /// decides.
    #[serde(default)]
    pub(crate) instances: Vec<(String, u32)>,
    /// What is not as it was asked for.
    #[serde(default)]
    pub(crate) remarks: Vec<String>,
}

/// One process of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) rank: u32,
    pub(crate) command: Vec<String>,
    /// On top of the agent's own environment.
    pub(crate) env: BTreeMap<String, String>,
    /// What its lines in the log begin with; empty where there is nobody to be told from.
    #[serde(default)]
    pub(crate) tag: String,
    /// The container it runs in, if it does.
    #[serde(default)]
    pub(crate) container: Option<Container>,
    /// What it says first in its log.
    #[serde(default)]
    pub(crate) first_words: String,
}

/// A container, so that it can be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    /// The program of the runtime.
    pub(crate) runtime: PathBuf,
    pub(crate) name: String,
}

/// How an instance of a role ended: a line of `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceExit {
    /// Which process of the task.
    pub(crate) process: usize,
    pub(crate) code: i32,
    pub(crate) signal: i32,
}

/// Who a task runs as.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
}

/// The processes: `shim.json`, written when all have been started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    /// When it was started, in the kernel's ticks: a number that is used again has another one.
    pub(crate) start_ticks: u64,
    pub(crate) processes: Vec<u32>,
}

/// That a task is to stop: `stop.json`. Times are of [`crate::clock`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stop {
    pub(crate) reason: String,
    /// When it gets SIGTERM; never if not given, because its trainers stop by themselves.
    pub(crate) terminate_at_ms: Option<u64>,
    /// When it gets SIGKILL.
    pub(crate) kill_at_ms: u64,
    /// The step after which its trainers stop.
    pub(crate) after_step: Option<u64>,
}

/// How a task ended: `exit.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    pub(crate) signal: i32,
    /// Empty if its processes were started and seen to end.
    pub(crate) platform_error: String,
    /// It was given a signal because it was to stop.
    pub(crate) was_signalled: bool,
    pub(crate) out_of_memory: bool,
}

impl Exit {
    pub(crate) fn lost(why: impl Into<String>) -> Self {
        Self {
            platform_error: why.into(),
            ..Self::default()
        }
    }
}

/// A trainer that was stopped after a step and has made its checkpoint ends with this code (`EX_TEMPFAIL`).
pub(crate) const STOPPED_CODE: i32 = 75;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_task_folders_are_keys() {
        let key = Key {
            job: 12,
            generation: 3,
        };
        assert_eq!(Key::of_folder("12-3"), Some(key));
        for name in [
            "",
            "12",
            "12-",
            "-3",
            "12-3-4",
            "+12-3",
            "012-3",
            "12-x",
            "lost+found",
        ] {
            assert_eq!(Key::of_folder(name), None, "{name}");
        }
    }
}
