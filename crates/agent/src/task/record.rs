//! Records in the folder of a task, which are read again after a restart.
//!
//! A shim of an older version may still run when the agent is upgraded. It reads `stop.json` and writes `shim.json`,
//! `ends` and `exit.json`, so the keys of these records do not change.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dovetail_model::InterleavingTerms;
use dovetail_proto::v1::TaskKey;
use serde::{Deserialize, Serialize};

use crate::task::cgroup::TaskGroup;

/// Exit code of a trainer that was stopped after a step and has made a checkpoint (`EX_TEMPFAIL`).
pub(crate) const STOPPED_CODE: i32 = 75;

/// The part of an attempt that runs on this node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct TaskId {
    pub(crate) job: u64,
    #[serde(alias = "generation")]
    pub(crate) attempt: u64,
}

impl From<TaskKey> for TaskId {
    fn from(key: TaskKey) -> Self {
        Self {
            job: key.job,
            attempt: key.attempt,
        }
    }
}

impl From<TaskId> for TaskKey {
    fn from(id: TaskId) -> Self {
        Self {
            job: id.job,
            attempt: id.attempt,
        }
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.job, self.attempt)
    }
}

impl TaskId {
    /// Returns the task whose folder has this name.
    pub(crate) fn from_folder_name(name: &str) -> Option<Self> {
        let (job, attempt) = name.split_once('-')?;
        let id = Self {
            job: job.parse().ok()?,
            attempt: attempt.parse().ok()?,
        };
        (id.to_string() == name).then_some(id)
    }
}

/// What the shim runs: `spec.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskSpec {
    #[serde(alias = "key")]
    pub(crate) id: TaskId,
    /// Processes to start; empty if the first node of the gang starts all of them.
    pub(crate) processes: Vec<ProcessSpec>,
    pub(crate) workdir: PathBuf,
    pub(crate) account: Option<Account>,
    /// CPUs to run on; empty for all.
    pub(crate) cpus: Vec<u32>,
    /// NUMA domain nearest to its GPUs, from which it gets CPUs when it is resized.
    #[serde(default)]
    pub(crate) nearest: Option<usize>,
    pub(crate) cpu_milli: u32,
    pub(crate) memory_mib: u64,
    pub(crate) cgroup: Option<TaskGroup>,
    pub(crate) log_segment_bytes: u64,
    pub(crate) log_keep_bytes: u64,
    /// File with the end of the lease.
    pub(crate) lease_file: PathBuf,
    /// End of the lease when the task was started.
    pub(crate) lease_until_ms: u64,
    pub(crate) grace_ms: u64,
    /// Program of the shim and its first arguments.
    pub(crate) shim: Vec<PathBuf>,
    /// Secret with which a trainer proves that it belongs to the task.
    pub(crate) secret: String,
    /// Number of nodes of the gang.
    pub(crate) nodes: u32,
    pub(crate) sharing: String,
    /// GPU slots of the node.
    #[serde(default)]
    pub(crate) slots: Vec<u32>,
    /// How to interleave its stages with those of other tasks on the same GPUs, if they are to be.
    #[serde(default)]
    pub(crate) interleaving: Option<InterleavingTerms>,
    /// Role and index of each process; empty for a job without roles. When an instance fails, the others keep running
    /// and the server decides.
    #[serde(default)]
    pub(crate) instances: Vec<(String, u32)>,
    /// Deviations from the request.
    #[serde(default)]
    pub(crate) remarks: Vec<String>,
}

/// One process of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessSpec {
    pub(crate) rank: u32,
    pub(crate) command: Vec<String>,
    /// Variables added to the environment of the agent.
    pub(crate) env: BTreeMap<String, String>,
    /// Prefix of its lines in the log; empty for the only process of a task.
    #[serde(default)]
    pub(crate) tag: String,
    /// Container that it runs in.
    #[serde(default)]
    pub(crate) container: Option<Container>,
    /// Line written to the log before the process starts; empty for none.
    #[serde(default, alias = "first_words")]
    pub(crate) log_note: String,
}

/// A container, to be removed when the task ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    /// Program of the container runtime.
    pub(crate) runtime: PathBuf,
    pub(crate) name: String,
}

/// How an instance of a role ended: a line of `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceExit {
    /// Index in [`TaskSpec::processes`].
    pub(crate) process: usize,
    pub(crate) code: i32,
    pub(crate) signal: i32,
}

/// The account that a task runs as.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
}

/// A running shim and its processes: `shim.json`, written when all processes have been started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShimRecord {
    pub(crate) pid: u32,
    /// Start time of the shim in kernel ticks. It differs if the process ID is used again.
    pub(crate) start_ticks: u64,
    pub(crate) processes: Vec<u32>,
}

/// A request to stop a task: `stop.json`. Times are those of [`crate::clock::boot_ms`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StopRequest {
    pub(crate) reason: String,
    /// When to send SIGTERM; `None` if the trainers stop by themselves.
    pub(crate) terminate_at_ms: Option<u64>,
    /// When to send SIGKILL.
    pub(crate) kill_at_ms: u64,
    /// Step after which the trainers stop.
    pub(crate) after_step: Option<u64>,
}

/// How a task ended: `exit.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskExit {
    pub(crate) code: i32,
    pub(crate) signal: i32,
    /// Why the task could not be started or was lost; empty otherwise.
    pub(crate) platform_error: String,
    /// The task received a signal because of a stop request.
    pub(crate) was_signalled: bool,
    pub(crate) out_of_memory: bool,
}

impl TaskExit {
    /// Returns the exit of a task that could not be started or was lost.
    pub(crate) fn lost(reason: impl Into<String>) -> Self {
        Self {
            platform_error: reason.into(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_folder_names_are_tasks() {
        let id = TaskId { job: 12, attempt: 3 };
        assert_eq!(TaskId::from_folder_name("12-3"), Some(id));
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
            assert_eq!(TaskId::from_folder_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_spec_of_the_first_version_is_read() {
        let text = r#"{
            "key": {"job": 12, "generation": 3},
            "processes": [{"rank": 0, "command": ["true"], "env": {}, "tag": "", "first_words": "hello"}],
            "workdir": "/", "account": null, "cpus": [], "cpu_milli": 0, "memory_mib": 0, "cgroup": null,
            "log_segment_bytes": 1, "log_keep_bytes": 1, "lease_file": "/lease", "lease_until_ms": 1, "grace_ms": 1,
            "shim": [], "secret": "s", "nodes": 1, "sharing": ""
        }"#;
        let spec: TaskSpec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.id, TaskId { job: 12, attempt: 3 });
        assert_eq!(spec.processes[0].log_note, "hello");
    }
}
