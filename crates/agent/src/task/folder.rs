//! The folder of a task.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{AgentError, IoResultExt};
use crate::files;
use crate::task::record::{InstanceExit, ShimRecord, StopRequest, TaskExit, TaskId, TaskSpec};

/// The files of one task.
#[derive(Clone, Debug)]
pub(crate) struct TaskFolder {
    path: PathBuf,
}

impl TaskFolder {
    /// Returns the folder of a task below the agent's folder.
    pub(crate) fn of(agent: &Path, task: TaskId) -> Self {
        Self {
            path: agent.join("tasks").join(task.to_string()),
        }
    }

    pub(crate) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder in which the task's user may write reports: `checkpoint.RANK`.
    pub(crate) fn reports(&self) -> PathBuf {
        self.path.join("reports")
    }

    /// Returns the working folder of a task with roles that names none.
    pub(crate) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Returns the file that is written when the task is to stop. It contains the reason.
    pub(crate) fn notice(&self) -> PathBuf {
        self.path.join("stop-notice")
    }

    /// Returns the host file for `mpirun`.
    pub(crate) fn hostfile(&self) -> PathBuf {
        self.path.join("hosts")
    }

    pub(crate) fn shim_log(&self) -> PathBuf {
        self.path.join("shim.log")
    }

    pub(crate) fn spec(&self) -> Result<Option<TaskSpec>, AgentError> {
        files::read_json(&self.path.join("spec.json"))
    }

    pub(crate) fn write_spec(&self, spec: &TaskSpec) -> Result<(), AgentError> {
        files::write_json_quick(&self.path.join("spec.json"), spec)
    }

    pub(crate) fn shim(&self) -> Result<Option<ShimRecord>, AgentError> {
        files::read_json(&self.path.join("shim.json"))
    }

    pub(crate) fn write_shim(&self, shim: &ShimRecord) -> Result<(), AgentError> {
        files::write_json_quick(&self.path.join("shim.json"), shim)
    }

    pub(crate) fn stop(&self) -> Result<Option<StopRequest>, AgentError> {
        files::read_json(&self.path.join("stop.json"))
    }

    pub(crate) fn write_stop(&self, stop: &StopRequest) -> Result<(), AgentError> {
        files::write_json_quick(&self.path.join("stop.json"), stop)?;
        files::write_public(&self.notice(), format!("{}\n", stop.reason).as_bytes())
    }

    /// Returns how instances of roles have ended so far.
    pub(crate) fn instance_exits(&self) -> Vec<InstanceExit> {
        let text = fs::read_to_string(self.path.join("ends")).unwrap_or_default();
        // The last line may be incomplete after a crash of the machine.
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    pub(crate) fn add_instance_exit(&self, exit: &InstanceExit) -> Result<(), AgentError> {
        let path = self.path.join("ends");
        let mut options = OpenOptions::new();
        let mut file = options
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .at(&path)?;
        let line = serde_json::to_string(exit).unwrap_or_default();
        std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes()).at(&path)
    }

    pub(crate) fn exit(&self) -> Result<Option<TaskExit>, AgentError> {
        files::read_json(&self.path.join("exit.json"))
    }

    /// Records how the task ended. Succeeds on a full disk if [`Self::reserve`] was called before.
    pub(crate) fn write_exit(&self, exit: &TaskExit) -> Result<(), AgentError> {
        let path = self.path.join("exit.json");
        let written = files::write_json(&path, exit);
        let reserved = fs::remove_file(self.path.join("reserve"));
        match (written, reserved) {
            (Err(_), Ok(())) => files::write_json(&path, exit),
            (written, _) => written,
        }
    }

    /// Reserves disk space for the exit record.
    pub(crate) fn reserve(&self) -> Result<(), AgentError> {
        files::write_quick(&self.path.join("reserve"), &[b' '; 8192])
    }

    /// Returns whether the end of the task has been recorded.
    pub(crate) fn has_ended(&self) -> bool {
        self.path.join("exit.json").exists()
    }

    /// Returns whether the end of the task is in the server's journal.
    pub(crate) fn is_acknowledged(&self) -> bool {
        // `told` is the name in the first version of the agent.
        ["acknowledged", "told"]
            .iter()
            .any(|name| self.path.join(name).exists())
    }

    pub(crate) fn write_acknowledged(&self) -> Result<(), AgentError> {
        files::write(&self.path.join("acknowledged"), b"")
    }

    /// Returns whether a trainer of the task has ever connected to an agent.
    pub(crate) fn has_trainers(&self) -> bool {
        self.path.join("trainers").exists()
    }

    pub(crate) fn write_has_trainers(&self) -> Result<(), AgentError> {
        files::write_public(&self.path.join("trainers"), b"")
    }

    /// Locks the folder for a shim; `None` if a shim holds the lock.
    pub(crate) fn try_lock(&self) -> Result<Option<File>, AgentError> {
        let path = self.path.join("lock");
        let mut options = OpenOptions::new();
        let lock = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let lock = lock.open(&path).at(&path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(e).at(&path),
        }
    }

    /// Returns whether a shim of the task runs.
    pub(crate) fn has_shim(&self) -> bool {
        matches!(self.try_lock(), Ok(None))
    }

    /// Returns the step of the last checkpoint that all reporting ranks of this node have made; zero without a checkpoint.
    pub(crate) fn checkpoint_step(&self) -> u64 {
        let Ok(entries) = fs::read_dir(self.reports()) else {
            return 0;
        };
        let steps = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix("checkpoint.")?.parse::<u32>().ok()?;
            // The task's user can write anything to these files.
            let text = files::read(&entry.path()).ok()??;
            std::str::from_utf8(&text).ok()?.trim().parse::<u64>().ok()
        });
        steps.min().unwrap_or(0)
    }

    /// Returns the time since the folder last changed.
    pub(crate) fn age(&self) -> std::time::Duration {
        let changed = fs::metadata(&self.path).and_then(|m| m.modified());
        changed.ok().and_then(|t| t.elapsed().ok()).unwrap_or_default()
    }

    /// Returns the total size of its files.
    pub(crate) fn bytes(&self) -> u64 {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    pub(crate) fn delete(&self) -> Result<(), AgentError> {
        fs::remove_dir_all(&self.path).at(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_shows_whether_a_shim_runs() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TaskFolder::at(dir.path());
        assert!(!folder.has_shim());
        let lock = folder.try_lock().unwrap().unwrap();
        assert!(folder.has_shim());
        drop(lock);
        assert!(!folder.has_shim());
    }

    #[test]
    fn a_checkpoint_counts_when_all_reporting_ranks_have_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TaskFolder::at(dir.path());
        assert_eq!(folder.checkpoint_step(), 0);
        fs::create_dir(folder.reports()).unwrap();
        let report = |name: &str, text: &[u8]| fs::write(folder.reports().join(name), text).unwrap();
        report("checkpoint.0", b"40\n");
        report("checkpoint.1", b"30");
        report("checkpoint.2", b"\xff\xfe");
        report("checkpoint.x", b"1");
        report("other", b"2");
        assert_eq!(folder.checkpoint_step(), 30);
    }
}
