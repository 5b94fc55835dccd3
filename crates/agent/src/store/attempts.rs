//! The last attempt known of each job. Only newer attempts are started.
//!
//! Before a start, a line `job attempt` is appended to the file. When most lines are outdated, the file is compacted.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{AgentError, IoResultExt};
use crate::files;
use crate::task::record::TaskId;

/// Name of the file in the agent's folder.
const FILE: &str = "attempts";
/// Name of the file in the first version of the agent.
const OLD_FILE: &str = "generations";

/// Number of lines below which the file is not compacted.
const MIN_LINES: usize = 4096;

/// The open file and its content.
#[derive(Debug)]
pub(crate) struct StartedAttempts {
    path: PathBuf,
    file: File,
    last: BTreeMap<u64, u64>,
    lines: usize,
}

impl StartedAttempts {
    /// Opens the file in the agent's folder. Malformed lines are reported and dropped: an attempt whose line was cut
    /// short by a crash was not started.
    pub(crate) fn open(folder: &Path) -> Result<Self, AgentError> {
        let (path, old_path) = (folder.join(FILE), folder.join(OLD_FILE));
        let old = files::read(&old_path)?;
        let current = files::read(&path)?;
        let mut last = BTreeMap::new();
        let mut malformed = 0;
        let mut lines = 0;
        for bytes in [&old, &current].into_iter().flatten() {
            for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
                lines += 1;
                match parse(line) {
                    Some((job, attempt)) => advance(&mut last, job, attempt),
                    None => malformed += 1,
                }
            }
        }
        if malformed > 0 {
            tracing::error!(
                "{}: dropped malformed lines: {malformed} of {lines}",
                path.display()
            );
        }
        let mut this = Self {
            file: open_to_append(&path)?,
            path,
            last,
            lines,
        };
        if malformed > 0 || old.is_some() || this.is_long() {
            this.compact()?;
        }
        if old.is_some() {
            fs::remove_file(&old_path).at(&old_path)?;
        }
        Ok(this)
    }

    /// Returns the last attempt known of a job.
    pub(crate) fn last(&self, job: u64) -> Option<u64> {
        self.last.get(&job).copied()
    }

    /// Records that this attempt is about to be started or must never be started.
    pub(crate) fn advance(&mut self, task: TaskId) -> Result<(), AgentError> {
        if self.last(task.job).is_some_and(|last| last >= task.attempt) {
            return Ok(());
        }
        let line = format!("{} {}\n", task.job, task.attempt);
        let length = self.file.metadata().at(&self.path)?.len();
        let appended = self
            .file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data());
        if appended.is_err() {
            // Half a line would corrupt the next one.
            self.file.set_len(length).at(&self.path)?;
        }
        appended.at(&self.path)?;
        advance(&mut self.last, task.job, task.attempt);
        self.lines += 1;
        if self.is_long() {
            self.compact()?;
        }
        Ok(())
    }

    fn is_long(&self) -> bool {
        self.lines > MIN_LINES && self.lines > 2 * self.last.len()
    }

    /// Rewrites the file with one line for each job.
    fn compact(&mut self) -> Result<(), AgentError> {
        let lines: String = self
            .last
            .iter()
            .map(|(job, attempt)| format!("{job} {attempt}\n"))
            .collect();
        files::write(&self.path, lines.as_bytes())?;
        self.file = open_to_append(&self.path)?;
        self.lines = self.last.len();
        Ok(())
    }
}

fn advance(last: &mut BTreeMap<u64, u64>, job: u64, attempt: u64) {
    let known = last.entry(job).or_default();
    *known = (*known).max(attempt);
}

fn parse(line: &str) -> Option<(u64, u64)> {
    let (job, attempt) = line.strip_suffix('\n')?.split_once(' ')?;
    Some((job.parse().ok()?, attempt.parse().ok()?))
}

fn open_to_append(path: &Path) -> Result<File, AgentError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path).at(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn task(job: u64, attempt: u64) -> TaskId {
        TaskId { job, attempt }
    }

    #[test]
    fn the_last_attempt_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut attempts = StartedAttempts::open(dir.path()).unwrap();
        for (job, attempt) in [(1, 1), (1, 3), (1, 2), (9, 1)] {
            attempts.advance(task(job, attempt)).unwrap();
        }
        drop(attempts);
        let attempts = StartedAttempts::open(dir.path()).unwrap();
        assert_eq!(
            (attempts.last(1), attempts.last(9), attempts.last(2)),
            (Some(3), Some(1), None)
        );
    }

    #[test]
    fn the_file_of_the_first_version_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(OLD_FILE), "1 3\n2 1\n").unwrap();
        fs::write(dir.path().join(FILE), "2 4\n").unwrap();
        StartedAttempts::open(dir.path()).unwrap();
        let attempts = StartedAttempts::open(dir.path()).unwrap();
        assert_eq!((attempts.last(1), attempts.last(2)), (Some(3), Some(4)));
        assert!(!dir.path().join(OLD_FILE).exists());
    }

    #[test]
    fn malformed_lines_are_dropped_and_the_others_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, "1 3\nrubbish\n\u{0}\u{0}\n2 7\n3 12").unwrap();
        let mut attempts = StartedAttempts::open(dir.path()).unwrap();
        assert_eq!(
            (attempts.last(1), attempts.last(2), attempts.last(3)),
            (Some(3), Some(7), None)
        );
        attempts.advance(task(3, 1)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1 3\n2 7\n3 1\n");
    }

    #[test]
    fn a_long_file_is_compacted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let lines: String = (1..=MIN_LINES as u64 + 1)
            .map(|attempt| format!("5 {attempt}\n"))
            .collect();
        fs::write(&path, lines).unwrap();
        let mut attempts = StartedAttempts::open(dir.path()).unwrap();
        attempts.advance(task(5, 100_000)).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("5 {}\n5 100000\n", MIN_LINES + 1)
        );
    }

    proptest! {
        #[test]
        fn any_content_of_the_file_is_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(FILE), bytes).unwrap();
            StartedAttempts::open(dir.path()).unwrap();
        }
    }
}
