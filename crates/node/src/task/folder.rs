//! The folder of a task.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{At, NodeError};
use crate::files;
use crate::task::record::{Exit, InstanceExit, Key, Running, Spec, Stop};

/// The files of one task.
#[derive(Clone, Debug)]
pub(crate) struct TaskFolder {
    path: PathBuf,
}

impl TaskFolder {
    /// The folder of a task below the agent's.
    pub(crate) fn of(agent: &Path, key: Key) -> Self {
        Self {
            path: agent.join("tasks").join(key.to_string()),
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

    /// Where the task's own user may leave reports: `checkpoint.RANK`.
    pub(crate) fn reports(&self) -> PathBuf {
        self.path.join("reports")
    }

    /// Where a task runs that names no folder and has roles.
    pub(crate) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Words that appear when the task is to stop.
    pub(crate) fn notice(&self) -> PathBuf {
        self.path.join("stop-notice")
    }

    /// Addresses and slots of the gang, as `mpirun` reads them.
    pub(crate) fn hostfile(&self) -> PathBuf {
        self.path.join("hosts")
    }

    pub(crate) fn shim_log(&self) -> PathBuf {
        self.path.join("shim.log")
    }

    pub(crate) fn spec(&self) -> Result<Option<Spec>, NodeError> {
        files::read_json(&self.path.join("spec.json"))
    }

    pub(crate) fn write_spec(&self, spec: &Spec) -> Result<(), NodeError> {
        files::write_json_quick(&self.path.join("spec.json"), spec)
    }

    pub(crate) fn running(&self) -> Result<Option<Running>, NodeError> {
        files::read_json(&self.path.join("shim.json"))
    }

    pub(crate) fn write_running(&self, running: &Running) -> Result<(), NodeError> {
        files::write_json_quick(&self.path.join("shim.json"), running)
    }

    pub(crate) fn stop(&self) -> Result<Option<Stop>, NodeError> {
        files::read_json(&self.path.join("stop.json"))
    }

    pub(crate) fn write_stop(&self, stop: &Stop) -> Result<(), NodeError> {
        files::write_json_quick(&self.path.join("stop.json"), stop)?;
        files::write_public(&self.notice(), format!("{}\n", stop.reason).as_bytes())
    }

    /// Instances of roles that have ended so far.
    pub(crate) fn ends(&self) -> Vec<InstanceExit> {
        let text = fs::read_to_string(self.path.join("ends")).unwrap_or_default();
        // The last line may be cut off where the machine went down.
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    pub(crate) fn add_end(&self, end: &InstanceExit) -> Result<(), NodeError> {
        let path = self.path.join("ends");
        let mut options = OpenOptions::new();
        let mut file = options
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .at(&path)?;
        let line = serde_json::to_string(end).unwrap_or_default();
        std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes()).at(&path)
    }

    pub(crate) fn exit(&self) -> Result<Option<Exit>, NodeError> {
        files::read_json(&self.path.join("exit.json"))
    }

    /// Also on a full disk, if [`Self::reserve`] has kept room for it.
    pub(crate) fn write_exit(&self, exit: &Exit) -> Result<(), NodeError> {
        let path = self.path.join("exit.json");
        let written = files::write_json(&path, exit);
        let reserved = fs::remove_file(self.path.join("reserve"));
        match (written, reserved) {
            (Err(_), Ok(())) => files::write_json(&path, exit),
            (written, _) => written,
        }
    }

    /// Keeps room on the disk for the end.
    pub(crate) fn reserve(&self) -> Result<(), NodeError> {
        files::write_quick(&self.path.join("reserve"), &[b' '; 8192])
    }

    /// Whether its end is written down.
    pub(crate) fn is_over(&self) -> bool {
        self.path.join("exit.json").exists()
    }

    /// Whether the scheduler has the end in its journal.
    pub(crate) fn is_told(&self) -> bool {
        self.path.join("told").exists()
    }

    pub(crate) fn write_told(&self) -> Result<(), NodeError> {
        files::write(&self.path.join("told"), b"")
    }

    /// Whether trainers of the task have ever talked to an agent.
    pub(crate) fn has_trainers(&self) -> bool {
        self.path.join("trainers").exists()
    }

    pub(crate) fn write_has_trainers(&self) -> Result<(), NodeError> {
        files::write_public(&self.path.join("trainers"), b"")
    }

    /// The lock of the shim, or `None` if a shim holds it. It is made if there is none.
    pub(crate) fn try_lock(&self) -> Result<Option<File>, NodeError> {
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

    /// Whether a shim lives.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.try_lock(), Ok(None))
    }

    /// The step of the last checkpoint that all ranks of this node have reported; zero if there is none.
    pub(crate) fn checkpoint_step(&self) -> u64 {
        let Ok(entries) = fs::read_dir(self.reports()) else {
            return 0;
        };
        let steps = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix("checkpoint.")?.parse::<u32>().ok()?;
            // The task's user can write anything here.
            let text = files::read(&entry.path()).ok()??;
            std::str::from_utf8(&text).ok()?.trim().parse::<u64>().ok()
        });
        steps.min().unwrap_or(0)
    }

    /// When it last changed, for deleting old ones.
    pub(crate) fn age(&self) -> std::time::Duration {
        let changed = fs::metadata(&self.path).and_then(|m| m.modified());
        changed.ok().and_then(|t| t.elapsed().ok()).unwrap_or_default()
    }

    /// What its files take.
    pub(crate) fn bytes(&self) -> u64 {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    pub(crate) fn delete(&self) -> Result<(), NodeError> {
        fs::remove_dir_all(&self.path).at(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_tells_whether_a_shim_lives() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TaskFolder::at(dir.path());
        assert!(!folder.is_held());
        let lock = folder.try_lock().unwrap().unwrap();
        assert!(folder.is_held());
        drop(lock);
        assert!(!folder.is_held());
    }

    #[test]
    fn a_checkpoint_is_known_when_all_ranks_that_report_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TaskFolder::at(dir.path());
        assert_eq!(folder.checkpoint_step(), 0);
        fs::create_dir(folder.reports()).unwrap();
        let say = |name: &str, text: &[u8]| fs::write(folder.reports().join(name), text).unwrap();
        say("checkpoint.0", b"40\n");
        say("checkpoint.1", b"30");
        say("checkpoint.2", b"\xff\xfe");
        say("checkpoint.x", b"1");
        say("other", b"2");
        assert_eq!(folder.checkpoint_step(), 30);
    }
}
