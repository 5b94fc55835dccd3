//! The last generation known of each job: none is started that is not newer.
//!
//! A line for each start, `job generation`, is added before anything is started. When there are many old lines, the
//! file is written anew.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{At, NodeError};
use crate::files;
use crate::task::record::Key;

/// Lines before it is worth while to write the file anew.
const MANY: usize = 4096;

/// The file, open.
#[derive(Debug)]
pub(crate) struct Generations {
    path: PathBuf,
    file: File,
    last: BTreeMap<u64, u64>,
    lines: usize,
}

impl Generations {
    /// Opens the file in the agent's folder. Lines that make no sense are reported and left out: a start that was cut
    /// short by a crash was not made.
    pub(crate) fn open(folder: &Path) -> Result<Self, NodeError> {
        let path = folder.join("generations");
        let bytes = match files::read(&path) {
            Err(e @ NodeError::Damaged { .. }) => return Err(e),
            other => other?.unwrap_or_default(),
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut last = BTreeMap::new();
        let mut damaged = 0;
        let mut lines = 0;
        for line in text.split_inclusive('\n') {
            lines += 1;
            match parse(line) {
                Some((job, generation)) => note(&mut last, job, generation),
                None => damaged += 1,
            }
        }
        if damaged > 0 {
            tracing::error!("{}: {damaged} of {lines} lines cannot be read", path.display());
        }
        let mut this = Self {
            file: open_to_append(&path)?,
            path,
            last,
            lines,
        };
        if damaged > 0 || this.is_long() {
            this.write_anew()?;
        }
        Ok(this)
    }

    /// The last one known of a job.
    pub(crate) fn last(&self, job: u64) -> Option<u64> {
        self.last.get(&job).copied()
    }

    /// Writes down that this one is about to be started, or must never be.
    pub(crate) fn advance(&mut self, key: Key) -> Result<(), NodeError> {
        if self.last(key.job).is_some_and(|last| last >= key.generation) {
            return Ok(());
        }
        let line = format!("{} {}\n", key.job, key.generation);
        let whole = self.file.metadata().at(&self.path)?.len();
        let added = self
            .file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data());
        if added.is_err() {
            // Half a line would spoil the next one.
            self.file.set_len(whole).at(&self.path)?;
        }
        added.at(&self.path)?;
        note(&mut self.last, key.job, key.generation);
        self.lines += 1;
        if self.is_long() {
            self.write_anew()?;
        }
        Ok(())
    }

    fn is_long(&self) -> bool {
        self.lines > MANY && self.lines > 2 * self.last.len()
    }

    fn write_anew(&mut self) -> Result<(), NodeError> {
        let lines: String = self.last.iter().map(|(job, g)| format!("{job} {g}\n")).collect();
        files::write(&self.path, lines.as_bytes())?;
        self.file = open_to_append(&self.path)?;
        self.lines = self.last.len();
        Ok(())
    }
}

fn note(last: &mut BTreeMap<u64, u64>, job: u64, generation: u64) {
    let known = last.entry(job).or_default();
    *known = (*known).max(generation);
}

fn parse(line: &str) -> Option<(u64, u64)> {
    let (job, generation) = line.strip_suffix('\n')?.split_once(' ')?;
    Some((job.parse().ok()?, generation.parse().ok()?))
}

fn open_to_append(path: &Path) -> Result<File, NodeError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path).at(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(job: u64, generation: u64) -> Key {
        Key { job, generation }
    }

    #[test]
    fn the_greatest_is_remembered_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut known = Generations::open(dir.path()).unwrap();
        for (job, generation) in [(1, 1), (1, 3), (1, 2), (9, 1)] {
            known.advance(key(job, generation)).unwrap();
        }
        drop(known);
        let known = Generations::open(dir.path()).unwrap();
        assert_eq!(
            (known.last(1), known.last(9), known.last(2)),
            (Some(3), Some(1), None)
        );
    }

    #[test]
    fn a_torn_line_is_left_out_and_the_rest_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("generations");
        std::fs::write(&path, "1 3\nrubbish\n\u{0}\u{0}\n2 7\n3 12").unwrap();
        let mut known = Generations::open(dir.path()).unwrap();
        assert_eq!(
            (known.last(1), known.last(2), known.last(3)),
            (Some(3), Some(7), None)
        );
        known.advance(key(3, 1)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1 3\n2 7\n3 1\n");
    }

    #[test]
    fn the_file_stays_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("generations");
        let lines: String = (1..=MANY as u64 + 1).map(|g| format!("5 {g}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        let mut known = Generations::open(dir.path()).unwrap();
        known.advance(key(5, 100_000)).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!("5 {}\n5 100000\n", MANY + 1)
        );
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("generations"), bytes).unwrap();
            Generations::open(dir.path()).unwrap();
        }
    }
}
