//! A durable log of what happened, with snapshots: all that a scheduler needs to come back after a crash.
//!
//! Records are bytes with a number. They are gathered with [`Journal::append`] and become durable together with
//! [`Journal::commit`], so that one write to the disk serves everybody who waits for one. A snapshot stands for all
//! records up to its number; older files are then deleted, but for the last snapshot before it.
//!
//! What was committed is never lost silently: a tail that a crash left half written is cut off, kept in a file beside
//! the journal and reported; damage before the tail is an error.

mod error;
mod files;
mod frame;
mod recover;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use error::JournalError;
pub use recover::{Recovered, Repair};

use error::At;

/// The number of a record; the first is 1.
pub type Seq = u64;

/// A segment is closed when it is larger than this, so that old ones can be deleted one by one.
const SEGMENT_BYTES: u64 = 64 << 20;

/// A journal that is open for writing. Nobody else can open it meanwhile.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    /// Held as long as the journal is open.
    _lock: File,
    path: PathBuf,
    file: File,
    /// The length of the segment up to which everything is durable.
    durable_bytes: u64,
    /// The number of the last record that is durable.
    durable: Seq,
    /// Frames that are not durable yet.
    pending: Vec<u8>,
    next: Seq,
    segment_bytes: u64,
}

impl Journal {
    /// Opens the journal in a folder, which is made if there is none, and reads what it holds.
    ///
    /// # Errors
    /// When another process has it open, a file is damaged or was written by a newer version, or the disk fails.
    pub fn open(dir: &Path) -> Result<(Self, Recovered), JournalError> {
        std::fs::create_dir_all(dir).at(dir)?;
        let lock = files::lock(dir)?;
        let (recovered, last) = recover::read(dir)?;
        let durable = recovered.last();
        let (path, file, durable_bytes) = match last {
            Some((path, bytes)) => {
                let mut file = files::open_for_writing(&path)?;
                file.seek(SeekFrom::Start(bytes)).at(&path)?;
                (path, file, bytes)
            }
            None => files::new_segment(dir, durable + 1)?,
        };
        let journal = Self {
            dir: dir.to_owned(),
            _lock: lock,
            path,
            file,
            durable_bytes,
            durable,
            pending: Vec::new(),
            next: durable + 1,
            segment_bytes: SEGMENT_BYTES,
        };
        Ok((journal, recovered))
    }

    /// Closes segments at another size.
    #[must_use]
    pub fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Adds a record, which is not durable before the next [`Journal::commit`], and tells its number.
    ///
    /// # Errors
    /// When the record is larger than a frame can be.
    pub fn append(&mut self, payload: &[u8]) -> Result<Seq, JournalError> {
        let seq = self.next;
        frame::write(&mut self.pending, seq, payload)?;
        self.next += 1;
        Ok(seq)
    }

    /// Makes all records durable that were added. Where that fails none of them is: they are forgotten, and the journal
    /// goes on from where it was.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub fn commit(&mut self) -> Result<(), JournalError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self
            .file
            .write_all(&self.pending)
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.take_back()?;
            return Err(error).at(&self.path);
        }
        self.durable_bytes += self.pending.len() as u64;
        self.durable = self.next - 1;
        self.pending.clear();
        if self.durable_bytes > self.segment_bytes {
            self.start_segment()?;
        }
        Ok(())
    }

    /// Forgets what was added and not committed, on the disk too.
    fn take_back(&mut self) -> Result<(), JournalError> {
        self.pending.clear();
        self.next = self.durable + 1;
        self.file.set_len(self.durable_bytes).at(&self.path)?;
        self.file
            .seek(SeekFrom::Start(self.durable_bytes))
            .at(&self.path)?;
        Ok(())
    }

    fn start_segment(&mut self) -> Result<(), JournalError> {
        (self.path, self.file, self.durable_bytes) = files::new_segment(&self.dir, self.next)?;
        Ok(())
    }

    /// The number of the last record that is durable; zero before the first.
    pub fn last(&self) -> Seq {
        self.durable
    }

    /// Keeps a snapshot that stands for all records so far, and deletes what only older ones need. Whoever comes back
    /// starts from it.
    ///
    /// # Errors
    /// When the disk is full or fails; the journal is as good as before then.
    pub fn snapshot(&mut self, state: &[u8]) -> Result<(), JournalError> {
        self.commit()?;
        files::write_snapshot(&self.dir, self.durable, state)?;
        if self.durable_bytes > files::HEADER_BYTES {
            self.start_segment()?;
        }
        files::delete_old(&self.dir)
    }
}
